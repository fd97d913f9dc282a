"""Keeps a table by the job's output topic: for whoever has Kafka anyway, and no way to the job.

The records are coalesced, and the partitions know nothing of each other: so each row is the newest of its own that is
known, and no answer is of one epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaException

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.service.generations import GENERATION
from freshet.job.serving.feeds.fed_job import RETRY_S, FedJob
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.topic import Topic
from freshet.job.serving.feeds.topic_reader import POLL_S, OffsetsGoneError, TopicReader
from freshet.job.serving.feeds.topic_records import Kind, rows_of_records
from freshet.job.serving.protocol.columns import taken
from freshet.job.serving.tables import place
from freshet.job.serving.tables.change_log_rows import NewestRows
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.ids import Ids, text_bytes
from freshet.state.served.layout import HISTORY_BYTES, T_BEAT_US, T_CAPACITY
from freshet.state.served.reader import TableReader
from freshet.state.served.writer import TableWriter

_BEAT_S = 0.25
_REASONS_MAX = 20  # that are said, of records that can't be taken
# Tombstones go from a compacted topic after a day (delete.retention.ms): a table that has missed some of them would
# keep rows that nobody takes back.
_LEFT_S = 3600.0


class TopicFollower(Follower):
    """The one writer of a table whose rows come from a topic.

    Invariant: the row with the greatest epoch holds, and so does a deletion: a record that comes again changes nothing.
    """

    origin = "the topic"

    def __init__(
        self,
        job: FedJob,
        tables: Path,
        topic: Topic,
        until: Callable[[], bool],
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        super().__init__(job, tables, history_bytes)
        kind = Kind(job.strings, job.width, job.model_tag)
        self._kind = kind if job.generation is None else replace(kind, epoch_max=GENERATION - 1)
        self._topic, self._until = topic, until
        self._reader: TopicReader | None = None
        self._view: TableReader | None = None
        self._loaded, self._said, self._reasons = False, "", set[str]()
        self._topic_id = job.job_id  # that the positions are of
        self._refused = self._heard_us = self._newest_us = 0

    def step(self) -> bool:
        """Take in what has come; whether there was something.

        Retry if a broker is away, and read a recreated topic from the beginning.
        """
        try:
            return self._take_in()
        except OffsetsGoneError as error:
            say(f"--kafka: {error}; all of it is read again")
            self._begin_anew()
        except OSError:  # what was read is not in the table: it is read again
            self._let_go()
            raise
        except (KafkaException, JobFailed, UsageError) as error:
            said = one_line(error)
            if said != self._said:
                say(f"--kafka: {said}; asking again")
            self._said = said
            self._let_go()
            self._beat(time.monotonic())
            time.sleep(RETRY_S)
        return False

    def _take_in(self) -> bool:
        """Take in what has come, as `step`.

        Raises: KafkaException, JobFailed, UsageError, OffsetsGoneError for whatever goes wrong.
        """
        if self._reader is None:
            offsets = {partition: upto for (_, partition), (upto, _) in self._positions.items()}
            self._reader = self._topic.read(offsets, self._topic_id)
            self._topic_id = self._reader.id
        records = self._reader.read(POLL_S)
        self._heard_us = max(self._heard_us, self._reader.heard_us)
        if records:
            self._newest_us, self._said = 1000 * self._reader.newest_ms, ""
            self._take(*rows_of_records(records, self._kind))
        if time.monotonic() - self._beat_at >= _BEAT_S:
            self._beat(time.monotonic())
        return bool(records)

    def close(self, forget: bool) -> None:
        """Let the brokers go; with `forget` the table, too."""
        self._let_go()
        super().close(forget)

    @property
    def refused(self) -> int:
        """Return the number of records that were left out."""
        return self._refused

    def _left(self) -> TableWriter | None:
        found = place.take_over(self.job, self.tables) if is_fresh(self.job, self.tables) else None
        if found is None or found.reach < found.epoch:
            return None
        found.publish(found.reach)  # also half a batch: each row is the newest of its own, and none is read by its ring
        self._loaded = True
        return found

    def _read_positions(self, upto: int) -> None:
        """They are lost: all is read again, which changes nothing."""

    def _offer(self) -> None:
        """Offer the table once the whole topic is read; epochs of a recreated topic may be earlier than those seen."""
        self._floor = -1
        if self._loaded:
            super()._offer()

    def _load(self) -> None:
        """Make a table of all that the topic has."""
        self._loaded, self._positions = False, {}
        self._let_go()
        self.table = self._table_for(0, 0)
        self.table.publish(self.job.base)
        while not self._until():
            self.step()
            if self._reader is not None and self._reader.caught_up:
                self._loaded = True
                break

    def _take(self, found: NewestRows, refused: list[str]) -> None:
        for reason in refused[:_REASONS_MAX]:
            if len(self._reasons) < _REASONS_MAX and reason not in self._reasons:
                self._reasons.add(reason)
                say(f"--kafka: a record was left out: {reason}")
        self._refused += len(refused)
        self._make_room(len(found.ids), text_bytes(found.ids))
        self.table.put(self.job.base + found.epochs, found.ids, found.rows)
        epochs = self.job.base + found.dead_epochs
        _remove(self.table, found.dead, epochs, np.flatnonzero(self._read_rows(found.dead) < epochs))
        assert self._reader is not None
        newest = max(self.table.reach, self.job.base + found.newest)
        self.table.publish(newest, self._newest_us)
        self._positions = {(0, one): (upto, newest) for one, upto in self._reader.offsets.items() if upto >= 0}
        self._set_positions()

    def _read_rows(self, ids: Ids) -> np.ndarray:
        """The epochs of the rows that these ids have, -1 where they have none, (n,) int64."""
        if self._view is None or self._view.path != self.table.path:
            self._view = TableReader(self.table.path)
        return self._view.get(ids).own

    def _keep_more(self, former: TableWriter, larger: TableWriter) -> None:
        """Deletions, too: a row that comes again must find that it is gone. Of very many the newest."""
        ids, epochs = former.gone()
        order = np.argsort(epochs, kind="stable")
        kept = order[epochs[order] <= former.epoch][-(larger.word(T_CAPACITY) // 4) :]  # later ones come again
        rows = np.zeros((len(kept), self.job.width), np.float32)
        larger.put(epochs[kept], taken(ids, kept), rows)
        _remove(larger, ids, epochs, kept)

    def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _beat_of(self, table: TableWriter, now: float) -> None:
        self._beat_at = now
        table.beat(self._heard_us, self.refused, False)


def is_fresh(job: ServedJob, tables: Path) -> bool:
    """Return whether a killed server has left a table of the job that misses no tombstones."""
    found = place.left_behind(job, tables)
    return found is not None and found.width == job.width and time.time() - found.word(T_BEAT_US) / 1e6 < _LEFT_S


def _remove(table: TableWriter, ids: Ids, epochs: np.ndarray, which: np.ndarray) -> None:
    """Some of these ids have no row any more, each from its epoch on."""
    for epoch in np.unique(epochs[which]).tolist():
        table.remove(epoch, taken(ids, which[epochs[which] == epoch]))
