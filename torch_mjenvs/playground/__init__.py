"""Legged robots of MuJoCo Playground, which follow commands by its rules. Their models are its own, as installed."""

from .berkeley_humanoid import BerkeleyHumanoidJoystick
from .g1 import G1Joystick
from .go1 import Go1Joystick
from .registry import TASKS
from .spot import SpotJoystick

__all__ = ["TASKS", "BerkeleyHumanoidJoystick", "G1Joystick", "Go1Joystick", "SpotJoystick"]
