"""The tasks of dm_control's suite by name, "walker-walk" and so on, and the ids under which Gymnasium knows them."""

from __future__ import annotations

from .acrobot import Acrobot
from .ball_in_cup import BallInCup
from .base import DMControlTask
from .cartpole import Cartpole
from .cheetah import Cheetah
from .dog import Dog, DogFetch
from .finger import FingerSpin, FingerTurn
from .fish import FishSwim, FishUpright
from .hopper import Hopper
from .humanoid import Humanoid, HumanoidCMU
from .lqr import LQR
from .manipulator import Manipulator, ManipulatorInsert
from .pendulum import Pendulum
from .point_mass import PointMass
from .quadruped import Quadruped, QuadrupedFetch
from .reacher import Reacher
from .stacker import Stacker
from .swimmer import Swimmer
from .walker import Walker

TASKS: dict[str, DMControlTask] = {
    "acrobot-swingup": Acrobot(),
    "acrobot-swingup_sparse": Acrobot(sparse=True),
    "ball_in_cup-catch": BallInCup(),
    "cartpole-balance": Cartpole(),
    "cartpole-balance_sparse": Cartpole(sparse=True),
    "cartpole-swingup": Cartpole(swing_up=True),
    "cartpole-swingup_sparse": Cartpole(swing_up=True, sparse=True),
    "cartpole-two_poles": Cartpole(swing_up=True, num_poles=2),
    "cartpole-three_poles": Cartpole(swing_up=True, num_poles=3),
    "cheetah-run": Cheetah(),
    "dog-stand": Dog(speed=0.0),
    "dog-walk": Dog(speed=1.0),
    "dog-trot": Dog(speed=3.0),
    "dog-run": Dog(speed=9.0),
    "dog-fetch": DogFetch(),
    "finger-spin": FingerSpin(),
    "finger-turn_easy": FingerTurn(target_radius=0.07),
    "finger-turn_hard": FingerTurn(target_radius=0.03),
    "fish-upright": FishUpright(),
    "fish-swim": FishSwim(),
    "hopper-stand": Hopper(),
    "hopper-hop": Hopper(hopping=True),
    "humanoid-stand": Humanoid(speed=0.0),
    "humanoid-walk": Humanoid(speed=1.0),
    "humanoid-run": Humanoid(speed=10.0),
    "humanoid-run_pure_state": Humanoid(speed=10.0, pure_state=True),
    "humanoid_CMU-stand": HumanoidCMU(speed=0.0),
    "humanoid_CMU-walk": HumanoidCMU(speed=1.0),
    "humanoid_CMU-run": HumanoidCMU(speed=10.0),
    "lqr-lqr_2_1": LQR(),
    "lqr-lqr_6_2": LQR(num_bodies=6, num_actuators=2),
    "manipulator-bring_ball": Manipulator(),
    "manipulator-bring_peg": Manipulator(use_peg=True),
    "manipulator-insert_ball": ManipulatorInsert(),
    "manipulator-insert_peg": ManipulatorInsert(use_peg=True),
    "pendulum-swingup": Pendulum(),
    "point_mass-easy": PointMass(),
    "point_mass-hard": PointMass(randomize_gains=True),
    "quadruped-walk": Quadruped(speed=0.5),
    "quadruped-run": Quadruped(speed=5.0),
    "quadruped-fetch": QuadrupedFetch(),
    "reacher-easy": Reacher(target_size=0.05),
    "reacher-hard": Reacher(target_size=0.015),
    "stacker-stack_2": Stacker(num_boxes=2),
    "stacker-stack_4": Stacker(num_boxes=4),
    "swimmer-swimmer6": Swimmer(num_links=6),
    "swimmer-swimmer15": Swimmer(num_links=15),
    "walker-stand": Walker(speed=0.0),
    "walker-walk": Walker(speed=1.0),
    "walker-run": Walker(speed=8.0),
}
