"""World data as dm_control's legacy_step leaves it, against MuJoCo C; resets that look at states before they choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Outcome, Start, Task, TorchVectorEnv, World
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.scalar import Random, absolute, logical_and, repeat

# A capsule that slides and tilts above the floor and against a ball, with sensors of all three stages.
MODEL = """<mujoco><option integrator="{}"/><worldbody><geom type="plane" size="5 5 1"/>
  <body name="a" pos="0 0 .2">
    <joint name="z" type="slide" axis="0 0 1"/><joint name="y" axis="0 1 0" range="-.2 .2" limited="true"/>
    <geom type="capsule" size=".1 .2" quat="1 0 .5 0"/><site name="s" size=".5" pos=".1 0 0"/>
    <body name="b" pos=".4 0 .3"><joint axis="0 1 0" damping=".1"/><geom size=".1" pos=".1 0 0" margin=".02" gap=".01"/>
      <site name="t" pos=".1 0 0"/></body>
  </body></worldbody>
  <actuator><general name="m" joint="z" dyntype="filter" dynprm=".1" gainprm="20" biastype="affine" biasprm="1 -5 -1"/>
  </actuator>
  <sensor><touch site="s"/><accelerometer site="s"/><force site="t"/><actuatorfrc actuator="m"/>
    <framepos objtype="site" objname="t"/><subtreelinvel body="a"/><velocimeter site="t"/></sensor></mujoco>"""
ASKED = ("xpos", "site_xmat", "ncon", "subtree_linvel", "qfrc_bias", "sensordata", "qacc", "actuator_force", "cvel")


def model(integrator: str) -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(MODEL.format(integrator)))


def numbers(world: World, name: str) -> list:
    found = world.data.sensordata[:] if name == "sensordata" else getattr(world.data, name)
    return [y for x in found for y in (x if isinstance(x, list) else [x])] if isinstance(found, list) else [found]


@dataclass(frozen=True)
class Fresh(Task):
    """Observes many fields of mjData, as dm_control reads them."""

    data = "fresh"
    xml_file: str = ""
    frame_skip: int = 3
    integrator: str = "Euler"

    def load(self) -> mujoco.MjModel:
        return model(self.integrator)

    def reset(self, m: Model, rng: Random) -> tuple[list, list]:
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [rng.normal() for _ in range(m.nv)]

    def observe(self, m: Model, world: World) -> list:
        return [x for name in ASKED for x in numbers(world, name)]

    def outcome(self, m: Model, before: World, action: list, after: World) -> Outcome:
        return Outcome(after.data.sensordata[0], False)


def theirs(mjm: mujoco.MjModel, d: mujoco.MjData) -> np.ndarray:
    return np.concatenate([np.ravel(getattr(d, name)) for name in ASKED])


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
def test_fresh_data_are_those_of_mj_step1_after_the_last_substep(integrator: str) -> None:
    """Positions, velocities and their sensors are new; forces, accelerations and theirs are the last substep's."""
    n, mjm = 24, model(integrator)
    env = TorchVectorEnv(Fresh(integrator=integrator), n, dtype=torch.float64)
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    touching = 0
    for _ in range(3):
        for _ in range(10):
            env.step(torch.tensor(rng.uniform(-1, 1, (n, 1)), device=env.device))
        state = [x.cpu().numpy().copy() for x in (env.qpos, env.qvel, env.act)]
        ctrl = rng.uniform(-1, 1, (n, 1))
        obs, reward, *_ = env.step(torch.tensor(ctrl, device=env.device))
        for k in range(n):
            d = mujoco.MjData(mjm)
            d.qpos[:], d.qvel[:], d.act[:] = (x[k] for x in state)
            d.ctrl[:] = ctrl[k]
            mujoco.mj_step(mjm, d, 3)
            mujoco.mj_step1(mjm, d)
            mujoco.mj_subtreeVel(mjm, d)
            close(obs[k].cpu().numpy(), theirs(mjm, d))
            close(reward[k].cpu().numpy(), d.sensordata[0])
            touching += d.sensordata[0] > 0
    assert 20 < touching < 60


