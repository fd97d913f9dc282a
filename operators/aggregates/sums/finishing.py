"""UPDATE by an epilogue of sums and means."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.kernels.prefetch import prefetch_row
from freshet.operators.aggregates.finishing import ask_for_rows, end_row, store_row
from freshet.state.table import View


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
    """UPDATE by an `Epilogue`, as `finishing.Finish` has it.

    Shapes: s (rows, width) float64; own (rows, width) float32; counts (rows,) int32, read for a mean; the others as
    there.
    """
    n, width, x = len(slots), s.shape[1], table.data
    bits, out_bits = x.view(np.int32), out.view(np.int32)
    for i in range(n):
        ask_for_rows(s, own, x, slots, i)
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
        end_row(out, count, bias, relu)
        store_row(table, bits, row, out_bits, forced[i], at, group[i], out_slots)
