"""Holds answers of a server against the change log of the job: every row, bit by bit, as of the epoch that it names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_EPOCH_BITS = 32


class Sample(NamedTuple):
    """An answer: the ids that were asked for (None: all), and what came."""

    epoch: int
    asked: np.ndarray | None
    ids: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray


class Oracle:
    """The change log of int64 ids, sorted by id and epoch."""

    def __init__(self, out: Path) -> None:
        tables = [pq.read_table(path) for path in sorted((out / "embeddings").glob("part-*.parquet"))]
        table = pa.concat_tables(tables)
        ids, epochs = table["id"].to_numpy(), table["epoch"].to_numpy()
        keys = (ids << _EPOCH_BITS) | epochs
        order = np.argsort(keys, kind="stable")
        self._keys, self._ids, self._epochs = keys[order], ids[order], epochs[order]
        self._deleted = table["deleted"].to_numpy()[order]
        self._rows, self._order = table["embedding"].combine_chunks(), order
        self._everyone = np.unique(ids)

    def judge(self, sample: Sample) -> tuple[int, int]:
        """How many rows of an answer are torn (no version of that id and epoch), and how many wrong or missing."""
        asked = self._everyone if sample.asked is None else np.unique(sample.asked)
        at = np.searchsorted(self._keys, (asked << _EPOCH_BITS) | sample.epoch, side="right") - 1
        there = (at >= 0) & (self._ids[at] == asked) & ~self._deleted[at]
        asked, at = asked[there], at[there]
        ids, first = np.unique(sample.ids, return_index=True)
        common, mine, theirs = np.intersect1d(asked, ids, return_indices=True)
        wrong = len(asked) + len(ids) - 2 * len(common)
        same_epoch = self._epochs[at[mine]] == sample.epochs[first[theirs]]
        wrong += int((~same_epoch).sum())
        expected = self._vectors(at[mine][same_epoch])
        got = sample.rows[first[theirs][same_epoch]]
        torn = int((expected.view(np.uint32) != np.ascontiguousarray(got).view(np.uint32)).any(axis=1).sum())
        return torn, wrong

    def _vectors(self, at: np.ndarray) -> np.ndarray:
        taken = self._rows.take(pa.array(self._order[at]))
        taken = taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
        width = self._rows.type.list_size
        return taken.flatten().to_numpy(zero_copy_only=False).reshape(-1, width).copy()