@pytest.mark.parametrize("which", ["gymnasium", "fresh", "forward"])
def test_the_state_is_the_new_one_in_all_data_as_in_mjdata(which: str) -> None:
    """Gymnasium's tasks read data.qpos beside data.xpos, which is a substep older; so may a task."""

    class Reads(Fresh):
        data = which

        def observe(self, m: Model, world: World) -> list:
            world.qpos[0], world.data.qvel[0] = 7.0, 7.0  # copies
            return [*world.data.qpos, *world.qvel, *world.data.act, *world.data.ctrl, *world.data.xpos[2]]

    n, mjm = 4, model("Euler")
    env = TorchVectorEnv(Reads(), n, dtype=torch.float64)
    env.reset(seed=0)
    state = [x.cpu().numpy().copy() for x in (env.qpos, env.qvel, env.act)]
    ctrl = np.random.default_rng(0).uniform(-1, 1, (n, 1))
    obs, *_ = env.step(torch.tensor(ctrl, device=env.device))
    for k in range(n):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.act[:] = (x[k] for x in state)
        d.ctrl[:] = ctrl[k]
        mujoco.mj_step(mjm, d, 3)
        if which != "gymnasium":
            mujoco.mj_kinematics(mjm, d)
        close(obs[k].cpu().numpy(), np.concatenate([d.qpos, d.qvel, d.act, d.ctrl, d.xpos[2]]))


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
def test_forward_data_are_those_of_mj_forward_after_the_last_substep(integrator: str) -> None:
    """All fields are of the new state, forces, accelerations and their sensors under the step's control, too."""

    class Forward(Fresh):
        data = "forward"

    n, mjm = 24, model(integrator)
    env = TorchVectorEnv(Forward(integrator=integrator), n, dtype=torch.float64)
    obs, _ = env.reset(seed=0)
    for k in range(n):
        close(obs[k].cpu().numpy(), theirs(mjm, forwarded(mjm, [x[k] for x in (env.qpos, env.qvel, env.act)], [0.0])))
    rng = np.random.default_rng(1)
    touching = 0
    for _ in range(20):
        ctrl = rng.uniform(-1, 1, (n, 1))
        obs, reward, *_ = env.step(torch.tensor(ctrl, device=env.device))
        for k in range(n):
            d = forwarded(mjm, [x[k] for x in (env.qpos, env.qvel, env.act)], ctrl[k])
            close(obs[k].cpu().numpy(), theirs(mjm, d))
            close(reward[k].cpu().numpy(), d.sensordata[0])
            touching += d.sensordata[0] > 0
    assert 100 < touching < 400


def forwarded(mjm: mujoco.MjModel, state: list[torch.Tensor], ctrl: Sequence[float]) -> mujoco.MjData:
    """mjData after mj_forward at a state of qpos, qvel and act."""
    d = mujoco.MjData(mjm)
    d.qpos[:], d.qvel[:], d.act[:] = (x.cpu().numpy() for x in state)
    d.ctrl[:] = ctrl
    mujoco.mj_forward(mjm, d)
    mujoco.mj_subtreeVel(mjm, d)
    return d


def test_fresh_data_of_a_reset_are_without_actuation() -> None:
    mjm = model("Euler")
    env = TorchVectorEnv(Fresh(), 8, dtype=torch.float64)
    obs, _ = env.reset(seed=0)
    mjm.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    for k in range(8):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:] = env.qpos[k].cpu().numpy(), env.qvel[k].cpu().numpy()
        mujoco.mj_forward(mjm, d)
        mujoco.mj_subtreeVel(mjm, d)
        close(obs[k].cpu().numpy(), theirs(mjm, d))


def test_data_of_another_kind_are_refused() -> None:
    class Stale(Fresh):
        data = "stale"

    with pytest.raises(ValueError, match="data must be 'gymnasium', 'fresh' or 'forward', not 'stale'"):
        Stale()


@pytest.mark.parametrize("name", ["humanoid", "half_cheetah", "random-4"])
def test_ncon_is_the_number_of_contacts_that_mujoco_finds(name: str) -> None:
    mjm = oracle.model(name)
    m, found = load(mjm), []
    for qpos, qvel, ctrl in oracle.states(name, 12):
        ncon = oracle.forward(mjm, qpos, qvel, ctrl).ncon
        assert derive(m, qpos.tolist(), qvel.tolist(), None, ctrl.tolist()).ncon == ncon
        found.append(ncon)
    assert len({*found}) > 2


def test_a_simulation_gives_ncon_also_within_a_gap() -> None:
    mjm = model("Euler")
    sim = Simulation(mjm, 3, dtype=torch.float64, outputs=("ncon",))
    sim.qpos[:] = torch.tensor([[0.3, 0.0, 0.0], [-0.315, 0.0, 0.0], [0.0, 0.0, 0.0]])
    sim.qpos[1, 2] = 0.9
    sim.forward()
    for k in range(3):
        d = oracle.forward(mjm, sim.qpos[k].cpu().numpy(), np.zeros(3), np.zeros(1))
        assert sim.ncon[k].item() == d.ncon


