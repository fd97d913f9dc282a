"""Queries of a table, shared by all protocols: rows at one epoch, waiting, nearest neighbours, readouts, limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from freshet.job.serving.bounds.asked_ids import ids_of_values
from freshet.job.serving.bounds.budget import Budget
from freshet.job.serving.bounds.neighbours import LINK, METRICS, NearestRows
from freshet.job.serving.bounds.waiting import WaitingRoom
from freshet.job.serving.protocol.columns import (
    column_of_ids,
    numbers,
    row_columns,
    spans_of,
    taken,
    values_of,
    vectors,
)
from freshet.job.serving.protocol.errors import BadRequestError, NotYetError
from freshet.job.serving.protocol.wanted import EPOCH, IDS_MAX, NOTHING_SPECIAL, ROW, Wanted, as_metadata
from freshet.job.serving.tables.served import Answer, CurrentTable, JobHere, Served
from freshet.operators.output_folders import LogFolders
from freshet.state.served.ids import Ids, Texts
from freshet.state.served.mapped import Found
from freshet.state.served.plain import PlainReader
from freshet.state.served.times import NO_TIME, NOTHING_KNOWN, Moment

if TYPE_CHECKING:
    from freshet.job.serving.tables.log_times import LogTimes
    from freshet.state.served.reader import TableReader

FEW = 1024  # ids that are looked up while other threads of the process wait: that takes less than their taking turns
K_MAX = 10_000
_NAMES = ("id", "epoch", "embedding")
_POLL_S = 0.001
_ROWS_AT_ONCE = 8192
_DIGITS_MAX = 20  # of the number of a partition
Metric = str
_ANY_JOB = JobHere()


class Lookup:
    """Answers from a table, at its newest complete epoch."""

    def __init__(self, table: CurrentTable, job: JobHere = _ANY_JOB, model: str = "") -> None:
        """`model`: the folder of the model whose readout answers may have; empty without."""
        self._table, self.job, self._model = table, job, model
        self.ids_found = self.ids_missing = 0
        self._served: Served | None = None
        self._neighbours = NearestRows(lambda: self.whole_table, job.consistency == EPOCH)
        self._log_times: LogTimes | None = None
        self.budget, self.room = Budget(), cast(WaitingRoom | None, None)  # of a server: `as_server`

    @property
    def served(self) -> Served:
        """Return what answers come from now.

        Raises: NotReadyError while there is no table.
        """
        table, found = self.table, self._served
        if found is None or found.table is not table:
            found = Served(0 if found is None else found.generation + 1, self.job, self._model, table)
            self._served = found
        return found

    def as_server(self, budget: Budget | None = None) -> None:
        """Have calls wait in one room, and answers be counted in a budget, which other processes may share."""
        self.budget = budget or self.budget
        self.room = self.room or WaitingRoom(self)

    def metadata(self, epoch: int) -> dict[str, str]:
        """Return the metadata of an answer: its epoch, its times where they are known, and what `more` says."""
        return {"epoch": str(epoch)} | as_metadata(self.so_far(epoch)) | self.more

    @property
    def more(self) -> dict[str, str]:
        """Metadata of answers besides the epoch and its times: the consistency, unless it is by epochs."""
        return {} if self.job.consistency == EPOCH else {"consistency": self.job.consistency}

    def so_far(self, epoch: int) -> Moment:
        """Return the time up to which an answer's epoch has the input, and the largest `ts` of events up to it.

        Nothing is known of rows of no one epoch, and of epochs of earlier versions.
        """
        return self.table.so_far(epoch) if self.job.consistency == EPOCH else NOTHING_KNOWN

    def times_of(self, epochs: np.ndarray) -> np.ndarray:
        """Return (arrived_ms, event_ts) of the epochs of rows, (n, 2) int64; NO_TIME where it is not known.

        Raises: DamagedFileError for a file of `epochs/` beside the table.
        """
        if self.job.consistency == ROW:
            return np.full((len(epochs), 2), NO_TIME)
        found = self.table.times(epochs)
        lacking = np.flatnonzero((found == NO_TIME).all(axis=1))
        if len(lacking) and (log := LogFolders.of_tables(self.folder)).epochs.is_dir():
            from freshet.job.serving.tables.log_times import LogTimes  # it reads Parquet, which takes long to load

            self._log_times = self._log_times or LogTimes(log)
            found[lacking] = self._log_times.of(epochs[lacking])
        return found

    @property
    def folder(self) -> Path:
        """Folder in which readers look for the table."""
        return self._table.tables

    @property
    def table(self) -> TableReader | PlainReader:
        """The table as it is mapped now."""
        return self._table.reader()

    @property
    def whole_table(self) -> TableReader:
        """The table with all that can be read of it, which takes a moment longer after a start."""
        return self._table.whole()

    def get(self, ids: Ids, wanted: Wanted = NOTHING_SPECIAL) -> Answer:
        """The rows of these ids; those that the table does not know are left out.

        Raises: BadRequestError, NotReadyError, NotYetError.
        """
        self.check(ids)
        self.wait(wanted)
        served = self.served
        return self._answer(ids, served.table.get(ids), served)

    def all(self, wanted: Wanted = NOTHING_SPECIAL) -> Answer:
        """The rows of all ids."""
        self.wait(wanted)
        table = self.whole_table
        ids, found = table.all()
        return Answer(found.epoch, ids, found.own, found.rows, len(found.own), self.served)

    def wait(self, wanted: Wanted, gone: Callable[[], bool] | None = None) -> None:
        """Return when the table is as far as wanted; `gone`: whether the caller has gone.

        Raises: NotYetError at the timeout, NotReadyError, BadRequestError; ExhaustedError of a server.
        """
        if self.room is not None:
            self.room.wait(wanted, gone)
            return
        deadline = time.monotonic() + wanted.timeout_s
        while self.lacks_now(wanted) is not None:
            if time.monotonic() >= deadline:
                self.expect(wanted)
                return
            time.sleep(_POLL_S)

    def lacks_now(self, wanted: Wanted) -> str | None:
        """Like `lacks`, after checking that waiting makes sense.

        Raises: BadRequestError where it makes none.
        """
        if wanted.min_epoch <= 0 and not wanted.min_position:
            return None
        if self.job.consistency == ROW:
            asked = "min_position" if wanted.min_position else "min_epoch"
            msg = (
                f"{asked}: this server feeds from a Kafka topic, which does not say when an epoch is complete; ask a "
                "server that feeds from the job (`freshet serve --tables` or `--from`), or leave it out"
            )
            raise BadRequestError(msg)
        return self.lacks(wanted)

    def expect(self, wanted: Wanted) -> None:
        """Raises: NotYetError where the table is not as far as wanted."""
        reason = self.lacks_now(wanted)
        if reason is not None:
            msg = f"after {wanted.timeout_s:g} s: {reason}"
            raise NotYetError(msg)

    def lacks(self, wanted: Wanted) -> str | None:
        """Describe what is still missing; None if nothing is."""
        table = self.table
        if table.epoch < wanted.min_epoch:
            return f"expected epoch {wanted.min_epoch}, the newest complete one is {table.epoch}"
        for key, offset in (wanted.min_position or {}).items():
            source, partition = self._place(key)
            reached = [row for row in table.positions().tolist() if row[1] == partition and source in (None, row[0])]
            if not reached or reached[0][2] <= offset or reached[0][3] > table.epoch:
                upto = reached[0][2] if reached else 0
                return (
                    f"expected offset {offset} of partition {key} to be covered, the input is read up to {upto} "
                    "(a rejected record is covered as soon as an event follows it)"
                )
        return None

    def nearest(self, query: np.ndarray, k: int, metric: Metric = "cosine") -> tuple[Answer, np.ndarray]:
        """The k ids whose rows are nearest to a vector, and their scores, the best first; exact, at one epoch.

        Raises: BadRequestError, NotReadyError.
        """
        if not 0 < k <= K_MAX:
            msg = f"k: expected 1 to {K_MAX}, got {k}"
            raise BadRequestError(msg)
        if metric not in METRICS:
            msg = f"metric: expected {', '.join(METRICS[:-1])} or {METRICS[-1]}, got {metric!r}"
            raise BadRequestError(msg)
        query = np.asarray(query, np.float32).reshape(-1)
        if query.shape[0] != self.table.width or not np.isfinite(query).all():
            msg = f"vector: expected {self.table.width} finite numbers, got {query.shape[0]}"
            raise BadRequestError(msg)
        link = self.served.link_scores.of if metric == LINK else None
        epoch, ids, own, rows, scores = self._neighbours.best(query, k, metric, link)
        return Answer(epoch, ids, own, rows, len(own), self.served), scores

    def as_table(
        self, answer: Answer, more: Mapping[str, np.ndarray] | None = None, *, logits: bool = False
    ) -> pa.Table:
        """An answer as id, epoch, embedding (its readout, and `more` columns); the schema's metadata has its epoch."""
        parts = (answer.part(begin, end) for begin, end in spans_of(answer.ids))
        table = pa.Table.from_batches([self.as_batch(part, logits=logits) for part in parts])
        for name, values in (more or {}).items():
            table = table.append_column(name, numbers(values))
        return table.replace_schema_metadata(self.metadata(answer.epoch))

    def as_batch(self, answer: Answer, *, logits: bool = False) -> pa.RecordBatch:
        """Return the answer as one batch without metadata, which is much faster; `logits`: with its readout."""
        columns = [column_of_ids(answer.ids), numbers(answer.epochs), vectors(answer.rows)]
        names = list(_NAMES)
        if logits and (readout := answer.served.readout) is not None:
            for name, values in readout.columns(answer.rows).items():
                names.append(name)
                columns.append(vectors(values) if values.ndim > 1 else numbers(values))
        return pa.RecordBatch.from_arrays(columns, names)

    def ids_of(self, values: object) -> Ids:
        """The ids of a list, of the kind that the table has; integers may be written as strings.

        Raises: BadRequestError naming the first that is of another kind.
        """
        return ids_of_values(values, self.table.strings)

    def few(self, ids: pa.Array, wanted: Wanted = NOTHING_SPECIAL) -> tuple[int, pa.RecordBatch] | None:
        """The epoch and the batch of a column of int64, if they are few, all there, and the table is as far as wanted.

        What `get` and `as_batch` would say otherwise, in less than half of the time.
        """
        table = self._table.at_hand()
        if len(ids) > FEW or wanted.min_position or (wanted.min_epoch > 0 and self.job.consistency == ROW):
            return None
        if table.strings or isinstance(table, PlainReader):
            return None
        own, rows, columns = row_columns(len(ids), table.width)
        epoch = table.few_into(values_of(ids), wanted.min_epoch, own, rows)
        if epoch < 0:
            return None
        self.ids_found += len(ids)
        return epoch, pa.RecordBatch.from_arrays([ids, *columns], _NAMES)

    def check(self, ids: Ids) -> None:
        """Raises: BadRequestError for too many ids, or those of another kind."""
        if len(ids) > IDS_MAX:
            msg = f"ids: expected at most {IDS_MAX:,}, got {len(ids):,}; ask for all at once, or in several requests"
            raise BadRequestError(msg)
        if isinstance(ids, Texts) != self.table.strings:
            msg = f"ids: expected {'strings' if self.table.strings else 'integers of 64 bits'}"
            raise BadRequestError(msg)

    def _answer(self, ids: Ids, found: Found, served: Served) -> Answer:
        there = found.own >= 0
        count = int(there.sum())
        self.ids_found += count
        self.ids_missing += len(ids) - count
        if count == len(ids):
            return Answer(found.epoch, ids, found.own, found.rows, count, served)
        at = np.flatnonzero(there)
        for first in range(0, count, _ROWS_AT_ONCE):  # where they are: a second copy would not be in the budget
            some = at[first : first + _ROWS_AT_ONCE]
            found.rows[first : first + len(some)] = found.rows[some]
        return Answer(found.epoch, taken(ids, at), found.own[at], found.rows[:count], len(ids), served)

    def _place(self, key: str) -> tuple[int | None, int]:
        """The source (None: the only one) and the partition that a key of `min_position` means."""
        sources = self.job.sources
        source, _, partition = str(key).rpartition(":")
        if not (partition.isdecimal() and partition.isascii()) or len(partition) > _DIGITS_MAX:
            msg = f"min_position: expected PARTITION or SOURCE:PARTITION, got {str(key)[:50]!r}"
            raise BadRequestError(msg)
        if source and source not in sources:
            msg = f"min_position: {source[:50]!r} is none of the sources {', '.join(sources)}"
            raise BadRequestError(msg)
        if not source and len(sources) > 1:
            msg = f"min_position: the job has several sources; write SOURCE:{partition}, of {', '.join(sources)}"
            raise BadRequestError(msg)
        return (sources.index(source) if source else None), int(partition)
