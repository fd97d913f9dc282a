"""Holds answers of a server against the change log of the job: every row, bit by bit, as of the epoch that it names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.job.serving.protocol.columns import rows_of

_EPOCH_BITS = 32


class Sample(NamedTuple):
    """An answer: the ids that were asked for (None: all), and what came."""

    epoch: int
    asked: np.ndarray | None
    ids: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray


class Oracle:
    """The change log of int64 ids, sorted by id and epoch; its rows are in a mapped file, so that it may be long."""

    def __init__(self, out: Path) -> None:
        paths = sorted((out / "embeddings").glob("part-*.parquet"))
        table = pa.concat_tables(pq.read_table(path, columns=["id", "epoch", "deleted"]) for path in paths)
        self._rows = _rows_in(out / ".oracle.rows", paths, len(table))
        ids, epochs = table["id"].to_numpy(), table["epoch"].to_numpy()
        keys = (ids << _EPOCH_BITS) | epochs
        order = np.argsort(keys, kind="stable")
        self._keys, self._ids, self._epochs = keys[order], ids[order], epochs[order]
        self._deleted = table["deleted"].to_numpy()[order]
        self._order = order
        self._everyone = np.unique(ids)

    def judge(self, sample: Sample) -> tuple[int, int]:
        """Return how many rows of an answer are torn (no version of that id and epoch), and how many are wrong."""
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
        return np.asarray(self._rows[self._order[at]])


def _rows_in(file: Path, paths: list[Path], count: int) -> np.ndarray:
    """The embeddings of all files, one after the other: (count, width) float32."""
    width = pq.read_schema(paths[0]).field("embedding").type.list_size
    rows = np.memmap(file, np.float32, "w+", shape=(count, width))
    at = 0
    for path in paths:
        column = pq.read_table(path, columns=["embedding"])["embedding"].combine_chunks()
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            rows[at : at + len(chunk)] = rows_of(chunk)
            at += len(chunk)
    return rows
