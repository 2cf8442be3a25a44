"""Names of the entries that the environment adds to info: of an episode's rewards, metrics, length and end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

REWARD = "episode_reward/"  # and the name of a term: its sum over the episode so far
MEAN = "episode_mean/"  # and the name of a metric: its mean over the steps of the episode so far
END = "episode_end/"  # and the name of a reason: 1 where that ended the episode, else 0
LENGTH = "episode_length"

BAD_STATE = "bad_state"  # also an entry of info that the environment adds in every step
OWN_INFO = (BAD_STATE, "final_obs", "final_info")
TIME_LIMIT = "time_limit"
OWN_REASONS = (TIME_LIMIT, BAD_STATE)


def entries(rewards: tuple[str, ...], metrics: tuple[str, ...], ends: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the entries for a task's terms, metrics and reasons of ends; () where it names nothing."""
    if not (rewards or metrics or ends):
        return ()
    named = ((REWARD, rewards), (MEAN, metrics), (END, ends))
    first, second, third = ([prefix + name for name in names] for prefix, names in named)
    return (*first, *second, LENGTH, *third)


def chosen_info(info_keys: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names in `info_keys`, which may also be one name. Raises ValueError for one that is not known."""
    chosen = (info_keys,) if isinstance(info_keys, str) else tuple(info_keys)
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"info has no {unknown}: info_keys may name {sorted(known)}")
    return chosen
