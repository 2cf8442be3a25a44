"""Masses, damping, armature and dry friction of an arm, found from a recorded motion by Gauss-Newton.

    python examples/identify.py            # and a picture of it in identify.png
    python examples/identify.py --sysid    # beside MuJoCo's own way (pip install "mujoco[sysid]")

Each recorded step is a world, which repeats the step from its recorded state with the current estimate of the
parameters. The residual is the error of the next state. Its derivative by the parameters is P of
`Simulation.linearize`, exact, for all steps at once. The unknowns are logarithms of the parameters, so all stay
positive.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import time
from collections.abc import Callable

import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation

ARM = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast"/>
  <default><joint type="hinge" axis="0 1 0" damping="0.1" armature="0.01" frictionloss="0.05"/></default>
  <worldbody>
    <body>
      <joint name="shoulder"/><geom type="capsule" size="0.03" fromto="0 0 0 0.4 0 0" mass="1"/>
      <body pos="0.4 0 0">
        <joint name="elbow"/><geom type="capsule" size="0.025" fromto="0 0 0 0.3 0 0" mass="0.6"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" gear="8"/><motor joint="elbow" gear="3"/></actuator>
</mujoco>
"""
SOUGHT = {  # by how much the recorded arm differs from the model
    "body_mass": (1.0, 1.3, 0.7), "dof_damping": (2.0, 0.5), "dof_armature": (0.6, 1.5), "dof_frictionloss": (1.6, 0.4),
}  # fmt: skip


def recorded(steps: int, noise: float = 0.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return qpos and qvel (steps + 1, nv) and ctrl (steps, nu) of MuJoCo's arm under smooth random torques."""
    m, rng = mujoco.MjModel.from_xml_string(ARM), np.random.default_rng(seed)
    for name, factors in SOUGHT.items():
        getattr(m, name)[:] *= factors
    mujoco.mj_setConst(m, mujoco.MjData(m))
    d, ctrl = mujoco.MjData(m), np.zeros(m.nu)
    states, ctrls = [[d.qpos.copy(), d.qvel.copy()]], []
    for _ in range(steps):
        ctrl = np.clip(0.97 * ctrl + 0.2 * rng.normal(size=m.nu), -1, 1)
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d)
        states.append([d.qpos.copy(), d.qvel + noise * rng.normal(size=m.nv)])
        ctrls.append(ctrl)
    qpos, qvel = torch.tensor(np.array(states)).unbind(1)
    return qpos, qvel, torch.tensor(np.array(ctrls))


def identify(
    qpos: torch.Tensor, qvel: torch.Tensor, ctrl: torch.Tensor, iterations: int = 12
) -> tuple[dict[str, torch.Tensor], list[float], torch.Tensor]:
    """Return the parameters found, by name; the root mean square of the residuals in each iteration (rad/s); and all
    parameters in each iteration, (iterations, np).
    """
    sim = Simulation(mujoco.MjModel.from_xml_string(ARM), len(ctrl), dtype=torch.float64, vary=tuple(SOUGHT))
    names, nv = list(sim.params), sim.model.nv
    start = torch.cat([sim.params[name][0] for name in names])
    there = start > 0  # the world has no mass
    sizes, factors, misses = [sim.params[name].shape[1] for name in names], torch.zeros_like(start), []
    tried = []
    for _ in range(iterations):
        now = start * factors.exp()
        tried.append(now)
        sim.set_params(dict(zip(names, now.split(sizes), strict=True)))
        residual = (sim.transition(qpos[:-1], qvel[:-1], ctrl).qvel - qvel[1:]).flatten()
        misses.append(float(residual.square().mean().sqrt()))
        P = sim.linearize(qpos[:-1], qvel[:-1], ctrl, params=names).P[:, nv:]  # of velocities, (steps, nv, np)
        J = (P * now).flatten(0, 1)[:, there]
        factors[there] -= torch.linalg.lstsq(J, residual[:, None], driver="gelsd").solution[:, 0].clamp(-1, 1)
    return dict(zip(names, (start * factors.exp()).split(sizes), strict=True)), misses, torch.stack(tried)


