"""TorchRL's interface to the engine: many worlds, TensorDicts in and out.

N worlds, A numbers in an action, D numbers in an observation. Needs TorchRL (the extra `torchrl`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Binary, Bounded, Composite, Unbounded
from torchrl.envs import EnvBase

from ..calls import exclusive, lasting
from ..checks import as_mask, as_seed, as_tensor, check_field
from .camera import DEFAULT_SIZE, Camera, as_worlds
from .engine import Engine, copied
from .entries import BAD_STATE, chosen_info
from .observation import as_form
from .own_goals import OwnGoals
from .own_parameters import OwnParameters
from .parts import Parts, mapped
from .pixel_options import as_options as as_pixels
from .pixel_options import as_repeats, translated
from .pixels import pixels_of
from .spaces import action_space
from .tasks.base import Task
from .tasks.registry import TASKS, make_task
from .video import tile_images

# What `get_state` returns, as far as an environment has it: with it, an episode continues exactly.
STATE = (
    "qpos", "qvel", "qacc_warmstart", "act", "ctrl", "episode_sums", "memory", "history", "elapsed_steps", "obs",
    "info", "params", "derived", "kept",
)  # fmt: skip
BEGUN = ("elapsed_steps", "done", "ctrl", "episode_sums")  # set to 0 if a state does not have them
TAKEN = frozenset(("action", "reward", "done", "terminated", "truncated", "next", "_reset"))  # keys of TorchRL's own


class TorchRLEnv(EnvBase, OwnParameters, OwnGoals):
    """`num_envs` worlds of a task as a TorchRL environment of batch size [num_envs].

        env = TorchRLEnv("Hopper", num_envs=4096)  # or HopperEnv(num_envs=4096)
        data = env.rollout(100, policy, break_when_any_done=False)  # a TensorDict of batch size [4096, 100]

    Arguments:
        task: a `Task` of your own, a class of tasks, or the name of one of ours: "HalfCheetah", "Hopper", ...
        num_envs: N.
        device: where the worlds live; None picks the GPU if there is one that can be used, else the CPU.
        dtype: torch.float32 or torch.float64, of state, observation, action and reward.
        observation: for a task that names its observations. "dict" gives an entry for each name, as TorchRL's GymEnv
            does: td["gyro"] (N, 3), and (N, 1) for a number; td["policy", "gyro"] where there are groups. "flat" gives
            all of them as td["observation"] (N, D), or a group as td["policy"].
        max_episode_steps: an episode is truncated after this many steps; None for the task's own number, -1 for never.
        action_repeat: the number of the task's steps that one step makes with the same action, as DMControlEnv's
            `frame_skip`. Rewards are summed; a world whose episode has ended is not stepped further. TorchRL's
            FrameSkipTransform does not look at ends.
        native_autoreset: True has the kernel reset worlds within the step that ends their episode, without waiting for
            the device or branching, also under transforms: `compile(fullgraph=True)` of a `TransformedEnv` needs this.
            But TorchRL then writes NaN in place of an episode's last observation and of what transforms add to it
            (`episode_reward`), so that off-policy losses are NaN. False keeps them exact.
        info_keys: names of the task's info ("x_velocity", "reward_forward", ...), or "bad_state", to be added as
            observations, (N, 1) or (N, width). Entries that a reset does not have are 0 after it. With `action_repeat`
            they are not summed, but those of the last of the task's steps. If a task names them, the sums of its
            reward's terms are "episode_reward/NAME", its metrics "episode_mean/NAME", and its reasons of an end
            "episode_end/NAME".
        first_world: the number of this environment's first world in the random streams: with one seed, world i here is
            world first_world + i of a larger batch.
        randomize: parameters of the model to be drawn anew for every episode, by MuJoCo's names. (low, high) multiplies
            each number by its own factor; `Scale`, `Shift` and `Uniform` have more options. `params` has their values.
        vary: names of further parameters that differ from world to world and are set by `set_params`, not drawn.
        pixels: dict(width=84, height=84, camera=0, outputs="rgb", stack=3) gives pictures as td["pixels"] (N, 84, 84,
            9) uint8, drawn without OpenGL, in place of the task's own observations; `state=True` gives both, and
            `views=["top", "wrist"]` td["pixels", "top"] and so on, for several cameras. docs/pixels.md explains
            `channels_first`, `without`, `samples` and `action_repeat`.
        from_pixels, pixels_only: as TorchRL's own environments take them, for `pixels=` of this `width`, `height` and
            camera; `pixels_only=False` is its `state=True`.
        render_worlds: the worlds that `render()` draws, as one picture; None for a picture of every world.
        width, height, camera_id, camera_name, max_geom, visual_options, default_camera_config: as Gymnasium's MujocoEnv
            takes them.
        task_arguments: the task's own; of Gymnasium's tasks, the arguments that they have in v5.

    Observations are "observation" (N, D), or the task's names, and what `info_keys` names. A world whose action or
    state is not finite, or beyond 1e10, is terminated with reward 0 and its last good observation; "bad_state" marks
    it. What `step` and `reset` return is yours: no later call writes into it.

    `set_seed(seed)` gives world i the random stream (seed, first_world + i), as `TorchVectorEnv.reset(seed=seed)`.
    Before that, streams come from torch's global generator.

    `reset(td, set_state=True)` sets the state of all worlds, or of those in the mask td["_reset"], to that in td: qpos
    (N, nq) and qvel (N, nv), act (N, na) if actuators have activations, or everything that `get_state` returned.
    Other entries of td are taken as they are, "obs" included: for a state that you change, pass only what you mean.
    What this environment does not have, such as "params" where no parameter varies, is refused.
    `reset(state=...)` also works through transforms.

    Raises TypeError for an unknown argument, ValueError for a bad value, OSError for a missing xml_file,
    `UnsupportedModel` for a model with a feature that is not supported.
    """

    _supports_set_state = True
    _has_frame_skip = True  # else TorchRL would repeat every action
    # Ours are complete; TorchRL's completion would keep the environment alive until a garbage collection.
    auto_complete_done_specs = False

    @lasting
    def __init__(
        self,
        task: Task | type[Task] | str,
        num_envs: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str = torch.float32,
        observation: str = "dict",
        max_episode_steps: int | None = None,
        action_repeat: int = 1,
        native_autoreset: bool = False,
        info_keys: Sequence[str] = (),
        first_world: int = 0,
        randomize: Mapping[str, Any] | None = None,
        vary: Sequence[str] = (),
        pixels: Mapping[str, Any] | None = None,
        from_pixels: bool = False,
        pixels_only: bool = True,
        render_worlds: Sequence[int] | None = None,
        width: int = DEFAULT_SIZE,
        height: int = DEFAULT_SIZE,
        camera_id: int | None = None,
        camera_name: str | None = None,
        max_geom: int = 1000,
        visual_options: dict[int, bool] | None = None,
        default_camera_config: dict[str, Any] | None = None,
        **task_arguments: Any,
    ):
        made, form = make_task(task, task_arguments, RESERVED), as_form(observation)
        for name, flag in (("from_pixels", from_pixels), ("pixels_only", pixels_only)):
            check_field(name, "bool", flag)
        camera = camera_id if camera_name is None else camera_name
        asked = translated(pixels, from_pixels, width=width, height=height, camera=camera, state=not pixels_only)
        pictures = as_pixels(asked)
        repeats = as_repeats(action_repeat, pictures)
        check_field("native_autoreset", "bool", native_autoreset)
        engine = Engine(
            made,
            num_envs,
            device=device,
            dtype=dtype,
            autoreset_mode=AutoresetMode.SAME_STEP if native_autoreset else AutoresetMode.DISABLED,
            max_episode_steps=made.max_episode_steps if max_episode_steps is None else max_episode_steps,
            first_world=first_world,
            randomize=randomize,
            vary=vary,
        )
        num_envs = engine.num_envs
        super().__init__(device=engine.device, batch_size=[num_envs])
        self.engine, self.num_envs, self.dtype, self._lock = engine, num_envs, engine.dtype, engine._lock
        self._torchrl_native_autoreset = native_autoreset  # where TorchRL looks
        self._action_shape, self._repeats = (num_envs, engine.layout.action), repeats
        self._parts = _keyed(engine.layout.observation.parts(form))
        self._pixels = pixels_of(engine, pictures)
        self._no_world = torch.zeros(num_envs, dtype=torch.bool, device=engine.device)
        self._begun = False  # whether the worlds are known to have begun an episode
        self._info_keys = chosen_info(info_keys, {*engine.layout.info, BAD_STATE})
        self._refuse_taken()
        self._one_picture, self._worlds = render_worlds is not None, as_worlds(render_worlds, num_envs)
        self._camera: Camera | None = None  # made when a picture is first asked for
        self._camera_options: dict[str, Any] = {
            "width": width, "height": height, "camera_id": camera_id, "camera_name": camera_name, "max_geom": max_geom,
            "visual_options": visual_options, "default_camera_config": default_camera_config,
        }  # fmt: skip
        Camera(engine, None, (), **self._camera_options)  # refuses what it could not draw
        self._make_specs()

    def _refuse_taken(self) -> None:
        names = {*self._parts.shapes}
        if self._pixels and "pixels" in names | {*self._info_keys}:
            raise ValueError("the task has a name 'pixels' of its own: rename it")
        for taken, what in ((TAKEN, "TorchRL's own"), ({*self._info_keys}, "among info_keys")):
            if both := sorted(names & taken):
                raise ValueError(f"the task's observations have the names {both}, which are {what}: rename them")
        if both := sorted(TAKEN & {*self._info_keys}):
            raise ValueError(f"info_keys names {both}, which are TorchRL's own: rename them in the task's info")

    def extra_repr(self) -> str:
        """Return the text that `repr` shows within the brackets."""
        return f"num_envs={self.num_envs}, batch_size={list(self.batch_size)}, device={self.device}, dtype={self.dtype}"

    def _make_specs(self) -> None:
        n, device = self.num_envs, self.device
        space = action_space(self.engine)
        low, high = (torch.from_numpy(x).to(device, self.dtype) for x in (space.low, space.high))
        infinite = np.isinf([space.low, space.high])
        if infinite.any() and not infinite.all():
            raise ValueError(
                f"TorchRL takes actions that are all bounded or all unbounded, not {space}: give the task an "
                "`action_space`, or every actuator ctrlrange and ctrllimited='true' in the model"
            )
        if infinite.any():
            self.action_spec = Unbounded(self._action_shape, dtype=self.dtype, device=device)
        else:
            self.action_spec = Bounded(low, high, dtype=self.dtype, device=device).expand(self._action_shape)

        def spec(x: torch.Tensor | Mapping[str, Any]) -> Any:
            if isinstance(x, Mapping):
                return Composite({name: spec(y) for name, y in x.items()}, shape=(n,), device=device)
            if x.dtype == torch.uint8:
                return Bounded(0, 255, shape=x.shape, dtype=x.dtype, device=device)
            kind = Binary if x.dtype == torch.bool else Unbounded
            return kind(shape=x.shape, dtype=x.dtype, device=device)

        self.observation_spec = spec(self._seen(self.engine.obs))
        self.reward_spec = Unbounded(shape=(n, 1), dtype=self.dtype, device=device)
        flags = ("done", "terminated", "truncated")
        self.full_done_spec = Composite(
            {name: Binary(shape=(n, 1), dtype=torch.bool, device=device) for name in flags}, shape=(n,), device=device
        )

    @exclusive
    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        engine = self.engine
        if not self._begun and not torch.compiler.is_compiling():
            if (engine.episode < 1).any():
                raise ResetNeeded("call reset() before the first step")
            self._begun = True  # so that later steps do not wait for the device
        chosen = self._chosen(tensordict)
        left_out = None if chosen is None else ~chosen
        engine.action.copy_(as_tensor("action", tensordict["action"], self._action_shape, self.device))
        if chosen is None:
            engine.step()
        else:
            engine.step_some(chosen)
        if self._repeats > 1:
            engine.repeat(self._repeats - 1, left_out)
        if self._pixels:  # native_autoreset shows the beginning of the next episode
            begun = engine.terminated | engine.truncated if self._torchrl_native_autoreset else self._no_world
            self._pixels.draw(begun, left_out=left_out)
        terminated, truncated = copied(engine.terminated)[:, None], copied(engine.truncated)[:, None]
        if chosen is not None:  # the flags of a world that was reset since are those of its last step
            stepped_or_ended = (chosen | engine.done)[:, None]
            terminated, truncated = terminated & stepped_or_ended, truncated & stepped_or_ended
        return self._tensordict(
            reward=copied(engine.reward)[:, None],
            done=terminated | truncated,
            terminated=terminated,
            truncated=truncated,
        )

    def _chosen(self, tensordict: TensorDictBase) -> torch.Tensor | None:
        """Return the (N,) mask of TorchRL's partial steps, as `MultiAction` and `ConditionalSkip` make them, or None.

        Raises ValueError for some of the worlds under `native_autoreset`, where their next episodes have begun.
        """
        mask = self._mask("_step", tensordict)
        if mask is None:
            return None
        if self._torchrl_native_autoreset and not mask.all():
            raise ValueError(
                'with native_autoreset=True all worlds are stepped at once, and this step is of some only ("_step"), '
                "as those of TorchRL's MultiAction or ConditionalSkip: make the environment with native_autoreset=False"
            )
        return mask

    def _mask(self, name: str, tensordict: TensorDictBase | None) -> torch.Tensor | None:
        """Return the (N,) bool mask of this name, (N,) or (N, 1) there, or None. Raises TypeError or ValueError."""
        mask = None if tensordict is None else tensordict.get(name, None)
        return None if mask is None else as_mask(name, mask.to(self.device).flatten(), self.num_envs, self.device)

    @exclusive
    def _reset(
        self,
        tensordict: TensorDictBase | None,
        set_state: bool = False,
        state: TensorDictBase | Mapping[str, Any] | None = None,
        **others: Any,
    ) -> TensorDictBase:
        if others:
            raise TypeError(f"reset() has no {[*others]}: it takes set_state and state, and set_seed() takes a seed")
        mask = self._mask("_reset", tensordict)
        if set_state or state is not None:
            self._put(tensordict if state is None else state, mask)
        else:
            self.engine.reset(mask)
            if mask is None and not torch.compiler.is_compiling():
                self._begun = True
        return self._after_reset(mask)

    def _put(self, state: TensorDictBase | Mapping[str, Any] | None, mask: torch.Tensor | None) -> None:
        if state is None or "qpos" not in state or "qvel" not in state:
            raise ValueError(
                "a state to be set has at least the entries qpos and qvel; through a TransformedEnv, which hides them "
                "from this environment, set it with reset(state=...)"
            )
        engine = self.engine
        known = [name for name in STATE if name in engine.buffers]
        lost = [name for name in STATE if name in state and name not in known and name not in self.observation_spec]
        if lost:
            raise ValueError(
                f"the state has {lost}, and this environment has none: it is of an environment made with other "
                "arguments; leave out what is not to be set"
            )
        held = state if isinstance(state, TensorDictBase) else TensorDict({**state})
        held = held.select(*known, strict=False).to(self.device)
        if "params" in held and "derived" not in held:
            raise ValueError("a state with params has derived, too, as get_state gives both: or call set_params")
        for name, x in held.items():
            as_tensor(name, x, tuple(engine.view(name).shape), self.device)
        first = engine.episode < 1 if mask is None else (engine.episode < 1) & mask
        engine.episode.masked_fill_(first, 1)  # a state may be where a world's first episode begins
        engine.set_state(held["qpos"], held["qvel"], mask, held.get("act", None))
        new = engine.state_dict()
        begun = {name: torch.zeros_like(new[name]) for name in BEGUN if name in new}
        for name, x in (begun | held.to_dict()).items():
            old = new[name]
            # not by an index: counting the worlds that a mask chooses would wait for the device
            old.copy_(x if mask is None else torch.where(mask.view(-1, *[1] * (old.ndim - 1)), x, old))
        engine.load_state_dict(new)

    def _after_reset(self, mask: torch.Tensor | None) -> TensorDict:
        """Return the entries of all worlds after a reset; worlds that it left out may have ended."""
        engine = self.engine
        if self._pixels:
            self._pixels.draw(mask, others=False)
        done = copied(engine.done)[:, None]
        out = self._tensordict(
            done=done, terminated=engine.terminated[:, None] & done, truncated=engine.truncated[:, None] & done
        )
        if BAD_STATE in self._info_keys:
            out[BAD_STATE] &= done
        return out

    def _seen(self, obs: torch.Tensor) -> dict[str, Any]:
        """Return the entries of these observations (N, D), and those of info, in the engine's own memory."""
        seen: dict[str, Any] = {} if self._pixels and not self._pixels.options.state else self._parts.split(obs)
        if self._pixels:
            seen["pixels"] = self._pixels.seen()
        if self._info_keys:
            info = self.engine.info | {BAD_STATE: self.engine.bad_state}
            seen |= {name: info[name].view(self.num_envs, -1) for name in self._info_keys}
        return seen

    def _tensordict(self, **entries: torch.Tensor) -> TensorDict:
        """Return the observation and these entries. None is in the engine's memory, which the next step overwrites."""
        seen = self._seen(copied(self.engine.obs))
        seen |= {name: copied(seen[name]) for name in self._info_keys}
        return TensorDict(seen | entries, self.batch_size, device=self.device)

    @exclusive
    def _step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Step, and reset the worlds that ended, like TorchRL's own method, but without a branch or a wait for the GPU.

        A TransformedEnv does not call this, as its transforms want to see the reset.
        """
        if self._torchrl_native_autoreset:
            both: tuple[TensorDictBase, TensorDictBase] = super()._step_and_maybe_reset(tensordict)
            return both
        if tensordict.device != self.device:
            tensordict = tensordict.to(self.device)
        tensordict = self.step(tensordict)
        following, ended = self._step_mdp(tensordict), self.engine.done
        if torch.compiler.is_compiling() or ended.is_cuda or ended.any():
            mask = ended.clone()
            self.engine.reset(mask)
            following.update(self._after_reset(mask))
        return tensordict, following

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self.engine.seed(as_seed(seed))

    @exclusive
    def get_state(self) -> TensorDict:
        """Return a copy of the state of all episodes, from which `reset(state, set_state=True)` continues exactly.

        It is (N, ...) by the engine's names: qpos, qvel, elapsed_steps, obs and, if there are any, act, memory, params
        and others. It does not contain the random streams that later episodes draw from, which `engine.state_dict()`
        does, nor earlier pictures: a stack of these is filled with the state's own.
        """
        state = self.engine.state_dict()
        return TensorDict({name: state[name] for name in STATE if name in state}, self.batch_size, device=self.device)

    @exclusive
    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """Draw the worlds: (N, H, W, 3) bytes, or with `render_worlds` one picture of these worlds side by side.

        TorchRL's `PixelRenderTransform` calls this; without `render_worlds` it makes an observation of every world's
        picture.
        """
        if mode != "rgb_array":
            raise ValueError(f"render knows the mode 'rgb_array', not {mode!r}")
        if self._camera is None:
            self._camera = Camera(self.engine, mode, [mode], **self._camera_options)
        frames = [self._camera.frame(world) for world in self._worlds]
        return tile_images(frames) if self._one_picture else np.stack(frames)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environment and what draws its worlds."""
        if self._camera is not None:
            self._camera.close()
        super().close(raise_if_closed=raise_if_closed)

    def to(self, device: torch.device | str) -> TorchRLEnv:
        """Return the environment itself; worlds stay on their device. Raises ValueError for another device, TypeError
        for a dtype.
        """
        if isinstance(device, torch.dtype):
            raise TypeError(f"worlds are of {self.dtype}: for {device}, make another environment with dtype={device}")
        if torch.empty(0, device=device).device != self.device:
            raise ValueError(f"the worlds live on {self.device}: for {device}, make another environment")
        return self


