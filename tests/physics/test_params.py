"""Parameters that vary from world to world, each world beside MuJoCo with a model edited in the same way."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
import oracle
import pytest
import random_mjcf
import random_params
import torch

from torch_mjenvs.physics import Simulation, State, load, step, vary
from torch_mjenvs.physics.dynamics.set_const import set_const
from torch_mjenvs.physics.loading.history import history_from

OUTPUTS = ("qfrc_constraint", "cfrc_ext", "M")
INPUTS = ("xfrc_applied", "qfrc_applied")
HERE = torch.get_default_device()
ASSETS = (
    "half_cheetah", "walker2d_v5", "hopper", "ant", "humanoid", "humanoidstandup",
    "swimmer", "reacher", "inverted_pendulum", "inverted_double_pendulum",
)  # fmt: skip

# MuJoCo finds the way out of the ground to 1e-8 m, and to 1e-6 m (its ccd_tolerance) of a ball whose centre is in it.
TO_ROUNDING = random_mjcf.SOFTENED | {"height field", "height fields"}
RANDOM = range(40)


def heap() -> str:
    """Free spheres and capsules in a heap: their pairs are many and alike, and done by loops."""
    shapes = ("type='capsule' size='.06 .05'", "size='.08'", "size='.08'")
    bodies = (
        f"<body pos='{i % 3 * 0.15} {i // 3 * 0.15} {0.12 + 0.1 * (i % 2)}'><freejoint/><geom {shapes[i % 3]}/></body>"
        for i in range(6)
    )
    floor = "<geom type='plane' size='5 5 1'/>"
    return f"<mujoco><option timestep='.003'/><worldbody>{floor}{''.join(bodies)}</worldbody></mujoco>"


def model(name: str | int) -> mujoco.MjModel:
    if name == "heap":
        return oracle.sharpen(mujoco.MjModel.from_xml_string(heap()))
    if isinstance(name, str):
        return oracle.asset(name)
    return oracle.sharpen(mujoco.MjModel.from_xml_string(random_mjcf.case(name, without=TO_ROUNDING).xml))


def close(got: object, want: object, tolerance: float = 1e-9) -> None:
    got, want = (np.asarray(x, dtype=float) for x in (got, want))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1.0, np.max(np.abs(want), initial=0.0)))


def beside_mujoco(
    name: str | int, worlds: int, seed: int = 0, steps: int = 3, varied: Sequence[str] | None = None
) -> int:
    """Some steps of worlds that are pushed and whose parameters are drawn, all or those that are named; how many
    constraint rows acted there.
    """
    mjm, rng = model(name), np.random.default_rng(seed)
    varied = random_params.names(mjm, load(mjm)) if varied is None else varied
    sim = Simulation(mjm, worlds, dtype=torch.float64, outputs=OUTPUTS, vary=varied, inputs=INPUTS)
    draws = [{x: random_params.draw(mjm, x, rng) for x in varied} for _ in range(worlds)]
    for x in varied:
        sim.params[x].copy_(torch.tensor(np.stack([d[x] for d in draws])))
    found = []
    for b, values in enumerate(draws):
        own = random_params.edited(mjm, values)
        d = mujoco.MjData(own)
        mujoco.mj_integratePos(own, d.qpos, rng.normal(0, 0.2, own.nv), 1.0)
        d.qfrc_applied[:], d.xfrc_applied[:] = rng.normal(0, 0.5, own.nv), rng.normal(0, 0.5, (own.nbody, 6))
        d.qvel[:], d.ctrl[:] = rng.normal(0, 1, own.nv), rng.normal(0, 1, own.nu)
        for _ in range(int(rng.integers(1, 60))):
            mujoco.mj_step(own, d)
        more = ("mocap_pos", "mocap_quat") * bool(own.nmocap) + ("act",) * bool(own.na)
        more += ("plastic",) * bool(own.nplastic)
        for field in ("qpos", "qvel", "ctrl", *INPUTS, *more):
            getattr(sim, field)[b] = torch.tensor(getattr(d, field))
        if sim.model.history0:
            sim.history[b] = torch.tensor(history_from(sim.model, own, d))
        found.append((own, d))
    sim.step(steps)
    tolerance = 1e-7 if sim.model.history0 else 1e-9  # MuJoCo finds samples by sums of time steps, to 1e-8
    yielding = np.any(mjm.tendon_plasticadr >= 0)  # see docs/limits.md
    compared = [x for x in ("qpos", "qvel", *OUTPUTS) if x != "cfrc_ext" or not yielding]
    rows = 0
    for b, (own, d) in enumerate(found):
        for _ in range(steps):
            before = d.qvel.copy()
            mujoco.mj_step(own, d)
        if d.warning.number.any() or np.max(np.abs(d.qvel), initial=0) > 1e3:
            continue  # it blows up: MuJoCo's own answer then moves by as much, if its state changes by 1e-15
        after = d.qvel.copy()
        if own.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4:
            d.qvel[:] = before  # by which armature of tendons pulls: see docs/exactness.md
        mujoco.mj_rnePostConstraint(own, d)
        d.qvel[:] = after
        rows += d.nefc
        for field in (*compared, *(("act",) if own.na else ())):
            close(getattr(sim, field)[b].cpu(), oracle.field(own, d, field), tolerance)
    return rows


@pytest.mark.parametrize("name", ["half_cheetah", 7])
def test_worlds_with_parameters_of_their_own_move_as_in_mujoco(name):
    assert beside_mujoco(name, 4)


def test_random_models_have_no_ground_that_mujoco_finds_less_exactly():
    assert not any(model(seed).nhfield for seed in RANDOM)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ASSETS, "heap", *RANDOM])
def test_two_hundred_draws_of_parameters_move_as_in_mujoco(name):
    beside_mujoco(name, 8 if isinstance(name, str) else 4, seed=1)


DRONE = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><site name="anchor" pos=".5 0 1"/>
  <body pos="0 0 .5"><freejoint/><geom type="box" size=".1 .1 .02" mass=".5" euler="0 20 0"/>
    <site name="imu" pos="0 0 .02"/><site name="down" quat="0 1 0 0"/>
    <site name="r1" pos=".1 .1 0"/><site name="r2" pos="-.1 .1 0"/><site name="hook" pos="0 .05 -.02"/>
    <body pos="0 0 -.1"><joint axis="0 1 0" range="-40 40"/><geom type="capsule" size=".01 .05" mass=".1"/>
      <site name="end" pos="0 0 -.1"/></body></body></worldbody>
<tendon><spatial name="rope" limited="true" range="0 .4"><site site="anchor"/><site site="hook"/></spatial>
  <spatial name="muscle"><site site="hook"/><site site="end"/></spatial></tendon>
<equality><weld site1="anchor" site2="down" active="false"/></equality>
<actuator><motor name="thrust" site="r1" gear="0 0 1 0 0 .1"/><motor site="r2" refsite="anchor" gear="1 0 1 .1 0 -.1"/>
  <muscle tendon="muscle" lengthrange=".05 .2"/></actuator>
<sensor><gyro site="imu"/><accelerometer site="imu"/><rangefinder site="down"/><framequat objtype="site" objname="imu"/>
  <actuatorfrc actuator="thrust"/><tendonpos tendon="rope"/></sensor></mujoco>"""