def by_sysid(qpos: torch.Tensor, qvel: torch.Tensor, ctrl: torch.Tensor, stretch: int = 100) -> tuple[np.ndarray, int]:
    """Return the parameters that `mujoco.sysid` finds, those of SOUGHT that are not 0, and the rollouts that it took.

    It compares rollouts with the record, for stretches of so many steps from states that were recorded, and takes
    differences of them. Models are copied and changed in place here, which is faster than compiling them anew.
    """
    from mujoco import sysid

    spec, params = mujoco.MjSpec.from_string(ARM), sysid.ParameterDict()
    model = spec.compile()
    for name in SOUGHT:
        x = getattr(model, name)
        params.add(sysid.Parameter(name, x[x > 0], 0.1 * x[x > 0], 10 * x[x > 0]))

    def built(params: sysid.ParameterDict, _: mujoco.MjSpec) -> mujoco.MjModel:
        m = copy.copy(model)
        for name in SOUGHT:
            x = getattr(m, name)
            x[x > 0] = params[name].value
        mujoco.mj_setConst(m, mujoco.MjData(m))
        return m

    def recorded(k: int) -> sysid.ModelSequences:
        t, last = model.opt.timestep * np.arange(stretch + 1), ctrl[k + stretch - 1 : k + stretch]
        control = sysid.TimeSeries(t, torch.cat([ctrl[k : k + stretch], last]).numpy())  # the last one is not used
        start, nothing = np.concatenate([[0.0], qpos[k], qvel[k]]), sysid.TimeSeries(t, np.zeros((stretch + 1, 0)))
        return sysid.ModelSequences("arm", spec, f"from {k}", start, control, nothing)

    starts, rollouts = range(0, len(ctrl) - stretch + 1, stretch), 0
    stretches = {k: recorded(k) for k in starts}

    def residual(x: np.ndarray, params: sysid.ParameterDict) -> tuple[list[np.ndarray], None, None]:
        nonlocal rollouts
        rollouts, found = rollouts + x.size // len(x) * len(starts), []  # columns of x are points
        for k in starts:
            speeds = qvel[k + 1 : k + stretch + 1].numpy()

            def missed(_: object, made: object, same: object, *__: object, state: np.ndarray, speeds=speeds) -> tuple:
                return state[:, 1 + model.nq :] - speeds, same, same

            of = sysid.build_residual_fn(
                models_sequences=[stretches[k]], build_model=built, modify_residual=missed, resample_true=False,
                n_threads=1,
            )  # fmt: skip
            found += of(x, params)[0]
        return found, None, None

    with contextlib.redirect_stdout(io.StringIO()):
        found, _ = sysid.optimize(params, residual, verbose=False)
    return found.as_vector(), rollouts


def draw(errors: dict[str, np.ndarray], path: str) -> None:
    """Draw the relative errors (iterations, parameters) of each run, by its name."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(errors), figsize=(8, 3.2), sharey=True, squeeze=False)
    names = [f"{name}[{k}]" for name, x in SOUGHT.items() for k in range(len(x)) if (name, k) != ("body_mass", 0)]
    for ax, (title, x) in zip(axes[0], errors.items(), strict=True):
        ax.semilogy(np.maximum(x, 1e-16), marker=".", label=names)
        ax.set(title=title, xlabel="iteration")
    axes[0][0].set_ylabel("relative error")
    axes[0][-1].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def timed(what: Callable[..., tuple], *given: object) -> tuple[tuple, float]:
    """Return what a function gives, and the seconds of a core that it took."""
    begun = time.process_time()
    found = what(*given)
    return found, time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sysid", action="store_true", help="by mujoco.sysid, too")
    given = parser.parse_args()
    model, drawn = mujoco.MjModel.from_xml_string(ARM), {}
    torch.set_num_threads(1)
    usual = np.concatenate([getattr(model, name) for name in SOUGHT])
    true = (usual * np.concatenate([*SOUGHT.values()]))[usual > 0]
    for noise in (0.0, 1e-3):
        data = recorded(2000, noise)
        identify(*data, iterations=1)  # builds the kernels
        (found, misses, tried), seconds = timed(identify, *data)
        print(f"noise {noise} rad/s: {seconds:.2f} s of a core; misses {misses[0]:.1e} -> {misses[-1]:.1e} rad/s")
        in_order = np.concatenate([found[name].numpy() for name in SOUGHT])[usual > 0]
        print("  relative errors", ", ".join(f"{x:+.1e}" for x in in_order / true - 1))
        if given.sysid:
            for _ in range(3):  # in turns, since a machine's speed changes over time
                (theirs, rollouts), longer = timed(by_sysid, *data)
                _, seconds = timed(identify, *data)
                print(
                    f"  mujoco.sysid: {longer:.2f} s, {rollouts} rollouts, {longer / seconds:.0f} times {seconds:.3f} s"
                )
            print("  relative errors", ", ".join(f"{x:+.1e}" for x in theirs / true - 1))
        by_name = dict(zip(found, tried.split([len(x) for x in found.values()], dim=1), strict=True))
        history = np.concatenate([by_name[name].numpy() for name in SOUGHT], axis=1)[:, usual > 0]
        drawn[f"speeds with noise of {noise:g} rad/s"] = np.abs(history / true - 1)
    draw(drawn, "identify.png")


if __name__ == "__main__":
    main()
