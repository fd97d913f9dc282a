"""UPDATE by an epilogue and storing its rows, in one pass over the tables: what it is for any aggregate.

An aggregate that has such a pass brings a kernel of its own, which goes through the slots and makes of each what the
epilogue is applied to. Every row of the tables is read once while the next ones are on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner
from freshet.kernels.prefetch import prefetch, prefetch_row, prefetch_wide_row
from freshet.operators.graph.row_kernels import replace_row
from freshet.operators.graph.row_prints import PRINT_WORDS, replace_print
from freshet.state.table import View


class Prints(NamedTuple):
    """The prints of rows that are not kept, and their key (operators/graph/row_prints.py)."""

    table: View  # (rows, 2) uint64
    keys: np.ndarray


# What is stored of rows: they themselves, (rows, width) float32, or their prints.
Stored = View | Prints
# finish(slots, forced, group, at, stored, out_slots, out): UPDATEs these rows, and stores them. The slots and rows that
# changed in any bit, or are forced, go to `out_slots` and `out`, those of group k from `at[k]` on, which then says
# where they end. Shapes: slots (n,) int32, distinct where rows are stored; forced (n,) bool; group (n,) int16; at
# (groups,) int64; out_slots (n,) int32; out (n, width) float32.
Finish = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Stored, np.ndarray, np.ndarray], None]
_AHEAD = 8


class Behind(NamedTuple):
    """UPDATE of few rows in the same call as the merge of an epoch, with memory for as many as `chosen` has room for.

    Where they are more, or anything else is to be done between the two, `found[0]` stays -1, and nothing is updated.
    Shapes: own (rows, width) float32; counts (rows,) int32; bias (width,) or (0,) float32; stamp (rows,) int64; flags
    (rows,) uint8; forced (n,) bool, zeros; group (n,) int16, zeros; chosen (n,) int32, the updated vertices; slots (n,)
    int32 and x (n, width) float32, those of them that changed, and their rows; found (2,) int64, how many these are.
    """

    own: np.ndarray
    counts: np.ndarray
    bias: np.ndarray
    mean: bool
    relu: bool
    prints: Prints
    stamp: np.ndarray
    flags: np.ndarray
    owned: int
    forced: np.ndarray
    group: np.ndarray
    chosen: np.ndarray
    slots: np.ndarray
    x: np.ndarray
    found: np.ndarray


# Vertices that are updated besides those that the merge touches, (n,) and (m,) int32, and the serial that marks those
# that are chosen (row_kernels.choose).
Candidates = tuple[np.ndarray, np.ndarray, int]


@inner
def ask_for_rows(s: np.ndarray, own: np.ndarray, x: np.ndarray, slots: np.ndarray, i: int) -> None:
    """Ask for the rows of a slot behind the i-th: its float64 sums, its self input and its stored row."""
    if i + _AHEAD < len(slots):
        ahead = np.int64(slots[i + _AHEAD])
        prefetch_wide_row(s, ahead)
        prefetch_row(own, ahead)
        prefetch_row(x, ahead)


@inner
def ask_for_print(s: np.ndarray, own: np.ndarray, prints: np.ndarray, slots: np.ndarray, i: int) -> None:
    """Ask for the rows of a slot behind the i-th: its float64 sums, its self input and its print."""
    if i + _AHEAD < len(slots):
        ahead = np.int64(slots[i + _AHEAD])
        prefetch_wide_row(s, ahead)
        prefetch_row(own, ahead)
        prefetch(prints, ahead * PRINT_WORDS)


@inner
def end_row(out: np.ndarray, k: int, bias: np.ndarray, relu: bool) -> None:
    """Add the bias to row `k`, unless it is empty, and apply ReLU."""
    biased = len(bias)
    for j in range(0 if relu else biased):
        out[k, j] += bias[j]
    for j in range(biased if relu else 0):  # in one loop: see gnn.elementwise.relu
        value = out[k, j] + bias[j]
        out[k, j] = np.float32(0) if value <= 0 else value
    for j in range(out.shape[1] if relu and not biased else 0):
        value = out[k, j] + np.float32(0)
        out[k, j] = np.float32(0) if value <= 0 else value


@inner
def store_row(
    table: View,
    bits: np.ndarray,
    row: int,
    out_bits: np.ndarray,
    forced: bool,
    at: np.ndarray,
    k: int,
    out_slots: np.ndarray,
) -> None:
    """Store the row that was written to place `at[k]` of a group, and keep it there if it changed, or is forced."""
    place = at[k]
    if replace_row(table, bits, row, out_bits, place) or forced:
        out_slots[place] = row
        at[k] += 1


@inner
def store_print(
    prints: Prints,
    row: int,
    words: np.ndarray,
    forced: bool,
    at: np.ndarray,
    k: int,
    out_slots: np.ndarray,
) -> None:
    """Store the print of the row that was written to place `at[k]` of a group, as `store_row` stores rows."""
    place = at[k]
    if replace_print(prints.table, prints.keys, row, words, place) or forced:
        out_slots[place] = row
        at[k] += 1