def _keyed(parts: Parts) -> Parts:
    """Return the parts under TorchRL's keys: "observation" for one without a name, and (1,) for single numbers."""
    shapes = parts.shapes if parts.named else {"observation": parts.shapes}
    return Parts(mapped(lambda shape: shape or (1,), shapes))


# What a task's fields may not be named: the arguments above, and those that TorchRL takes for itself.
RESERVED = frozenset(inspect.signature(TorchRLEnv.__init__).parameters) | frozenset(
    {"spec_locked", "auto_reset", "auto_reset_replace", "policy", "compile"}
)


class _NamedEnv(TorchRLEnv):
    """A `TorchRLEnv` of the task that the class's name says, with the same further arguments."""

    kind: ClassVar[type[Task]]

    def __init__(self, num_envs: int = 1, **arguments: Any):
        super().__init__(self.kind, num_envs, **arguments)


def _named(name: str, kind: type[Task]) -> type[_NamedEnv]:
    doc = f"{name}-v5, `num_envs` times. Arguments: see `TorchRLEnv` and `{name}`."
    return type(f"{name}Env", (_NamedEnv,), {"kind": kind, "__doc__": doc, "__module__": __name__})


if TYPE_CHECKING:

    class AntEnv(_NamedEnv): ...

    class HalfCheetahEnv(_NamedEnv): ...

    class HopperEnv(_NamedEnv): ...

    class HumanoidEnv(_NamedEnv): ...

    class HumanoidStandupEnv(_NamedEnv): ...

    class InvertedDoublePendulumEnv(_NamedEnv): ...

    class InvertedPendulumEnv(_NamedEnv): ...

    class PusherEnv(_NamedEnv): ...

    class ReacherEnv(_NamedEnv): ...

    class SwimmerEnv(_NamedEnv): ...

    class Walker2dEnv(_NamedEnv): ...

else:
    globals().update({f"{name}Env": _named(name, kind) for name, kind in TASKS.items()})