@pytest.mark.parametrize("welded", [False, True])
def test_sites_of_each_world_are_where_rotors_ropes_and_sensors_are(welded):
    """And what mj_setConst derives from them: of a tendon's limit, and of a muscle that takes its force from acc0."""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(DRONE.replace('active="false"', "") if welded else DRONE))
    varied, rng = ("site_pos", "site_quat", "body_mass"), np.random.default_rng(0)
    outputs = ("sensordata", "actuator_force", "ten_length", "site_xpos", "qfrc_constraint")
    sim = Simulation(mjm, 4, dtype=torch.float64, outputs=outputs, vary=varied)
    draws = [{x: random_params.draw(mjm, x, rng) for x in varied} for _ in range(4)]
    for x in varied:
        sim.params[x].copy_(torch.tensor(np.stack([d[x] for d in draws])))
    sim.ctrl.copy_(torch.from_numpy(rng.uniform(0, 3, (4, 3))))
    worlds = []
    for k, values in enumerate(draws):
        own, ours = random_params.edited(mjm, values), sim.model_of(k)
        for field in ("site_pos", "site_quat", "tendon_invweight0", "actuator_acc0"):
            np.testing.assert_allclose(getattr(ours, field), getattr(own, field), rtol=1e-12)
        assert np.abs(own.actuator_acc0 / mjm.actuator_acc0 - 1).max() > 1e-2
        worlds += [(m, mujoco.MjData(m)) for m in (own, ours)]
    for _ in range(60):
        sim.step()
        for k, (own, d) in enumerate(worlds):
            d.ctrl[:] = sim.ctrl[k // 2].cpu()
            mujoco.mj_step(own, d)
            for field in ("qpos", "qvel", *outputs):
                close(getattr(sim, field)[k // 2].cpu(), getattr(d, field))
    assert all(d.nefc for _, d in worlds)


@pytest.mark.parametrize("name", [*ASSETS, *range(20)])
def test_what_mj_set_const_computes(name):
    """As it is loaded, and with all parameters drawn."""
    mjm, rng = model(name), np.random.default_rng(0)
    m = load(mjm)
    for values in ({}, {x: random_params.draw(mjm, x, rng) for x in random_params.names(mjm, m)}):
        own = random_params.edited(mjm, values) if values else mjm
        world = vary(m, {x: y.tolist() for x, y in values.items()})
        for field, x in set_const(world).items():
            if field != "meaninertia":  # which MuJoCo leaves as its compiler found it
                want = np.array(getattr(own, field)).reshape(np.shape(x))
                np.testing.assert_allclose(np.array(x, float), want, rtol=1e-9, atol=1e-12 * np.max(want, initial=0))


def test_the_derived_follow_what_is_written_into_params():
    """At the next call, whichever it is, and however often."""
    mjm = oracle.asset("hopper")
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=("M",), vary=("body_mass",))
    plain = Simulation(mjm, 2, dtype=torch.float64, outputs=("M",))
    sim.forward(), plain.forward()
    torch.testing.assert_close(sim.M, plain.M, rtol=1e-12, atol=1e-12)
    sim.params["body_mass"][1] *= 2.0
    sim.step()
    derived = sim._buffers["derived"].clone()
    sim.set_const()
    assert torch.equal(derived, sim._buffers["derived"]) and not torch.equal(derived[:, 0], derived[:, 1])


def test_a_shared_value_gives_what_a_constant_gives():
    mjm = oracle.asset("ant")
    plain = Simulation(mjm, 8, dtype=torch.float64)
    sim = Simulation(mjm, 8, dtype=torch.float64, vary=("body_mass", "dof_damping", "actuator_gear", "gravity"))
    rng = torch.Generator(device=HERE).manual_seed(0)
    for x in (sim, plain):
        x.ctrl.copy_(torch.rand(8, 8, dtype=torch.float64, generator=rng.manual_seed(0), device=HERE))
        x.step(50)
    torch.testing.assert_close(sim.qpos, plain.qpos, rtol=1e-9, atol=1e-9)


def test_a_tensor_of_parameters_is_not_replaced_in_silence():
    sim = Simulation(oracle.asset("hopper"), 2, vary=("body_mass",))
    with pytest.raises(TypeError, match=r"params\['body_mass'\] = ... would change nothing: write into the tensor"):
        sim.params["body_mass"] = sim.params["body_mass"] * 2


def test_parameters_that_make_no_sense_are_refused_by_name_and_nothing_changes():
    sim = Simulation(oracle.asset("hopper"), 3, dtype=torch.float64, vary=("body_mass", "jnt_range", "dof_damping"))
    before = sim._buffers["params"].clone()
    good = sim.params["body_mass"].clone() * 2
    bad = good.clone()
    bad[2, 1] = -1.0
    with pytest.raises(ValueError, match="body_mass of world 2 makes no sense: numbers are not negative"):
        sim.set_params({"dof_damping": sim.params["dof_damping"] * 2, "body_mass": bad})
    with pytest.raises(ValueError, match="jnt_range of world 0 makes no sense"):
        sim.set_params({"jnt_range": sim.params["jnt_range"].flip(-1)})
    nowhere = sim.params["jnt_range"].clone()
    nowhere[1, 0, 1] = float("nan")  # of a slide without limits
    with pytest.raises(ValueError, match="jnt_range of world 1 makes no sense: ends of ranges are numbers"):
        sim.set_params({"jnt_range": nowhere})
    with pytest.raises(ValueError, match="'gravity' does not vary in this Simulation: pass vary="):
        sim.set_params({"gravity": [0, 0, -1.0]})
    assert torch.equal(before, sim._buffers["params"])
    sim.set_params({"body_mass": bad}, mask=torch.tensor([True, True, False]))
    assert torch.equal(sim.params["body_mass"][:2], good[:2])
    assert torch.equal(sim.params["body_mass"][2], good[2] / 2)


def test_a_world_with_parameters_that_make_no_sense_is_nan_and_no_other_can_tell():
    mjm = oracle.asset("hopper")
    sims = [Simulation(mjm, 3, dtype=torch.float64, vary=("body_mass", "dof_damping")) for _ in range(2)]
    sims[0].params["body_mass"][1] = 0.0
    for sim in sims:
        sim.step(3)
    assert sims[0].qpos[1].isnan().any()
    for b in (0, 2):
        assert torch.equal(sims[0].qpos[b], sims[1].qpos[b])
    sims[0].params["body_mass"][1] = sims[0].params["body_mass"][0]
    sims[0].reset(), sims[1].reset()
    for sim in sims:
        sim.step(3)
    assert torch.equal(sims[0].qpos, sims[1].qpos)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("timestep", "constant of the integrator"),
        ("body_parentid", "it is structure"),
        ("body_invweight0", "follows from masses"),
        ("geom_condim", "it is structure|the model's own"),
        ("geom_rgba", "the kernels are made for the model's own"),
        ("body_weight", "no parameter of this name"),
    ],
)
def test_what_cannot_vary_is_refused_by_name(name, why):
    with pytest.raises(ValueError, match=f"{name}' cannot vary: .*({why}).*What can: gravity"):
        Simulation(oracle.asset("hopper"), 1, vary=(name,))


