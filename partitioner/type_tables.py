"""Tables of edge types of blocks of events: each block names the types that it has, and may be joined or cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def merge_types(
    tables: Sequence[tuple[str, ...]], columns: Sequence[np.ndarray]
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Return one table for all blocks, and each block's etype column in it."""
    if len(set(tables)) == 1:
        return tables[0], list(columns)
    codes: dict[str, int] = {}
    etypes = []
    for names, etype in zip(tables, columns, strict=True):
        table = np.array([codes.setdefault(name, len(codes)) for name in names], np.int32)
        etypes.append(table[etype])
    return tuple(codes), etypes


def own_types(etype: np.ndarray, types: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the column and its table, without names that no event has where these are most of it.

    Else a message of many types, cut into blocks, would have all of its names in each of them.
    """
    if len(types) <= len(etype) + 1:
        return etype, types
    used, codes = np.unique(np.append(etype, 0), return_inverse=True)
    return codes[:-1].astype(np.int32), tuple(types[code] for code in used.tolist())
