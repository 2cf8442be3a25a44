"""Entries of info that tell of an episode: sums of the reward's named terms, its length, and why it ended."""

from __future__ import annotations

REWARD = "episode_reward/"  # and the name of a term: its sum over the episode so far
END = "episode_end/"  # and the name of a reason: 1 where that ended the episode, else 0
LENGTH = "episode_length"

BAD_STATE = "bad_state"  # also an entry of info that the environment adds in every step
TIME_LIMIT = "time_limit"
OWN_REASONS = (TIME_LIMIT, BAD_STATE)


def entries(rewards: tuple[str, ...], ends: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of these entries, for a task's named terms and the reasons of its ends; () where it has none."""
    if not (rewards or ends):
        return ()
    return (*(REWARD + name for name in rewards), LENGTH, *(END + name for name in ends))