def test_what_a_flag_switches_off_is_not_to_vary():
    body = "<worldbody><body><joint/><geom size='.1'/></body></worldbody>"
    xml = f"<mujoco><option><flag gravity='disable'/></option>{body}</mujoco>"
    with pytest.raises(ValueError, match="gravity cannot vary: a disable flag"):
        Simulation(xml, 1, vary="gravity")


def test_sizes_do_not_vary_where_virtual_masses_follow_from_them():
    body = "<worldbody><body><freejoint/><geom size='.1' fluidshape='ellipsoid'/></body></worldbody>"
    xml = f"<mujoco><option density='1'/>{body}</mujoco>"
    with pytest.raises(ValueError, match=r"geom_size cannot vary: .* virtual masses"):
        Simulation(xml, 1, vary="geom_size")


def test_a_reset_goes_to_the_reference_of_each_world():
    sim = Simulation(oracle.asset("hopper"), 3, vary="qpos0")
    sim.params["qpos0"][1, 3] = 0.3
    sim.reset()
    assert sim.qpos[1, 3] == sim.params["qpos0"][1, 3] and sim.qpos[0, 3] == 0
    sim.params["qpos0"][2, 3] = 0.1
    sim.reset(torch.tensor([False, False, True]))
    assert sim.qpos[2, 3] == sim.params["qpos0"][2, 3]


