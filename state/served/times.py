"""Moment of the newest epochs, in a region of the table: what answers say of the epoch that they are of, and of rows.

An entry has TIME_WORDS words: its epoch, when the last event of that came, the largest `ts` of its events, and the
greatest of both up to there. NO_TIME stands for what is not known. The entry of an epoch lies at its number modulo
those that there are, and is written before the epoch is published; it is replaced when TIMES others have followed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.state.served.layout import T_TIMES, T_TIMES_AT, TIME_WORDS

NO_TIME = np.iinfo(np.int64).min  # no event can have this `ts`


class Moment(NamedTuple):
    """Times of an epoch: when the last of its events came, and the largest `ts` of them; None where there is none.

    Units: milliseconds since 1970.
    """

    arrived_ms: int | None = None
    event_ts: int | None = None

    def latest(self, other: Moment) -> Moment:
        """Return the greater of each."""
        return Moment(
            *(max((one for one in both if one is not None), default=None) for both in zip(self, other, strict=True))
        )


NOTHING_KNOWN = Moment()


def note_times(mem: np.ndarray, epoch: int, own: Moment, so_far: Moment) -> None:
    """Write the entry of an epoch that is not published yet; tables of earlier versions have no room for it."""
    if mem[T_TIMES] and epoch >= 0:
        times = [NO_TIME if one is None else one for one in (*own, *so_far)]
        at = int(mem[T_TIMES_AT]) + epoch % int(mem[T_TIMES]) * TIME_WORDS
        mem[at : at + TIME_WORDS] = [epoch, *times]


def times_so_far(mem: np.ndarray, epoch: int) -> Moment:
    """Return the greatest times up to an epoch; nothing where the table does not have its entry."""
    if not mem[T_TIMES] or epoch < 0:
        return NOTHING_KNOWN
    at = int(mem[T_TIMES_AT]) + epoch % int(mem[T_TIMES]) * TIME_WORDS
    found, *words = mem[at : at + TIME_WORDS].tolist()
    return Moment(*(None if one == NO_TIME or found != epoch else one for one in words[len(NOTHING_KNOWN) :]))


def times_of(mem: np.ndarray, epochs: np.ndarray) -> np.ndarray:
    """Return (arrived_ms, event_ts) of each epoch itself, (n, 2) int64; NO_TIME in both where it has no entry."""
    out = np.full((len(epochs), len(NOTHING_KNOWN)), NO_TIME)
    if mem[T_TIMES]:
        entries = entries_of(mem)[epochs % mem[T_TIMES]]
        there = (entries[:, 0] == epochs) & (epochs >= 0)
        out[there] = entries[there, 1 : 1 + len(NOTHING_KNOWN)]
    return out


def entries_of(mem: np.ndarray) -> np.ndarray:
    """All entries as a view, (TIMES, TIME_WORDS) int64; none in a table of an earlier version."""
    first, count = int(mem[T_TIMES_AT]), int(mem[T_TIMES])
    return mem[first : first + count * TIME_WORDS].reshape(count, TIME_WORDS)
