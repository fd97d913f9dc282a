"""Prints of rows: 128 bits by which one sees that a row has changed, where the row itself is not kept.

A print is two sums over pairs of a row's 32-bit words, each plus a secret number: NH with a Toeplitz key. Two rows that
differ in any bit have the same print with a probability of at most 2^-64, whatever they are, as long as they do not
depend on the key: it is drawn from the job's seed. A third sum would make that 2^-96, and UPDATE of 64 channels a tenth
slower; memory and disks lose a bit far more often.

Source: Black, Halevi, Krawczyk, Krovetz and Rogaway, UMAC: fast and secure message authentication (1999), theorem 4.3.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from freshet.kernels.kernel import inner
from freshet.operators.graph.part_rows import frozen
from freshet.state.salt import draw_words
from freshet.state.table import View, touch

PRINT_WORDS = 2  # of 64 bits
_WORD = np.uint64(0xFFFFFFFF)


@lru_cache(maxsize=64)
def print_keys(seed: int, width: int) -> np.ndarray:
    """Return the key of prints of rows of this width, (2, pairs + 1) uint64 below 2^32: for each half of a row."""
    words = np.array(draw_words(seed, 2 * (-(-width // 2) + PRINT_WORDS - 1)), np.uint64)
    return frozen((words & _WORD).reshape(2, -1))


@inner
def replace_print(table: View, keys: np.ndarray, row: int, words: np.ndarray, i: int) -> bool:
    """Write the print of row `i` of `words` to `row` of the table, if it is another one; returns whether it is.

    The j-th word of the first half of a row is paired with the j-th of the second.
    Shapes: the table's data (rows, 2) uint64; keys as `print_keys`; words (n, width) uint32.
    """
    one = np.uint64(1)  # places that are sums of others are unsigned, see exact_sums.add_term
    width, half = np.uint64(words.shape[1]), np.uint64((words.shape[1] + 1) >> 1)
    a = b = np.uint64(0)
    for k in range(words.shape[1] >> 1):
        j = np.uint64(k)
        low, high = np.uint64(words[i, j]), np.uint64(words[i, half + j])
        a += ((low + keys[0, j]) & _WORD) * ((high + keys[1, j]) & _WORD)
        j += one
        b += ((low + keys[0, j]) & _WORD) * ((high + keys[1, j]) & _WORD)
    if width & one:  # the last word of the first half is paired with 0
        j, low = half - one, np.uint64(words[i, half - one])
        a += ((low + keys[0, j]) & _WORD) * keys[1, j]
        b += ((low + keys[0, j + one]) & _WORD) * keys[1, j + one]
    found = table.data
    if found[row, 0] == a and found[row, 1] == b:
        return False
    touch(table, row)
    found[row, 0], found[row, 1] = a, b
    return True