def test_the_bits_of_a_world_follow_from_its_own_parameters():
    """Whatever the others', the batch and the place; and float32 stays finite for any friction and masses."""
    names = ("body_mass", "geom_friction", "geom_size")
    few, many = (Simulation(oracle.asset("half_cheetah"), n, vary=names) for n in (1, 37))
    rng = np.random.default_rng(0)
    for name in names:
        for b in range(37):
            many.params[name][b] *= 10.0 ** rng.uniform(-1 if name != "geom_size" else -0.1, 0.1)
    many.params["geom_friction"][3] = 0.0
    for name in names:
        few.params[name][0] = many.params[name][20]
    for sim in (few, many):
        sim.ctrl.fill_(0.7)
        for _ in range(40):
            sim.step(5)
    assert torch.equal(few.qpos[0], many.qpos[20]) and not torch.equal(few.qpos[0], many.qpos[21])
    assert many.qpos.isfinite().all()


def test_what_is_written_in_inference_mode_is_followed():
    sim = Simulation(oracle.asset("hopper"), 1, outputs="M", vary="body_mass")
    sim.forward()
    before = sim.M.clone()
    with torch.inference_mode():
        sim.params["body_mass"].mul_(2.0)
        sim.forward()
    torch.testing.assert_close(
        sim.qpos.new_tensor(0.0) + sim._buffers["derived"][0, 0], sim.params["body_mass"][0].sum()
    )
    assert not torch.equal(before, sim.M)


