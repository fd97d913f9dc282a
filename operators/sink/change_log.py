"""The change log: Parquet files of the embeddings that each epoch changed, and of the epochs' input positions.

A file holds whole epochs. Its contents depend on the epochs alone, so a file that is written again after a restore
replaces itself. It is written under a name that starts with a dot, synced to the disk and renamed, and then the folder
is synced: visible files are complete, and survive a kill and a power loss (docs/design/durability.md). Checksums of all
its bytes are between rows and footer (state/checksums/sealed.py).

Layout (of one of several returned kinds in folders of its name, embeddings/KIND and epochs/KIND):
    embeddings/part-PART-NUMBER.parquet   id int64 or string, epoch int64, embedding fixed_size_list<float32>[width],
                                          deleted bool
    epochs/epochs-GROUP.parquet           see operators/sink/epoch_files.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from freshet.files.whole import remove_left_behind
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.direct_file import DirectFile, replace_whole
from freshet.operators.sink.epoch_files import PREFIX, EpochFiles, rows_in
from freshet.operators.sink.epoch_rows import EpochRows, LogFile, wall_ms


def embeddings_schema(width: int, id_kind: str) -> pa.Schema:
    """The columns of the change log, and of a base; ids of a long log have more text than 32-bit offsets reach."""
    return pa.schema(
        [
            ("id", pa.int64() if id_kind == "int" else pa.large_string()),
            ("epoch", pa.int64()),
            ("embedding", pa.list_(pa.float32(), width)),
            ("deleted", pa.bool_()),
        ]
    )


class ChangeLogError(RuntimeError):
    """The change log could not be written."""


class ChangeLog:
    """Encodes and writes the files of one sink part.

    Invariant: the embeddings of a file are visible before the epochs that it covers.
    """

    def __init__(self, folders: LogFolders, part: int, width: int, id_kind: str, sources: list[str]) -> None:
        """`sources` are the names that positions refer to by index; they are written by part 0 alone."""
        self.folders, self.part, self.width = folders, part, width
        self.schema = embeddings_schema(width, id_kind)
        self.clock_ms: Callable[[], float] = wall_ms  # by which rows that nobody could read become readable
        self._rows_prefix = f"part-{part}-"
        for folder in (folders.embeddings, folders.epochs):
            folder.mkdir(parents=True, exist_ok=True)
        self._epochs = EpochFiles(folders.epochs, sources) if part == 0 else None
        remove_left_behind(folders.embeddings, f"{self._rows_prefix}*")
        if part == 0:
            remove_left_behind(folders.epochs, f"{PREFIX}*")

    def write(self, file: LogFile) -> None:
        """Write the file; complete and visible on return."""
        if any(rows.size for rows in file.epochs):
            from freshet.operators.sink.parquet_writer import (
                write_parquet,  # polars: half a second to load, for rows alone
            )

            path = self.folders.embeddings / f"{self._rows_prefix}{file.number:08d}.parquet"
            table = self._embeddings(file.epochs)

            def write(sink: DirectFile) -> None:
                write_parquet(table, sink)
                sink.seal()

            def is_longer() -> bool:
                return file.partial and rows_in(path) >= table.num_rows

            # A partial file ends where its attempt was stopped. An earlier attempt may have come further, and readers
            # have seen that: both hold the same epochs from the same start, so the longer one stays.
            replace_whole(path, write, unless=is_longer)
        for rows in file.epochs:
            if rows.published_ms is None and rows.epoch > 0:
                rows.published_ms = int(self.clock_ms())
        if self._epochs is not None:
            self._epochs.write(file)

    def _embeddings(self, epochs: list[EpochRows]) -> pa.Table:
        kind = self.schema.field("embedding").type
        ids, vectors, deleted = [], [], []
        for rows in epochs:
            ids += [self._id_array(chunk) for chunk in rows.ids]
            arrays = list(rows.rows)
            if rows.deleted:
                arrays.append(np.zeros((rows.deleted, self.width), np.float32))
            # Chunks as they came: a concatenation costs as much again as encoding them.
            vectors += [pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), type=kind) for a in arrays if a.size]
            deleted += [np.zeros(rows.changed, bool), np.ones(rows.deleted, bool)]
        numbers = np.repeat([rows.epoch for rows in epochs], [rows.size for rows in epochs])
        columns = [
            pa.chunked_array(ids, self.schema.field("id").type),
            pa.array(numbers, pa.int64()),
            pa.chunked_array(vectors, kind),
            pa.array(np.concatenate(deleted)),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _id_array(self, chunk: np.ndarray | tuple[np.ndarray, np.ndarray]) -> pa.Array:
        if isinstance(chunk, np.ndarray):
            return pa.array(chunk)
        offsets, data = chunk
        ends = pa.py_buffer(offsets.astype(np.int64))
        return pa.LargeStringArray.from_buffers(len(offsets) - 1, ends, pa.py_buffer(data))