@dataclass(frozen=True)
class Looking(Fresh):
    """Begins above the floor, touching nothing, after some substeps of falling."""

    substeps: int = 7
    attempts: int = 1000

    def reset(self, m: Model, rng: Random, world: World) -> Start:
        def draw(r: Random) -> list:
            return [r.uniform(-0.3, 0.3), r.uniform(-0.2, 0.2), r.uniform(-3.0, 3.0)]

        drawn = rng.draw_until(draw, lambda qpos: world.at(qpos).data.ncon < 0.5, self.attempts)
        w = world.at(drawn, [0.0, 0.0, 1.0], [0.3]).settled(self.substeps, [0.5])
        return Start(w.qpos, w.qvel, w.act)

    def memory(self, m: Model) -> dict:
        return {"begun": [0.0] * 7}

    def begin(self, m: Model, world: World) -> dict:
        return {"begun": world.qpos + world.qvel + world.act}


def test_a_reset_may_draw_until_a_state_is_good_and_let_it_settle() -> None:
    """What settles is MuJoCo's; of the states drawn none touches; the same worlds draw the same in another batch."""
    mjm, n = model("Euler"), 200
    env = TorchVectorEnv(Looking(), n, dtype=torch.float64)
    env.reset(seed=3)
    begun = env.engine.memory["begun"].cpu().numpy()
    drawn = TorchVectorEnv(Looking(substeps=1), n, dtype=torch.float64)
    drawn.reset(seed=3)
    for k in range(n):
        d, after = mujoco.MjData(mjm), drawn.engine.memory["begun"][k].cpu().numpy()
        d.qvel[:], d.act[:], d.ctrl[:] = [0.0, 0.0, 1.0], 0.3, 0.5
        d.qpos[:] = after[:3] - mjm.opt.timestep * after[3:6]
        mujoco.mj_forward(mjm, d)
        assert d.ncon == 0
        mujoco.mj_step(mjm, d, 7)
        close(begun[k], np.concatenate([d.qpos, d.qvel, d.act]))
    few = TorchVectorEnv(Looking(), 5, dtype=torch.float64)
    few.reset(seed=3)
    np.testing.assert_array_equal(few.engine.memory["begun"].cpu().numpy(), begun[:5])


def test_after_the_last_attempt_the_last_draw_counts() -> None:
    env = TorchVectorEnv(Looking(attempts=1, substeps=1), 200, dtype=torch.float64)
    env.reset(seed=3)
    touching = env.obs[:, 3 * 3 + 9 * 2]
    assert 20 < (touching > 0).sum().item() < 180


@dataclass(frozen=True)
class Together(Fresh):
    """Draws a goal, a part of the model and the state at once: until the capsule touches neither floor nor ball."""

    reset_parameters = ("geom_size",)

    def memory(self, m: Model) -> dict:
        return {"goal": 0.0, "drawn": 0.0}

    def reset(self, m: Model, rng: Random, world: World) -> Start:
        def sizes(radius: float) -> dict:
            return {"geom_size": [*m.geom_size[:2], [radius, 0.0, 0.0]]}

        def draw(r: Random) -> dict:
            radius, goal = r.uniform(0.05, 0.8), r.uniform(1.0, 2.0)
            return {"qpos": [goal - 1.4, 0.0, r.uniform(-1.0, 1.0)], "goal": goal, "radius": radius}

        def ok(x: dict) -> object:
            return world.at(x["qpos"], parameters=sizes(x["radius"])).data.ncon < 0.5

        x = rng.draw_until(draw, ok)
        return Start(x["qpos"], [0.0] * m.nv, memory={"goal": x["goal"]}, parameters=sizes(x["radius"]))

    def begin(self, m: Model, world: World) -> dict:
        return {"drawn": world.qpos[0]}


def test_a_reset_may_draw_memory_and_parameters_together_with_the_state() -> None:
    n = 100
    env = TorchVectorEnv(Together(), n, dtype=torch.float64)
    env.reset(seed=0)
    goal, drawn = (x.cpu().numpy() for x in env.engine.memory.values())
    qpos, radius = env.qpos.cpu().numpy(), env.params["geom_size"][:, 2, 0].cpu().numpy()
    np.testing.assert_allclose(qpos[:, 0], goal - 1.4, atol=1e-15)
    np.testing.assert_array_equal(qpos[:, 0], drawn)
    mjm = model("Euler")
    loaded = float(mjm.geom_size[2, 0])
    assert np.ptp(radius) > 0.1
    would = 0
    for k in range(n):
        for size in (radius[k], 0.8):
            mjm.geom_size[2, 0] = mjm.geom_rbound[2] = size
            found = oracle.forward(mjm, qpos[k], np.zeros(3), np.zeros(1)).ncon
            assert size != radius[k] or found == 0
            would += found > 0
        mjm.geom_size[2, 0] = loaded
    assert would > 20  # the larger ones would have touched: so the size mattered
    before = goal.copy()
    env.set_state(env.qpos + 0.1, env.qvel)  # the goal is that of the episode, what `begin` looks at is the new state
    goal, drawn = (x.cpu().numpy() for x in env.engine.memory.values())
    np.testing.assert_array_equal(goal, before)
    np.testing.assert_array_equal(drawn, env.qpos[:, 0].cpu().numpy())


