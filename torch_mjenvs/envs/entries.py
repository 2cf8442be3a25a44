"""Names of the entries that the environment adds to info: of an episode's rewards, metrics, length and end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..checks import as_names

REWARD = "episode_reward/"  # and the name of a term: its sum over the episode so far
MEAN = "episode_mean/"  # and the name of a metric: its mean over the steps of the episode so far
SUCCESS = "episode_success/"  # and "once" or "at_end": 1 if in any step so far, or in this one, the task is done
END = "episode_end/"  # and the name of a reason: 1 where that ended the episode, else 0
LENGTH = "episode_length"
SUCCESSES = ("once", "at_end")

BAD_STATE = "bad_state"  # also an entry of info that the environment adds in every step
OWN_INFO = (BAD_STATE, "final_obs", "final_info")
TIME_LIMIT = "time_limit"
OWN_REASONS = (TIME_LIMIT, BAD_STATE)


def entries(
    rewards: tuple[str, ...], metrics: tuple[str, ...], successes: tuple[str, ...], ends: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of the entries for what a task says of an episode, or () if nothing: terms, metrics, successes
    (`SUCCESSES` or none), and reasons of ends.
    """
    if not (rewards or metrics or successes or ends):
        return ()
    named = ((REWARD, rewards), (MEAN, metrics), (SUCCESS, successes), (END, ends))
    first, second, third, last = ([prefix + name for name in names] for prefix, names in named)
    return (*first, *second, *third, LENGTH, *last)


def chosen_info(info_keys: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names in `info_keys`, which may also be one name. Raises ValueError for one that is not known,
    TypeError for what are no names.
    """
    chosen = as_names("info_keys", info_keys)
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"info has no {unknown}: info_keys may name {sorted(known)}")
    return chosen
