"""Writes the embeddings of a whole graph as epoch 0 of a change log, in the order of the vertices' numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.files.whole import sync_folder
from freshet.operators.embed.files import full_disk
from freshet.operators.sink.change_log import embeddings_schema
from freshet.partitioner.ids import INT, Ids

FILE_BYTES = 256 << 20
_GROUP_BYTES = 4 << 20
_OPTIONS = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}


class RowBlocks(Protocol):
    """Rows of vertices, read block by block in the order of the vertices.

    Shapes: a block (n, width) float32
    """

    @property
    def vertices(self) -> int:
        """Number of rows."""

    @property
    def width(self) -> int:
        """Width of a row."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""

    def read(self, block: int) -> np.ndarray:
        """Return the rows of a block."""


class IdRanges(Protocol):
    """Ids of vertices in the order of their rows."""

    def read(self, first: int, last: int) -> Ids:
        """Return the ids of these vertices."""


def write_embeddings(
    folder: Path,
    rows: RowBlocks,
    ids: IdRanges,
    id_kind: str,
    progress: Callable[[str], None] = lambda _: None,
    part: int = 0,
) -> int:
    """Write part-PART-NUMBER.parquet files with one row a vertex; returns their bytes.

    Invariant: which rows a file and a row group hold follows from their width alone, so that equal embeddings make
    equal files.
    Raises: EmbedError when the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"*part-{part}-*"):  # of an attempt that was killed
        left.unlink()
    schema = embeddings_schema(rows.width, id_kind)
    group = max(64, min(65_536, _GROUP_BYTES // (4 * rows.width)))
    per_file = max(1, FILE_BYTES // (4 * rows.width) // group) * group
    writer, path, total = None, folder, 0
    done = 0
    try:
        for some in _in_groups(rows, group):
            if done % per_file == 0:
                if writer is not None:
                    total += _finish(writer, path)
                path = folder / f"part-{part}-{done // per_file:08d}.parquet"
                writer = pq.ParquetWriter(_aside(path), schema, **_OPTIONS)
            assert writer is not None
            writer.write_table(_table(schema, ids.read(done, done + len(some)), some))
            done += len(some)
            progress(f"writing embeddings: {done:,} of {rows.vertices:,}")
        if writer is not None:
            total += _finish(writer, path)
            writer = None
        sync_folder(folder)
    except OSError as error:
        raise full_disk(path, error) from None
    finally:
        if writer is not None:
            writer.close()
    return total


def _in_groups(rows: RowBlocks, group: int) -> Iterator[np.ndarray]:
    """All rows in order, `group` at a time, whatever the blocks of the file."""
    waiting: list[np.ndarray] = []
    count = 0
    for block in range(rows.blocks):
        some = rows.read(block)
        while len(some):
            taken = some[: group - count]
            waiting.append(taken)
            count += len(taken)
            some = some[len(taken) :]
            if count == group:
                yield np.concatenate(waiting)
                waiting, count = [], 0
    if count:
        yield np.concatenate(waiting)


def _table(schema: pa.Schema, ids: Ids, rows: np.ndarray) -> pa.Table:
    n = len(rows)
    kind = schema.field("embedding").type
    columns = [
        _id_array(ids),
        pa.array(np.zeros(n, np.int64)),
        pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind),
        pa.array(np.zeros(n, bool)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _id_array(ids: Ids) -> pa.Array:
    if ids.kind == INT:
        return pa.array(ids.ints)
    offsets = np.ascontiguousarray(ids.offsets, np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(ids.data))


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _finish(writer: pq.ParquetWriter, path: Path) -> int:
    """Close the file and give it its name; returns its bytes."""
    writer.close()
    aside = _aside(path)
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(aside, path)
    return path.stat().st_size
