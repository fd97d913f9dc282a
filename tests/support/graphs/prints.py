"""Prints of rows in whole numbers, a second implementation of operators/graph/row_prints.py."""

from __future__ import annotations

import numpy as np

from freshet.operators.graph.row_prints import PRINT_WORDS


def plain_prints(keys: np.ndarray, x: np.ndarray) -> list[list[int]]:
    """The sums of each row of float32."""
    return [_of_row(keys.tolist(), words) for words in x.view(np.uint32).tolist()]


def _of_row(keys: list[list[int]], words: list[int]) -> list[int]:
    half = (len(words) + 1) // 2
    pairs = list(zip(words[:half], [*words[half:], 0], strict=False))
    return [
        sum((low + keys[0][j + k]) % 2**32 * ((high + keys[1][j + k]) % 2**32) for j, (low, high) in enumerate(pairs))
        % 2**64
        for k in range(PRINT_WORDS)
    ]
