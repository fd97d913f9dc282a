"""Aggregates that a user wrote (RedoneSynopsis), around which there is always a network that makes their messages."""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.redone import RedoneSynopsis
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.redone.fold import RedoneFold


def _merger(synopsis: RedoneSynopsis) -> MergePartials:
    def merge(
        index: np.ndarray, partial: np.ndarray, slots: np.ndarray, out: np.ndarray, shifts: tuple[int, int],
        columns: tuple[int, int],
    ) -> None:  # fmt: skip
        here = slice(*columns)
        with np.errstate(all="ignore"):
            for i, slot in enumerate(slots.tolist()):
                base, state = (slot >> shifts[0]) << shifts[1], np.zeros(columns[1] - columns[0], np.float32)
                for row in index[slot].tolist():
                    if row >= 0:
                        state = synopsis.merge(state, partial[base + row, here])
                out[i, here] = state

    return merge


def _no_store(*given: object, **options: object) -> RedoneFold:
    msg = "a RedoneSynopsis is kept of messages that others make: put a NetworkSynopsis around it"
    raise TypeError(msg)


def _no_accumulator(synopsis: RedoneSynopsis, width: int, rows: int) -> Accumulator:
    msg = f"{synopsis.name} is made of all messages of a vertex at once, which a pass over sources does not have"
    raise TypeError(msg)


REDONE = Aggregate[RedoneSynopsis](
    store=_no_store,  # type: ignore[arg-type]
    merger=_merger,
    accumulator=_no_accumulator,
    accumulator_bytes=lambda synopsis, _: 4 * (1 + synopsis.size),
    message_fold=RedoneFold,
)