def test_a_reset_may_set_parameters_of_some_elements_while_others_stay_constants() -> None:
    @dataclass(frozen=True)
    class OfTheBall(Together):
        @property
        def reset_parameters(self) -> dict:
            return {"geom_size": [m.geom_names[2] for m in [load(model("Euler"))]]}

    whole, some = (TorchVectorEnv(task(), 20, dtype=torch.float64) for task in (Together, OfTheBall))
    for env in (whole, some):
        env.reset(seed=0)
        for _ in range(5):
            env.step(torch.zeros(20, 1, dtype=torch.float64))
    assert whole.obs.equal(some.obs) and whole.params["geom_size"].equal(some.params["geom_size"])
    sizes = some.params["geom_size"].clone()
    sizes[3, 2, 0] = 0.3
    some.engine.set_params({"geom_size": sizes})
    sizes[3, 1, 0] += 0.1
    with pytest.raises(ValueError, match=r"geom_size of world 3 makes no sense: only that of .* varies: pass vary"):
        some.engine.set_params({"geom_size": sizes})
    with pytest.raises(KeyError, match="no geom 'bal'"):
        TorchVectorEnv(type("Astray", (Together,), {"reset_parameters": {"geom_size": ["bal"]}})(), 1)


def test_what_a_reset_sets_does_not_depend_on_the_episode_before() -> None:
    """`m` has the loaded model's numbers in `reset`, so that relative changes do not add up; and seeds decide."""

    @dataclass(frozen=True)
    class Grown(Fresh):
        reset_parameters = ("geom_size",)

        def memory(self, m: Model) -> dict:
            return {"radius": 0.0}

        def reset(self, m: Model, rng: Random) -> Start:
            radius = m.geom_size[2][0] * rng.uniform(1.1, 1.2)
            sizes = [*m.geom_size[:2], [radius, 0.0, 0.0]]
            return Start([0.0] * 3, [0.0] * 3, memory={"radius": radius}, parameters={"geom_size": sizes})

    loaded, seen = float(model("Euler").geom_size[2, 0]), []
    env = TorchVectorEnv(Grown(), 20, dtype=torch.float64)
    for seed in (0, None, None, 0):
        env.reset(seed=seed)
        radius = env.params["geom_size"][:, 2, 0].clone()
        assert ((radius >= 1.1 * loaded) & (radius <= 1.2 * loaded)).all()
        assert torch.equal(env.engine.memory["radius"], radius)
        seen.append(radius)
    assert torch.equal(seen[0], seen[3]) and not torch.equal(seen[0], seen[1])
    env.set_state(env.qpos + 0.1, env.qvel)  # what reset gave to the memory is given again, from the same numbers
    assert torch.equal(env.engine.memory["radius"], seen[3]) and torch.equal(env.params["geom_size"][:, 2, 0], seen[3])

    @dataclass(frozen=True)
    class Drawn(Grown):
        def randomize(self, m: Model, rng: Random) -> dict:
            return {"geom_size": [*m.geom_size[:2], [2.0 * x for x in m.geom_size[2]]]}

    env = TorchVectorEnv(Drawn(), 20, dtype=torch.float64)  # what is randomised is drawn before the reset
    for _ in range(2):
        env.reset()
        radius = env.params["geom_size"][:, 2, 0]
        assert ((radius >= 2.2 * loaded) & (radius <= 2.4 * loaded)).all()


@dataclass(frozen=True)
class NamesTheBall(Fresh):
    """Names the ball alone among the geoms whose sizes its reset may set."""

    @property
    def reset_parameters(self) -> dict:
        return {"geom_size": ["geom 2"]}


