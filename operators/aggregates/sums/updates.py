"""UPDATE of sums by an epilogue: of given rows, or of those that an epoch touches, behind its merge."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch_row
from freshet.operators.aggregates.finishing import (
    Behind,
    Candidates,
    Prints,
    ask_for_print,
    end_row,
    store_print,
)
from freshet.operators.aggregates.sums.synopses import Synopses
from freshet.operators.graph.part_rows import NO_ROWS
from freshet.operators.graph.row_kernels import choose
from freshet.operators.graph.row_prints import PRINT_WORDS, print_keys
from freshet.state.table import Table

NO_CANDIDATES: Candidates = (NO_ROWS, NO_ROWS, 0)


def no_update() -> Behind:
    """Return what has room for no row, of the types that others have, so that kernels are compiled once."""
    prints, rows = Table("print", "u8", PRINT_WORDS), np.empty((0, 1), np.float32)
    none, slots, stamp = np.zeros(0, bool), np.empty(0, np.int32), np.zeros(0, np.int64)
    return Behind(
        rows,
        slots,
        np.empty(0, np.float32),
        False,
        False,
        Prints(prints.view, print_keys(0, 1)),
        stamp,
        none.view(np.uint8),
        0,
        none,
        np.zeros(0, np.int16),
        slots,
        slots,
        rows,
        np.zeros(2, np.int64),
    )


@inner
def update_behind(syn: Synopses, behind: Behind, candidates: Candidates) -> None:
    """UPDATE the touched rows and the candidates, each once, if there is room for them all."""
    touched, chosen, found = syn.counter[0], behind.chosen, behind.found
    if touched + len(candidates[0]) + len(candidates[1]) > len(chosen) or len(chosen) == 0:
        return
    stamp, flags, owned, serial = behind.stamp, behind.flags, behind.owned, candidates[2]
    count = choose(syn.touched[:touched], stamp, serial, flags, owned, chosen)
    count += choose(candidates[0], stamp, serial, flags, owned, chosen[count:])
    count += choose(candidates[1], stamp, serial, flags, owned, chosen[count:])
    found[0], found[1] = count, 0
    finish(
        syn.s.data,
        behind.own,
        behind.counts,
        behind.bias,
        behind.mean,
        behind.relu,
        chosen[:count],
        behind.forced,
        behind.group,
        found[1:],
        behind.prints,
        behind.slots,
        behind.x,
    )


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
    prints: Prints,
    out_slots: np.ndarray,
    out: np.ndarray,
) -> None:
    """UPDATE by an `Epilogue`, as `finishing.Finish` has it, with prints of the rows.

    Shapes: s (rows, width) float64; own (rows, width) float32; counts (rows,) int32, read for a mean; the others as
    there.
    """
    n, width, words = len(slots), s.shape[1], out.view(np.uint32)
    for i in range(n):
        ask_for_print(s, own, prints.table.data, slots, i)
        row, count = slots[i], at[group[i]]
        prefetch_row(out, min(count + 2, n - 1))  # rows go to many groups: the processor does not ask ahead
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
        store_print(prints, row, words, forced[i], at, group[i], out_slots)
