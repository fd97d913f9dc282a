"""Rows of many epochs stand in one piece, and no row is given twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from operators.row_pool import RowPool, joined

WIDTH = 3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(1, 400))
def test_what_is_kept_stays_and_joins(takes: list[tuple[int, int]], block_bytes: int) -> None:
    pool, kept, wanted = RowPool(WIDTH, block_bytes), [], []
    for number, (asked, taken) in enumerate(takes):
        free = pool.free(asked)
        assert free.shape == (asked, WIDTH) and free.flags.c_contiguous
        free[:] = number
        rows = pool.keep(min(asked, taken))
        rows.flags.writeable = False
        kept.append(rows)
        wanted += [number] * len(rows)
    found = joined(rows for rows in kept if rows.size)
    assert [value for array in found for value in array[:, 0].tolist()] == wanted
    blocks = {id(rows.base) for rows in kept if rows.size}
    assert len(found) == len(blocks), "one array for each block of memory"


def test_arrays_of_other_memory_stay_as_they_are() -> None:
    block = np.arange(60, dtype=np.float32).reshape(20, WIDTH).copy()
    apart = [block[0:2], block[3:5], block[5:6].copy(), block[6:8], block[2:3]]
    assert [array.tolist() for array in joined(apart)] == [array.tolist() for array in apart]
    assert [len(array) for array in joined([block[0:2], block[2:5], block[9:9], block[5:6]])] == [5, 0, 1]
    assert joined([block[:, :2], block[:, 1:]])[1].tolist() == block[:, 1:].tolist()
    other = np.arange(12, dtype=np.float32)
    assert [array.tolist() for array in joined([other[:6].reshape(2, 3), other[6:].reshape(2, 3)])] == [
        [[0, 1, 2], [3, 4, 5]],
        [[6, 7, 8], [9, 10, 11]],
    ]
    assert joined([]) == []
