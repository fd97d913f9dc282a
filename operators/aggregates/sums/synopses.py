"""Sums of a Storage for kernels, and their settlement at the end of an epoch.

Sums are exact until their notes say otherwise (aggregates/exact_sums.py). Worn rows are summed again from their
in-edges. So are some other rows in every epoch, whatever their notes, to check that the notes are right: this is the
scrubber.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.operators.aggregates.exact_sums import (
    IN_EDGES,
    LAST_SERIAL,
    clear_sum,
    forget_loss,
    is_worn,
    mark,
    replace_sum,
    sum_in_edges,
)
from freshet.state.adjacency import ListsView
from freshet.state.table import View

MESSAGES_AT_ONCE = 4096  # messages listed before they are merged
ROWS_AT_ONCE = 256  # changed rows looked at before their messages are listed
_AHEAD = 12


class Scratch(NamedTuple):
    """Memory of the kernels: a list of messages, and the changes of source rows."""

    src: np.ndarray  # (MESSAGES_AT_ONCE,) int32: slot of the source, or row of `delta` and `old`
    dst: np.ndarray  # (MESSAGES_AT_ONCE,) int32
    weight: np.ndarray  # (MESSAGES_AT_ONCE,) float32
    delta: np.ndarray  # (ROWS_AT_ONCE, message_width) float64: new value - old value, where edges have no weights
    old: np.ndarray  # (ROWS_AT_ONCE, message_width) float32: the old value, where they have
    scale: np.ndarray  # (ROWS_AT_ONCE,) float32: bound of the old and the new value, -1: unchanged
    inexact: np.ndarray  # (ROWS_AT_ONCE,) bool: whether `delta` is not the exact difference
    fresh: np.ndarray  # (2, message_width) float64: a row that is summed afresh, and what its additions round away


def make_scratch(width: int, weighted: bool) -> Scratch:
    """Scratch memory for messages of that width."""
    delta, old = (1, ROWS_AT_ONCE) if weighted else (ROWS_AT_ONCE, 1)
    return Scratch(
        np.empty(MESSAGES_AT_ONCE, np.int32),
        np.empty(MESSAGES_AT_ONCE, np.int32),
        np.empty(MESSAGES_AT_ONCE, np.float32),
        np.empty((delta, width), np.float64),
        np.empty((old, width), np.float32),
        np.empty(ROWS_AT_ONCE, np.float32),
        np.empty(ROWS_AT_ONCE, np.bool_),
        np.empty((2, width), np.float64),
    )


class Synopses(NamedTuple):
    """View of a Storage for kernels."""

    z: View  # (rows of sources, message_width) float32: the replicated value of each source
    s: View  # (rows of targets, message_width) float64: un-normalised sum of the messages of the in-edges in this part
    note: View  # (rows of targets, 4) int32: what is known of each sum, see operators/aggregates/exact_sums.py
    out: ListsView  # per source: destinations (and weights)
    inn: ListsView  # per destination: sources (and weights)
    touched: np.ndarray  # (rows of targets,) int32: rows touched in this epoch, in order
    counter: np.ndarray  # (1,) int64: how many rows are touched
    scratch: Scratch
    weighted: bool
    skip_loops: bool


@inner
def settle(syn: Synopses, again: np.ndarray) -> int:
    """After all messages, set empty sums to 0 and write the worn rows to `again`; returns how many those are."""
    note, touched = syn.note.data, syn.touched
    count, n = 0, syn.counter[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(note, np.int64(touched[i + _AHEAD]) * 4)
        row = touched[i]
        if note[row, IN_EDGES] == 0:
            clear_sum(syn.s, row)
            forget_loss(note, row)
        elif is_worn(syn.s.data, note, row):
            again[count] = row
            count += 1
    return count


@kernel
def recompute(syn: Synopses, rows: np.ndarray) -> None:
    """Sum these touched rows again from their in-edges in this part."""
    for row in rows:
        lossy = sum_in_edges(syn.scratch.fresh, syn.z.data, syn.inn, row)
        replace_sum(syn.s.data, syn.note.data, row, syn.scratch.fresh, lossy)


@inner
def _difference(fresh: np.ndarray, row: np.ndarray) -> float:
    """The largest difference of two sums, relative to the largest value.

    Infinite where one of them alone is not finite, 0 where both are NaN.
    """
    largest, difference = 0.0, 0.0
    for j in range(len(fresh)):
        if fresh[j] != row[j] and (fresh[j] == fresh[j] or row[j] == row[j]):
            far = abs(fresh[j] - row[j])
            difference = max(difference, far if far == far else np.inf)
        largest = max(largest, abs(fresh[j]) if fresh[j] == fresh[j] else 0.0)
    if difference == 0.0:
        return 0.0
    return difference / largest if 0.0 < largest < np.inf else np.inf


@inner
def scrub(syn: Synopses, base: int, first: int, rows: int, total: int, serial: int, found: np.ndarray) -> None:
    """Sum some rows again that received no message, whatever their notes; rows that differ are touched.

    Checks `rows` of the `total` rows of the part that begins at `base`, from `first` on, cyclically. `found`, float64,
    gets the number of rows summed and of those that differed, and the largest difference beside the largest value of
    its row.
    """
    s, note, fresh = syn.s.data, syn.note.data, syn.scratch.fresh
    for k in range(min(rows, total)):
        row = base + (first + k) % total
        if note[row, IN_EDGES] == 0 or note[row, LAST_SERIAL] == serial:
            continue
        lossy = sum_in_edges(syn.scratch.fresh, syn.z.data, syn.inn, row)
        found[0] += 1
        difference = _difference(fresh[0], s[row])
        if difference > 0:
            found[1] += 1
            found[2] = max(found[2], difference)
            mark(syn, row, serial)
            replace_sum(s, note, row, fresh, lossy)
