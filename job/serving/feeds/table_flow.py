"""Stream of another server's table: all rows at one epoch, then change by change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from freshet.job.console import say
from freshet.job.serving.feeds.change_stream import schema_of
from freshet.job.serving.feeds.checked import change_head, check_rows
from freshet.job.serving.feeds.fed_job import FAILURES, RETRY_S, FedServer, FedServers, reason_of
from freshet.job.serving.protocol.columns import ids_of_column, rows_of, values_of
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.ids import Ids, text_bytes


class TableChange(NamedTuple):
    """Newer rows of the other server's table as of `epoch`; if `whole`, all rows.

    `put` has the epochs, ids and live rows, in pieces; `metadata` theirs.
    """

    epoch: int
    whole: bool
    put: list[tuple[np.ndarray, Ids, np.ndarray]]
    dead: list[Ids]
    metadata: dict[str, Any]

    @property
    def room(self) -> tuple[int, int]:
        """Return the number of live rows, and the bytes of their ids' text."""
        return sum(len(ids) for _, ids, _ in self.put), sum(text_bytes(ids) for _, ids, _ in self.put)


class TableFlow:
    """The changes of one server's table after the other; where one fails, those of the next one."""

    def __init__(self, sources: FedServers, job: ServedJob) -> None:
        self._sources, self._job = sources, job
        self._steps: Iterator[TableChange | None] | None = None
        self.said = ""  # the failure that people know of

    @property
    def under_way(self) -> bool:
        """True while a server is being followed."""
        return self._steps is not None

    def stop(self) -> None:
        """Let the server go."""
        self._steps = None

    def next(self, source: FedServer | None = None) -> TableChange | None:
        """The next change, of this source or of the next one in turn where none is followed yet.

        None while it is under way, and after a failure, which is said.
        """
        try:
            self._steps = self._steps or self._follow(source)
            found = next(self._steps)
        except FAILURES as error:
            self.stop()
            said = reason_of(error)
            if said != self.said:
                say(f"--from: {said or 'the server has ended'}; asking the next one")
            self.said = said
            time.sleep(RETRY_S)
            return None
        if found is not None:
            self.said = ""
        return found

    def _follow(self, source: FedServer | None) -> Iterator[TableChange | None]:
        """An item for each piece that comes: the change that it completes, or None."""
        pieces: list[tuple[bool, pa.RecordBatch]] = []
        for sent, batch in self._sources.changes(self._job, source):
            head = change_head(sent)
            check_rows(batch, schema_of(self._job.strings, self._job.width), head["epoch"])
            pieces.append((head["lives"], batch))
            if "told" in head:
                live = [batch for lives, batch in pieces if lives and batch.num_rows]
                put = [(values_of(one.column(1)), ids_of_column(one.column(0)), rows_of(one.column(2))) for one in live]
                dead = [ids_of_column(batch.column(0)) for lives, batch in pieces if not lives]
                yield TableChange(head["epoch"], head["whole"], put, dead, head["told"])
                pieces = []
            else:
                yield None