def test_what_a_reset_sets_is_the_model_s_again_even_where_all_may_vary() -> None:
    """Relative changes did not begin from the model's numbers where the user varies the same parameter, but from those
    of the episode before, and so added up.
    """

    class Grown(NamesTheBall):
        def reset(self, m: Model, rng: Random) -> Start:
            radius = m.geom_size[2][0] * rng.uniform(1.1, 1.2)
            return Start([0.0] * 3, [0.0] * 3, parameters={"geom_size": [*m.geom_size[:2], [radius, 0.0, 0.0]]})

    Whole = type("Whole", (Grown,), {"reset_parameters": ("geom_size",)})
    loaded, n = model("Euler").geom_size, 8
    for task in (Grown(), Whole()):
        env, other = (TorchVectorEnv(task, n, dtype=torch.float64, vary=vary) for vary in (["geom_size"], []))
        sizes = env.params["geom_size"].clone()
        sizes[:, 1] *= 0.9
        env.set_params({"geom_size": sizes})
        for seed in (0, None, None):
            for x in (env, other):
                x.reset(seed=seed)
            found = env.params["geom_size"]
            assert torch.equal(found[:, 2], other.params["geom_size"][:, 2])
            assert (found[:, 2, 0] <= 1.2 * loaded[2, 0]).all()
            kept = 0.9 if isinstance(task.reset_parameters, dict) else 1.0  # all that `reset` sets, or it alone
            np.testing.assert_allclose(found[0, 1].cpu(), kept * loaded[1], rtol=1e-12)


def test_elements_that_reset_parameters_does_not_name_are_not_set_in_silence() -> None:
    class OfTheBall(NamesTheBall):
        def reset(self, m: Model, rng: Random) -> Start:
            sizes = [[rng.uniform(0.1, 0.2), *x[1:]] for x in m.geom_size]
            return Start([0.0] * 3, [0.0] * 3, parameters={"geom_size": sizes})

    with pytest.raises(ValueError, match=r"OfTheBall.reset .*change geom_size of .*, and .* only names"):
        TorchVectorEnv(OfTheBall(), 1)


def test_what_a_reset_may_not_set_is_refused_by_name() -> None:
    class Astray(Together):
        reset_parameters = ()

    with pytest.raises(ValueError, match=r"geom_size.* name .* reset_parameters"):
        TorchVectorEnv(Astray(), 1)

    class Forgetful(Fresh):
        def reset(self, m: Model, rng: Random) -> Start:
            return Start([0.0] * 3, [0.0] * 3, memory={"gaol": 1.0})

    with pytest.raises(ValueError, match="'gaol'"):
        TorchVectorEnv(Forgetful(), 1)


@dataclass(frozen=True)
class Forking(Fresh):
    """Draws in a loop, an iteration from a fork of its own."""

    def reset(self, m: Model, rng: Random) -> tuple[list, list]:
        first, second = rng.fork(), rng.fork()

        def body(i: object, c: list) -> list:
            return [*c[1:], first(i).uniform() + 2.0 * second(i).uniform()]

        return repeat(3, body, [rng.uniform(), 0.0, 0.0]), [rng.normal() for _ in range(3)]


def test_forks_draw_different_numbers_in_every_iteration() -> None:
    """The kernel's numbers are those of plain Python, and no two draws of a world are equal."""
    env = TorchVectorEnv(Forking(), 4, dtype=torch.float64)
    env.reset(seed=11)
    m = load(model("Euler"))
    for k in range(4):
        qpos, qvel = Forking().reset(m, Random(11, k, 0, 0, 0))
        np.testing.assert_allclose(env.qpos[k].cpu().numpy(), qpos, rtol=1e-15)
        np.testing.assert_allclose(env.qvel[k].cpu().numpy(), qvel, rtol=1e-12)
        assert len({*qpos}) == 3


def test_what_cannot_be_forked_is_refused() -> None:
    draws = Random(0, 0).fork()
    with pytest.raises(ValueError, match="cannot be forked"):
        draws(0).fork()
    with pytest.raises(ValueError, match="numbered from 0 to 65535, not 65536"):
        draws(65536)
    with pytest.raises(ValueError, match="more than 1024 words"):
        fork = draws(0)
        for _ in range(1025):
            fork.word()
    with pytest.raises(ValueError, match="attempts must be from 1"):
        Random(0, 0).draw_until(lambda r: r.uniform(), lambda x: x > 0.5, 0)
    drawn = Random(0, 0).draw_until(lambda r: [r.uniform(-1.0, 1.0)], lambda x: logical_and(absolute(x[0]) > 0.9))
    assert abs(drawn[0]) > 0.9


def test_a_world_that_no_environment_made_has_no_other_states() -> None:
    with pytest.raises(ValueError, match="made without physics"):
        World([0.0], [0.0], {}, None, None).at([0.0])
