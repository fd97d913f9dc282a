"""Attributes of edges that number categories: whole, from 0 to one below how many categories there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_CATEGORIES = 1024
"""Categories that one attribute may number."""


def category_error(numbers: Sequence[float], counts: Sequence[int]) -> str:
    """Return why attributes of an edge are no categories, empty where they are; `counts` as in `are_categories`."""
    if not counts:
        return ""
    row = np.array([numbers], np.float64)
    if are_categories(row, counts)[0]:
        return ""
    place = next(i for i, count in enumerate(counts) if not are_categories(row[:, i : i + 1], [count])[0])
    return f"attr: expected a whole number from 0 to {counts[place] - 1} at index {place}, got {numbers[place]}"


def are_categories(attr: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return which rows of attributes have a category in each column that numbers categories.

    Shapes: attr (n, width); counts: how many categories each column numbers, 0 where it is any number; result (n,) bool
    """
    good = np.ones(len(attr), bool)
    for place, count in enumerate(counts):
        if count:
            column = attr[:, place].astype(np.float32)
            good &= (column >= 0) & (column < count) & (column == np.floor(column))
    return good
