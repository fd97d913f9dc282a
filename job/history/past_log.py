"""A change log as it stands: its files, how far it is complete, and from which epoch on it has every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.job.errors import UsageError
from freshet.job.folder.returned_kinds import refuse_inner
from freshet.job.serving.feeds.service_feed import job_in
from freshet.job.serving.protocol.columns import rows_of
from freshet.job.serving.tables.change_log_rows import known_from
from freshet.operators.sink.log_proof import BASE_PREFIX, epoch_of_base, reading

_ROW = ["id", "epoch", "deleted"]


@dataclass(frozen=True)
class NarrowBatch:
    """Narrow columns of a row group.

    Shapes: ids a column of int64 or large_string; epochs (n,) int64; deleted (n,) bool
    """

    file: int
    first: int  # its first row in the file
    ids: pa.ChunkedArray
    epochs: np.ndarray
    deleted: np.ndarray


class PastLog:
    """The files of a change log that count: the newest base, and all that are no base."""

    def __init__(self, out: Path, kind: str | None = None, generation: int | None = None) -> None:
        """Find the files; `kind`: whose, where the model returns several; `out` and `generation`: see `job_in`.

        Raises: UsageError where there is no job, it has no embeddings, or a kind is to be named; DamagedFileError.
        """
        job = job_in(out, kind, generation)
        if job is None:
            msg = f"{out}: no job in it; give the --out folder of a `freshet run`"
            raise UsageError(msg)
        refuse_inner(job.out, "the past")
        self._job, self.out, self.folders, self.strings = job, job.out, job.log, job.strings
        self.base, self.generation = job.base, job.generation
        upto = job.complete_epoch()
        found = sorted(self.folders.embeddings.glob("[!._]*.parquet"))
        bases = [path for path in found if path.name.startswith(BASE_PREFIX)]
        self.files = [*bases[-1:], *(path for path in found if not path.name.startswith(BASE_PREFIX))]
        self.has_base = bool(bases)
        self.base_epoch = epoch_of_base(bases[-1]) if bases else -1
        self.upto = max(upto, self.base_epoch)  # a job and its compaction may have gone on meanwhile
        self.known_from = known_from(bases[-1]) if bases else 0

    @property
    def kind(self) -> pa.DataType:
        """The type of ids."""
        return pa.large_string() if self.strings else pa.int64()

    @cached_property
    def width(self) -> int:
        """Numbers of an embedding."""
        if not self.files:
            return self._job.width
        with reading(self.files[0]) as file:
            return int(pq.read_schema(file).field("embedding").type.list_size)

    def is_base(self, file: int) -> bool:
        """Return whether a file is the base."""
        return self.has_base and file == 0

    def batches(self) -> Iterator[NarrowBatch]:
        """Yield all rows without their vectors, a row group at a time.

        Raises: DamagedFileError; FileNotFoundError when compaction has removed a file.
        """
        for number, path in enumerate(self.files):
            first = 0
            with reading(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=_ROW)
                    ids = table["id"].cast(self.kind)
                    yield NarrowBatch(number, first, ids, table["epoch"].to_numpy(), table["deleted"].to_numpy())
                    first += table.num_rows

    def vectors(self, files: np.ndarray, rows: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """The embeddings of rows of files, (n, width) float32; zeros where the file is negative.

        Raises: FileNotFoundError when a file is another one by now.
        """
        out = np.zeros((len(files), self.width), np.float32)
        order = np.lexsort((rows, files))
        for number in np.unique(files[files >= 0]).tolist():
            begin, end = np.searchsorted(files[order], (number, number + 1))
            _take(self.files[number], order[begin:end], rows, epochs, out)
        return out


def codes_of(ids: pa.ChunkedArray, known: pa.Array) -> np.ndarray:
    """Return the place of each id among `known`, (n,) int64; -1 where it is none of them."""
    found: np.ndarray = pc.index_in(ids, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _take(path: Path, which: np.ndarray, rows: np.ndarray, epochs: np.ndarray, out: np.ndarray) -> None:
    """Read the vectors of some rows of a file, in ascending order."""
    begin = done = 0
    with reading(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            upto = int(np.searchsorted(rows[which], end))
            if upto > done:
                table = file.read_row_group(group, columns=["epoch", "embedding"])
                some = which[done:upto]
                mine = rows[some] - begin
                if not np.array_equal(table["epoch"].to_numpy()[mine], epochs[some]):
                    break
                out[some] = rows_of(table["embedding"].combine_chunks())[mine]
                done = upto
            begin = end
    if done < len(which):
        raise FileNotFoundError(path)
