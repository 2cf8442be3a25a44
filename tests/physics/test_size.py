"""How the work of reading and tracing a model grows with it, and what is said of a large one before it begins."""

from __future__ import annotations

import cProfile
import warnings
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import mujoco
import oracle
import pytest

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.physics import load, simulation_kernels
from torch_mjenvs.physics.constraints.batch import near_groups
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.loading import size
from torch_mjenvs.physics.simulation_kernels import program


def model(inside: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{inside}</worldbody></mujoco>")


def statics(n: int) -> mujoco.MjModel:
    """Balls that stand still, and one that flies."""
    balls = "".join(f"<body pos='{i} 0 0'><geom size='.1'/></body>" for i in range(n))
    return model(f"{balls}<body pos='0 0 5'><freejoint/><geom size='.1'/></body>")


def crowd(n: int) -> mujoco.MjModel:
    """Ten boxes above n that stand still."""
    ground = "".join(f"<geom type='box' pos='{i} 0 0' size='.2 .2 .2'/>" for i in range(n))
    robot = "<body pos='0 0 5'><freejoint/><geom type='box' size='.1 .1 .1'/></body>"
    return model(ground + 10 * robot)


def chain(n: int) -> mujoco.MjModel:
    """Links of which all but neighbours may touch."""
    geom = "<geom type='capsule' size='.02' fromto='0 0 0 0 0 .1'/>"
    links = "".join(f"<body pos='0 0 .1'><joint axis='{1 - i % 2} {i % 2} 0'/>{geom}" for i in range(n))
    return model(links + "</body>" * n)


def calls(function: Callable, *arguments: object) -> int:
    """How many functions it calls: unlike its time the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(function, *arguments)
    return sum(entry.callcount for entry in profile.getstats())


def test_reading_a_model_grows_with_its_bodies() -> None:
    """With four times as many, where none may touch but one."""

    def lone(n: int) -> mujoco.MjModel:
        mjm = chain(n)
        mjm.geom_contype[:] = 0
        return mjm

    for make, few, many in ((statics, 100, 400), (lone, 15, 60)):
        small, large = make(few), make(many)
        load(small)  # what is done once in a process
        assert calls(load, large) < 4.5 * calls(load, small)


def test_thousands_of_bodies_that_stand_still_have_no_pairs_but_with_what_moves() -> None:
    m = load(statics(3000))
    assert [(p.geom1, p.geom2) for p in m.pairs] == [(g, 3000) for g in range(3000)]


def test_tracing_a_chain_takes_as_much_work_as_it_has_operations() -> None:
    """Without contacts."""

    def work(n: int) -> tuple[int, int]:
        mjm = chain(n)
        mjm.geom_contype[:] = 0
        request, made = KernelRequest(load(mjm)), []
        return calls(lambda: made.append(program(request, "float32"))), made[0].count_ops().total()

    (few, small), (many, large) = work(10), work(30)
    assert large < 8 * small
    assert many / large < 1.2 * few / small


# what is said before


def traced(operations: int) -> SimpleNamespace:
    """A program of so many operations, as far as it is looked at."""
    return SimpleNamespace(count_ops=lambda: Counter(add=operations))


def never() -> SimpleNamespace:
    raise AssertionError("it was traced")


def test_a_model_that_takes_minutes_to_build_is_said_to_before_it_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bodies of which most pairs may touch, and a time."""
    m = load(chain(8))
    expected = size.estimate(m)
    monkeypatch.setattr(size, "LARGE", expected)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = size.sized(m, lambda: traced(len(said)))
    assert made.count_ops().total() == 1, "there was a warning when it was traced"
    (warning,) = said
    text = str(warning.message)
    assert f"about {expected:,} operations" in text and f"(about {expected * size.SECONDS:,.0f} s)" in text
    assert "8 dofs, and 21 pairs of geoms that may touch, most of them of the bodies 'body 1' and 'body 3' (1)" in text


def test_where_noslip_makes_most_of_a_step_it_is_named() -> None:
    """Fewer than 100 contacts are written out one by one, and a loop would be shorter."""
    mjm = chain(12)
    sizes = [size.estimate(load(mjm))]
    assert "noslip" not in size._message(load(mjm), sizes[0])
    mjm.opt.noslip_iterations = 5
    sizes.append(size.estimate(load(mjm)))
    assert sizes[1] > 2 * sizes[0]
    want = f"; noslip_iterations=5 makes most of it: with 0 it is about {sizes[0]:,} operations"
    assert size._message(load(mjm), sizes[1]).endswith(want)


def test_it_is_said_once_for_all_kernels_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is only seen when they are traced, and the next is larger."""
    for large, operations in ((1, 1), (size.LARGE, size.LARGE)):
        m = load(chain(3 + operations % 2))
        monkeypatch.setattr(size, "LARGE", large)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for more in range(3):
                size.sized(m, lambda n=operations + more: traced(n))
        assert len(said) == 1


def test_a_model_that_is_larger_than_it_seemed_is_said_to_be_when_it_was_traced() -> None:
    with pytest.warns(UserWarning, match="300,000 operations"):
        size.sized(load(chain(2)), lambda: traced(size.LARGE))


def test_of_others_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = traced(size.LARGE - 1)
        assert size.sized(load(chain(2)), lambda: made) is made


def test_a_model_that_takes_hours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it has; or by the estimate, where that leaves no doubt."""
    m = load(chain(8))
    with pytest.raises(UnsupportedModel, match=r"3,000,001 operations, .* \(about 360 s\): .*'body 1' and 'body 3'"):
        size.sized(m, lambda: traced(size.MOST + 1))
    monkeypatch.setattr(size, "MOST", size.estimate(m) / size.SURELY - 1)
    with pytest.raises(UnsupportedModel, match=r"has about .* operations"):
        size.sized(m, never)


def test_derivatives_that_take_minutes_to_build_are_said_to_and_those_that_take_hours_are_refused() -> None:
    m = load(chain(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = traced(size.LARGE_AT_ONCE)
        assert size.sized_at_once(m, lambda: made) is made
    with pytest.warns(UserWarning, match=r"derivatives have 300,000 operations, .* \(about 90 s\): 8 dofs, 21 pairs"):
        size.sized_at_once(m, lambda: traced(300_000))
    with pytest.raises(UnsupportedModel, match=r"3,000,001 operations, .* `transition` has the gradient"):
        size.sized_at_once(m, lambda: traced(size.MOST + 1))


def test_linearize_warns_of_a_large_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "LARGE_AT_ONCE", 1)
    sim = Simulation(model("<body><joint damping='.0124'/><geom size='.1' mass='3.22'/></body>"), 1)
    with pytest.warns(UserWarning, match="building their kernel may take minutes"):
        sim.linearize()


def test_pairs_whose_contacts_share_slots_are_counted() -> None:
    """They have no code of their own, but each is looked at."""
    few, many = (load(crowd(n)) for n in (100, 400))
    assert len(few.pairs) == 1045 and len(many.pairs) == 4045
    assert size.estimate(many) - size.estimate(few) == 3000 * size.PAIR_IN_POOL


def test_pairs_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what to do about them: keep them apart, or use a height field. Those that worlds list take no room."""
    m = load(crowd(100))
    assert size.room(m) == 64 * 45 * (size.SLOT + 4 * 3 * 3) * 8
    monkeypatch.setattr(near_groups, "FEWEST", 101)
    monkeypatch.setattr(size, "ROOM", size.room(m) - 1)
    want = r"1,045 pairs of geoms would take 0 GB .*: keep apart .*; in place of 100 geoms .*, use a height field$"
    with pytest.raises(UnsupportedModel, match=want):
        size.sized(m, never)


def test_a_simulation_warns_before_it_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "LARGE", 1)
    monkeypatch.setattr(simulation_kernels, "program", lambda *asked: never())
    with pytest.warns(UserWarning, match="building its kernel may take minutes"), pytest.raises(AssertionError):
        Simulation(model("<body><joint damping='.0123'/><geom size='.1' mass='3.21'/></body>"), 1)


@pytest.mark.parametrize("name", ["humanoid", "half_cheetah", "chain"])
def test_the_estimate_is_near_what_there_is(name: str) -> None:
    m = load(chain(30) if name == "chain" else oracle.model(name))
    operations = program(KernelRequest(m), "float32").count_ops().total()
    assert 0.5 < size.estimate(m) / operations < 2
