"""Keeps a table by what other servers tell over Flight: no folder is shared, and several servers may tell the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.console import say
from freshet.job.serving.feeds.change_stream import ended_of, schema_of
from freshet.job.serving.feeds.checked import change_head, check_rows
from freshet.job.serving.feeds.fed_job import FAILURES, RETRY_S, Source, Sources, reason_of
from freshet.job.serving.follower import Follower
from freshet.job.serving.protocol.columns import ids_of_column, rows_of, values_of
from freshet.job.serving.served_job import ServedJob
from freshet.state.served.ids import Ids, Texts, frozen, text_bytes
from freshet.state.served.layout import HISTORY_BYTES
from freshet.state.served.writer import TableWriter


class FedFollower(Follower):
    """The one writer of a table whose rows come from other servers.

    Invariant: the table never goes back: what a server tells of an epoch that the table has passed is left out, and as
    it names all that changed up to its own epoch, what follows fits again.
    """

    origin = "another server"

    def __init__(
        self,
        job: ServedJob,
        tables: Path,
        sources: Sources,
        until: Callable[[], bool],
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        super().__init__(job, tables, history_bytes)
        self._sources, self._until = sources, until
        self._source_us, self._failures = 0, 0
        self._flow: Iterator[None] | None = None
        self._said = ""

    def run(self, until: Callable[[], bool]) -> None:
        """Follow one server after the other until told to end."""
        while not until():
            self._flow_on()

    def _flow_on(self, source: Source | None = None) -> None:
        """Take in the next piece of changes, of this source or the next one where there is none yet."""
        try:
            self._flow = self._flow or self._steps(source)
            next(self._flow)
        except FAILURES as error:
            self._flow = None
            said = reason_of(error)
            if said != self._said:
                say(f"--from: {said or 'the server has ended'}; asking the next one")
            self._said = said
            self._beat(time.monotonic())
            time.sleep(RETRY_S)

    def close(self, forget: bool) -> None:
        """Let the server go; with `forget` the table, too."""
        self._flow = None
        super().close(forget)

    def _load(self) -> None:
        """Begin with all rows of the first server that has them, as far as readers have seen."""
        floor = max(0, self._floor)
        self.table, self._flow = self._table_for(0, 0), None  # the flow that is under way fits the former table
        self.run(lambda: self.table.epoch >= floor or self._until())

    def _steps(self, source: Source | None) -> Iterator[None]:
        """An item for each piece that was taken in."""
        pieces: list[tuple[dict[str, Any], pa.RecordBatch]] = []
        for sent, batch in self._sources.changes(self.job.job_id, source):
            head = change_head(sent)
            check_rows(batch, schema_of(self.job.strings, self.job.width), head["epoch"])
            pieces.append((head, batch))
            if "told" in head:
                self._take(head, pieces)
                self._said, pieces = "", []
            yield

    def _take(self, head: dict[str, Any], pieces: list[tuple[dict[str, Any], pa.RecordBatch]]) -> None:
        told, now_us = head["told"], time.time_ns() // 1000
        if told["behind_us"] is not None:
            self._source_us = max(self._source_us, now_us - told["behind_us"])
        self._failures, self.ended = told["tail_failures"], ended_of(told)
        if head["epoch"] > self.table.epoch:
            self._take_rows(head, pieces)
        self._offer()
        self._beat(time.monotonic())

    def _take_rows(self, head: dict[str, Any], pieces: list[tuple[dict[str, Any], pa.RecordBatch]]) -> None:
        told, epoch = head["told"], head["epoch"]
        live = [batch for piece, batch in pieces if piece["lives"] and batch.num_rows]
        dead = [ids_of_column(batch.column(0)) for piece, batch in pieces if not piece["lives"]]
        put = [(values_of(one.column(1)), ids_of_column(one.column(0)), rows_of(one.column(2))) for one in live]
        room = sum(len(ids) for _, ids, _ in put), sum(text_bytes(ids) for _, ids, _ in put)
        if self.table.epoch < 0:  # nobody reads it yet
            self.table = self._table_for(*room)
        else:
            before = self.table.epoch
            self._make_room(*room)
            if self.table.epoch != before:  # it was begun anew: it goes on from where it stands
                return
        if head["whole"]:
            dead.append(self._missing([ids for _, ids, _ in put]))
        for ids in dead:
            self.table.remove(epoch, ids)
        for own, ids, rows in put:
            self.table.put(own, ids, rows)
        self._positions = {(a, b): (c, d) for a, b, c, d in told["positions"]}
        self._set_positions()
        self.table.publish(epoch, told["arrived_us"], told["published_us"])

    def _missing(self, known: list[Ids]) -> Ids:
        """The ids of the table that are none of these."""
        if self.table.epoch < 0:
            return Texts.encode([]) if self.job.strings else frozen(np.empty(0, np.int64))
        ours = self.table.living()
        if isinstance(ours, Texts):
            there = {name for one in known if isinstance(one, Texts) for name in one.decode()}
            return Texts.encode([name for name in ours.decode() if name not in there])
        return frozen(ours[~np.isin(ours, np.concatenate([frozen(np.empty(0, np.int64)), *known]))])

    def _beat_of(self, table: TableWriter, now: float) -> None:
        self._beat_at = now
        table.beat(self._source_us, self._failures, self.ended)
