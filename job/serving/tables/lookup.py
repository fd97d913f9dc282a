"""Queries of a table, shared by all protocols: rows at one epoch, waiting, readouts, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from freshet.job.serving.bounds.asked_ids import ids_of_values
from freshet.job.serving.bounds.budget import Budget
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
from freshet.job.serving.protocol.wanted import IDS_MAX, NOTHING_SPECIAL, ROW, Wanted
from freshet.job.serving.tables.served import Answer, JobHere, Served, Tables
from freshet.state.served.ids import Ids, Texts
from freshet.state.served.mapped import Found
from freshet.state.served.plain import PlainReader
from freshet.state.served.times import NO_TIME

if TYPE_CHECKING:
    from freshet.job.serving.bounds.approximate import Neighbourhoods
    from freshet.job.serving.tables.hypotheses import Hypotheses
    from freshet.job.serving.tables.log_times import LogTimes
    from freshet.state.served.reader import TableReader

FEW = 1024  # ids that are looked up while other threads of the process wait: that takes less than their taking turns
K_MAX = 10_000
_NAMES = ("id", "epoch", "embedding")
_POLL_S = 0.001
_ROWS_AT_ONCE = 8192
_DIGITS_MAX = 20  # of the number of a partition


class Lookup:
    """Answers from a table, at its newest complete epoch."""

    ids_found = ids_missing = 0

    def __init__(self, table: Tables) -> None:
        self._table = table
        self._neighbourhoods: Neighbourhoods | None = None
        self._lock = threading.Lock()
        self._log_times: LogTimes | None = None
        self.budget, self.room = Budget(), cast(WaitingRoom | None, None)  # of a server: `as_server`
        self.hypotheses: Hypotheses | None = None  # of a server that answers what if
        self.beside: Mapping[str, Lookup] = {}  # of a server of several kinds: the lookup of each, this one's, too

    @property
    def source(self) -> Tables:
        """Source of the table."""
        return self._table

    @property
    def job(self) -> JobHere:
        """The job of the table; while there is none, the one that is expected."""
        return self._table.job

    @property
    def is_computed(self) -> bool:
        """True if rows are computed at the read, which takes longer than looking them up."""
        return self._table.is_computed

    @property
    def served(self) -> Served:
        """Return what answers come from now.

        Raises: NotReadyError while there is no table.
        """
        return self._table.served()

    def at_hand(self) -> Served:
        """Like `served`, for a caller that checks itself whether the table was replaced."""
        return self._table.at_hand()

    @property
    def whole(self) -> Served:
        """The same with all that can be read of the table, which takes a moment longer after a start."""
        return self._table.whole()

    @property
    def switches(self) -> int | None:
        """The number of generations of a service that came since this process began to read; None without one."""
        return self._table.switches

    @property
    def table(self) -> TableReader | PlainReader:
        """The table as it is mapped now."""
        return self.served.table

    def as_server(self, budget: Budget | None = None) -> None:
        """Have calls wait in one room, and answers be counted in a budget, which other processes may share."""
        self.budget = budget or self.budget
        for one in self.each:
            one.budget, one.room = self.budget, one.room or WaitingRoom(one)

    @property
    def each(self) -> list[Lookup]:
        """The lookups of all kinds of a server, or itself where there is one."""
        return [*self.beside.values()] or [self]

    def of(self, kind: str | None) -> Lookup:
        """Return the lookup of a kind of vertices; None: of the only one.

        Raises: BadRequestError where several kinds are here and none is named, and for one that is not here.
        """
        if not self.beside:
            self.job.check_kind(kind)
            return self
        if (found := self.beside.get(kind or "")) is None:
            got = "none" if kind is None else repr(kind)
            msg = f"kind: this server has the embeddings of {', '.join(self.beside)}; name one of them, got {got}"
            raise BadRequestError(msg)
        return found

    def times_of(self, answer: Answer) -> np.ndarray:
        """Return (arrived_ms, event_ts) of the epochs of rows; see `times_of_epochs`."""
        return self.times_of_epochs(answer.served, answer.epochs)

    def times_of_epochs(self, served: Served, epochs: np.ndarray) -> np.ndarray:
        """Return (arrived_ms, event_ts) of epochs, (n, 2) int64; NO_TIME where it is not known.

        Raises: DamagedFileError for a file of `epochs/` beside the table.
        """
        if served.job.consistency == ROW:
            return np.full((len(epochs), 2), NO_TIME)
        found = served.table.times(epochs)
        lacking = np.flatnonzero((found == NO_TIME).all(axis=1))
        if len(lacking) and (log := served.job.log_beside(self.folder)).epochs.is_dir():
            from freshet.job.serving.tables.log_times import LogTimes  # it reads Parquet, which takes long to load

            if self._log_times is None or self._log_times.log != log:
                self._log_times = LogTimes(log)
            found[lacking] = self._log_times.of(epochs[lacking] - served.job.base)
        return found

    @property
    def folder(self) -> Path:
        """Folder in which readers look for the table."""
        return self._table.tables

    def get(self, ids: Ids, wanted: Wanted = NOTHING_SPECIAL, served: Served | None = None) -> Answer:
        """The rows of these ids; those that the table does not know are left out.

        `served`: a source that the caller has made room for, in the place of the newest one.

        Raises: BadRequestError, NotReadyError, NotYetError.
        """
        self.check(ids, served or self.served)
        self.wait(wanted)
        source = served or self.served
        self.check(ids, source)  # of a wait it may be another one
        return self._answer(ids, source.table.get(ids), source)

    def all(self, wanted: Wanted = NOTHING_SPECIAL) -> Answer:
        """The rows of all ids."""
        self.wait(wanted)
        served = self.whole
        ids, found = served.whole.all()
        return Answer(found.epoch, ids, found.own, found.rows, len(found.own), served)

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
        if self.served.job.consistency == ROW:
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
        served = self.served
        table = served.table
        if table.epoch < wanted.min_epoch:
            return f"expected epoch {wanted.min_epoch}, the newest complete one is {table.epoch}"
        for key, offset in (wanted.min_position or {}).items():
            source, partition = _place(key, served.job.sources)
            reached = [row for row in table.positions().tolist() if row[1] == partition and source in (None, row[0])]
            if not reached or reached[0][2] <= offset or reached[0][3] > table.epoch:
                upto = reached[0][2] if reached else 0
                return (
                    f"expected offset {offset} of partition {key} to be covered, the input is read up to {upto} "
                    "(a rejected record is covered as soon as an event follows it)"
                )
        return None

    @property
    def neighbourhoods(self) -> Neighbourhoods | None:
        """The lists for approximate neighbours; None of a table that has none."""
        with self._lock:
            if self._neighbourhoods is None:
                from freshet.job.serving.bounds.approximate import Neighbourhoods  # it loads kernels

                self._neighbourhoods = Neighbourhoods()
            return self._neighbourhoods

    def as_table(
        self, answer: Answer, more: Mapping[str, np.ndarray] | None = None, *, logits: bool = False
    ) -> pa.Table:
        """An answer as id, epoch, embedding (its readout, and `more` columns); the schema's metadata has its epoch."""
        parts = (answer.part(begin, end) for begin, end in spans_of(answer.ids))
        table = pa.Table.from_batches([self.as_batch(part, logits=logits) for part in parts])
        for name, values in (more or {}).items():
            table = table.append_column(name, numbers(values))
        return table.replace_schema_metadata(answer.served.metadata(answer.epoch))

    def as_batch(self, answer: Answer, *, logits: bool = False) -> pa.RecordBatch:
        """Return the answer as one batch without metadata, which is much faster; `logits`: with its readout."""
        columns = [column_of_ids(answer.ids), numbers(answer.epochs), vectors(answer.rows)]
        names = list(_NAMES)
        if logits and (readout := answer.served.readout) is not None:
            for name, values in readout.columns(answer.rows).items():
                names.append(name)
                columns.append(vectors(values) if values.ndim > 1 else numbers(values))
        return pa.RecordBatch.from_arrays(columns, names)

    def nothing(self, served: Served, logits: bool = False) -> pa.RecordBatch:
        """Return an answer of this source without rows."""
        rows, ids = np.empty((0, served.table.width), np.float32), ids_of_values([], served.table.strings)
        return self.as_batch(Answer(0, ids, np.empty(0, np.int64), rows, 0, served), logits=logits)

    def ids_of(self, values: object) -> Ids:
        """The ids of a list, of the kind that the table has; integers may be written as strings.

        Raises: BadRequestError naming the first that is of another kind.
        """
        return ids_of_values(values, self.table.strings)

    def few(self, ids: pa.Array, wanted: Wanted = NOTHING_SPECIAL) -> tuple[Served, int, pa.RecordBatch] | None:
        """The source, epoch and batch of a column of int64: if they are few, all there, and the table as far as wanted.

        What `get` and `as_batch` would say otherwise, in less than half of the time.
        """
        served = self.at_hand()
        table = served.table
        if len(ids) > FEW or wanted.min_position or (wanted.min_epoch > 0 and served.job.consistency == ROW):
            return None
        if table.strings or isinstance(table, PlainReader):
            return None
        own, rows, columns = row_columns(len(ids), table.width)
        epoch = table.few_into(values_of(ids), wanted.min_epoch, own, rows)
        if epoch < 0:
            return None
        self.ids_found += len(ids)
        return served, epoch, pa.RecordBatch.from_arrays([ids, *columns], _NAMES)

    def check(self, ids: Ids, served: Served) -> None:
        """Raises: BadRequestError for too many ids, or those of another kind."""
        if len(ids) > IDS_MAX:
            msg = f"ids: expected at most {IDS_MAX:,}, got {len(ids):,}; ask for all at once, or in several requests"
            raise BadRequestError(msg)
        if isinstance(ids, Texts) != served.table.strings:
            msg = f"ids: expected {'strings' if served.table.strings else 'integers of 64 bits'}"
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


def joined(lookups: Sequence[Lookup]) -> Lookup:
    """Return the lookup of the first kind of a server, which knows those of the others."""
    first = lookups[0]
    first.beside = {one.job.kind_name: one for one in lookups} if len(lookups) > 1 else {}
    return first


def _place(key: str, sources: Sequence[str]) -> tuple[int | None, int]:
    """The source (None: the only one) and the partition that a key of `min_position` means."""
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
