"""MuJoCo's forward dynamics over scalars: `Simulation` compiled, `step` and `forward` on floats or torch tensors.

    m = load("hopper.xml")
    new = step(m, State(qpos, qvel, qacc_warmstart), ctrl)      # lists of nq, nv, nv and nu tensors of shape (N,)

computes N worlds with torch, differentiable and on any device: the reference for the kernels of `Simulation`.

    d = Data(m, qpos=qpos, qvel=qvel, ctrl=ctrl, qacc_warmstart=qacc_warmstart)

has mjData's fields at a state (`d.xpos`, `d.qacc`, ...), each computed when it is first asked for.
"""

from .columns import vary
from .loading.load import load
from .model.data import Data
from .model.model import Model, UnsupportedModel
from .model.state import State
from .pipeline import forward
from .simulation import Simulation
from .step import step

__all__ = ["Data", "Model", "Simulation", "State", "UnsupportedModel", "forward", "load", "step", "vary"]
