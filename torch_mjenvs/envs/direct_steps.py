"""Steps that write their results directly into a rollout, so that nothing has to be copied after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from gymnasium.vector import AutoresetMode

from .engine import Engine

NOT_MADE = 2  # in place of True and False


class DirectSteps:
    """T steps of an engine's worlds. Each step but the last has its own buffers for inputs and outputs.

    `rows` holds them by name, (T, N, ...): "obs", "action" and the outputs asked for. The last step works on the
    engine's own buffers, where users find its results as after any step, and its results are copied. `shared` holds
    those of `rows` that are contiguous. If the number of worlds does not fill the allocated memory, or entries of info
    lie apart, `finish` copies them, once in T steps.

    action_dtype: the dtype in which actions are recorded. If it is not the engine's, `takes_actions` is False: the
    engine is then given other numbers than the recorded ones. told: names of entries of info to record.
    """

    def __init__(
        self, engine: Engine, steps: int, outputs: Sequence[str], action_dtype: torch.dtype, told: Sequence[str] = ()
    ):
        self._engine, self._last = engine, steps - 1
        info = "final_info" if engine.mode is AutoresetMode.SAME_STEP else "info"
        self._given = [*outputs, *([info] if told else [])]
        self._held = {
            name: torch.zeros(steps, *x.shape, dtype=x.dtype, device=x.device)
            for name, x in engine.buffers.items()
            if name in {"obs", "action", *self._given}
        }
        self.rows = {name: engine.worlds_of(name, self._held[name]) for name in ("obs", "action", *outputs)}
        self.takes_actions = action_dtype == engine.dtype
        kept = {name: x for name, x in self.rows.items() if name != "action" or self.takes_actions}
        self.shared = {name: x for name, x in kept.items() if x.is_contiguous()}
        self._apart = {name: x for name, x in kept.items() if name not in self.shared}
        self.apart = bool(self._apart)  # whether rows are not contiguous, since the worlds fill no whole tiles
        if told:
            places, widths = engine.info_places(), engine.layout.info
            rows = self._held[info][..., : engine.num_envs]
            for name in told:
                at, width = places[name], widths[name]
                self._apart[name] = rows[:, at : at + width].mT if width else rows[:, at]
        self._buffers = [
            {name: x[t] for name, x in self._held.items() if name != "obs"} | {"obs": following}
            for t, following in enumerate(self._held["obs"][1:])
        ]
        self._steps = [engine.step_on(buffers) for buffers in self._buffers]
        self._ended_before: torch.Tensor | None = None

    def begin(self) -> None:
        """Copy the present observations into the first row. On a CPU, mark all steps as not made, for `cut_off`."""
        self.rows["obs"][0].copy_(self._engine.obs)
        if not self._engine.obs.is_cuda:
            ended = self._engine.buffers["terminated"]
            self._ended_before = ended.clone()
            for x in (self._held["terminated"], ended):  # the engine's own last: `cut_off` looks at it first
                x.view(torch.uint8).fill_(NOT_MADE)

    def cut_off(self) -> None:
        """Leave the engine's outputs, its observations among them, as the last step left them that was made.

        This is for exceptions between `begin` and the end of the last step. An interrupt may come after a step was
        made and before Python knows of it; so what the step wrote tells whether it was made.
        """
        buffers, held = self._engine.buffers, self._held
        if self._ended_before is None or int(buffers["terminated"].view(torch.uint8).flatten()[0]) != NOT_MADE:
            return  # on a GPU, and after the last step, whose outputs are the engine's own
        buffers["terminated"].copy_(self._ended_before)
        made = int((held["terminated"].view(torch.uint8).flatten(1)[:, 0] != NOT_MADE).sum())
        if made:
            for name in self._given:
                buffers[name].copy_(held[name][made - 1])
            buffers["obs"].copy_(held["obs"][made])

    def reads(self, action: torch.Tensor) -> bool:
        """Whether a step can read these actions (N, A) from their own memory."""
        held = self._held["action"][0]
        return action.is_contiguous() and (action.dtype, action.shape) == (held.dtype, held.shape)

    def step(self, t: int, action: torch.Tensor, *, in_place: bool = False) -> None:
        """Make step t. The steps 0 to T - 1 must be made in order.

        in_place: the step reads the actions from their own memory, and the caller stores them. This is for CUDA graphs,
        in which they are at the same address in each replay.
        """
        engine = self._engine
        if not in_place:
            self.rows["action"][t].copy_(action)
        if t < self._last:
            (engine.step_on(self._buffers[t] | {"action": action}) if in_place else self._steps[t])()
            return
        engine.action.copy_(action)
        engine.step()
        engine.stepped(self._last)  # for the steps before it, which `Engine.step` does not count
        self._end()

    def _end(self) -> None:
        """Copy the results of the last step from the engine's own buffers."""
        for name in self._given:
            self._held[name][self._last].copy_(self._engine.buffers[name])

    def launches(self) -> list[Callable[[int], None]]:
        """Return, for each of the T steps, the `run` of a launch that reads its actions from `rows`.

        Between `begin` and `end`, each world must make all steps once, in order.
        """
        last = {"action": self._held["action"][self._last]}
        return [self._engine.launch_on(buffers).run for buffers in (*self._buffers, last)]

    def end(self) -> None:
        """After `launches` have run, leave the engine as its own step would."""
        self._engine.action.copy_(self.rows["action"][self._last])
        self._engine.stepped(self._last + 1)
        self._end()

    def finish(self, into: Mapping[str, torch.Tensor]) -> None:
        """Copy what is not contiguous into (T, N, ...) tensors."""
        for name, x in self._apart.items():
            into[name].copy_(x)
