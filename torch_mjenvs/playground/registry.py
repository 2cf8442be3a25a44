"""The joystick tasks of MuJoCo Playground by name, from which come Gymnasium's ids, such as TorchGo1Joystick-v0."""

from __future__ import annotations

from .berkeley_humanoid import BerkeleyHumanoidJoystick
from .g1 import G1Joystick
from .go1 import Go1Joystick
from .joystick import Joystick
from .spot import SpotJoystick

TASKS: dict[str, type[Joystick]] = {
    task.__name__: task for task in (Go1Joystick, SpotJoystick, G1Joystick, BerkeleyHumanoidJoystick)
}
