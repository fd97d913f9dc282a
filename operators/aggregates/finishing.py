"""UPDATE by an epilogue and storing its rows, in one pass over the tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.operators.graph.row_kernels import replace_row
from freshet.state.table import View

# UPDATEs in the table slots, of which some are forced, each of a group; writes the slots and rows that changed, those
# of a group from its place on (`finish`).
Finish = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, View, np.ndarray, np.ndarray], None]
_AHEAD = 8


@kernel
def finish(
    s: np.ndarray,
    own: np.ndarray,
    counts: np.ndarray,
    bias: np.ndarray,
    mean: bool,
    relu: bool,
    slots: np.ndarray,
    forced: np.ndarray,
    group: np.ndarray,
    at: np.ndarray,
    table: View,
    out_slots: np.ndarray,
    out: np.ndarray,
) -> None:
    """UPDATE by an `Epilogue` for these rows, and `store`: the slots and rows that changed in any bit, or are forced.

    Every row of the tables is read once while the next ones are on their way. Those that changed go to `out`, those of
    group k from `at[k]` on, which then says where they end.
    Shapes: s (rows, width) float64; own and the table's data (rows, width) float32; counts (rows,) int32, read for a
    mean; slots (n,) int32, distinct; forced (n,) bool; group (n,) int16; at (groups,) int64; out_slots (n,) int32; out
    (n, width) float32.
    """
    n, width, x = len(slots), s.shape[1], table.data
    bits, out_bits = x.view(np.int32), out.view(np.int32)
    for i in range(n):
        if i + _AHEAD < n:
            ahead = np.int64(slots[i + _AHEAD])
            prefetch_wide_row(s, ahead)
            prefetch_row(own, ahead)
            prefetch_row(x, ahead)
        row, count = slots[i], at[group[i]]
        prefetch_row(out, min(count + 2, n - 1))  # of so many groups the processor does not see where they go on
        if mean and counts[row] == 0:
            for j in range(width):
                out[count, j] = np.float32(0) + own[row, j]
        elif mean:
            divisor = np.float32(counts[row])
            for j in range(width):
                out[count, j] = np.float32(s[row, j]) / divisor + own[row, j]
        else:
            for j in range(width):
                out[count, j] = np.float32(s[row, j]) + own[row, j]
        for j in range(0 if relu else width):
            out[count, j] += bias[j]
        for j in range(width if relu else 0):  # in one loop: see gnn.elementwise.relu
            value = out[count, j] + bias[j]
            out[count, j] = np.float32(0) if value <= 0 else value
        if replace_row(table, bits, row, out_bits, count) or forced[i]:
            out_slots[count] = row
            at[group[i]] += 1