def test_gradients_with_respect_to_masses():
    """Of plain torch, by finite differences of itself."""
    m = load(oracle.asset("hopper"))
    mass = torch.tensor([m.body_mass], dtype=torch.float64).expand(2, -1).clone().requires_grad_()

    def height(mass: torch.Tensor) -> torch.Tensor:
        world = vary(m, {"body_mass": mass})
        start = [torch.full((2,), x, dtype=torch.float64) for x in m.qpos0]
        state = State(start, [torch.zeros_like(start[0])] * m.nv, [torch.zeros_like(start[0])] * m.nv)
        for _ in range(2):
            state = step(world, state, [torch.ones_like(start[0])] * m.nu)
        return state.qvel[5].sum()

    (gradient,) = torch.autograd.grad(height(mass), mass)
    for i in (1, 4):
        nudge = torch.zeros_like(mass)
        nudge[0, i] = 1e-6
        difference = (height(mass.detach() + nudge) - height(mass.detach() - nudge)) / 2e-6
        torch.testing.assert_close(gradient[0, i], difference, rtol=1e-6, atol=1e-9)


def test_pushes_are_inputs_by_name_and_go_with_a_reset():
    """In float32, without anything varied."""
    sim, still = (Simulation(oracle.asset("ant"), 2, inputs=x) for x in (INPUTS, ()))
    sim.step(), still.step()
    assert torch.equal(sim.qpos, still.qpos)
    sim.xfrc_applied[1, 1] = torch.tensor([50.0, 0, 0, 0, 0, 0])
    sim.qfrc_applied[1, 7] = 1.0
    sim.step(5), still.step(5)
    assert torch.equal(sim.qpos[0], still.qpos[0]) and sim.qvel[1, 0] - still.qvel[1, 0] > 0.1
    sim.reset(torch.tensor([False, True]))
    assert not sim.xfrc_applied.any() and not sim.qfrc_applied.any()
    with pytest.raises(ValueError, match=r"unknown inputs .'xfrc'.: choose from .'xfrc_applied', 'qfrc_applied'."):
        Simulation(oracle.asset("hopper"), 1, inputs="xfrc")
    with pytest.raises(AttributeError, match=r"pass inputs=.'xfrc_applied',. to give it"):
        _ = still.xfrc_applied
