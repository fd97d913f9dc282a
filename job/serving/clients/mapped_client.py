"""The client's way straight to the table that a server of this machine keeps, with no server in between."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.returned_kinds import KindChoiceError
from freshet.job.serving.feeds.fed_job import FedJob
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.protocol.wanted import EPOCH, ROW, Wanted
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import FEW, Lookup
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.place import read_shown
from freshet.job.serving.tables.requests import REQUESTS
from freshet.job.serving.tables.served import Answer, CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from freshet.kind_names import written_kind
from freshet.operators.output_folders import LogFolders
from freshet.state.served.ids import Ids, Texts


class MappedTransport:
    """Reads the table that a server of this machine keeps, with no server in between."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables.absolute()
        self._known: tuple[CurrentTable, Lookup] | None = None
        self.consistency = EPOCH
        self._lock = threading.Lock()

    def table(self, ids: Ids | None, wanted: Wanted, logits: bool) -> tuple[int, pa.Table]:
        """Read rows as a table."""
        lookup = of_generation(self._lookup, wanted.generation)
        answer = lookup.all(wanted) if ids is None else lookup.get(_fitting(lookup, ids), wanted)
        return self._epoch_of(answer), lookup.as_table(answer, logits=logits)

    def rows(self, ids: Ids, wanted: Wanted) -> tuple[int, Ids, np.ndarray, np.ndarray]:
        """Read rows as arrays."""
        lookup = of_generation(self._lookup, wanted.generation)
        answer = lookup.get(_fitting(lookup, ids), wanted)
        return self._epoch_of(answer), answer.ids, answer.epochs, answer.rows

    def quick(self, ids: Ids, min_epoch: int) -> tuple[int, Ids, np.ndarray, np.ndarray] | None:
        """A look at the table and no more, if there are few ids and all are there."""
        served = self._current.at_hand()
        if served.job.consistency == ROW and min_epoch > 0:  # whose answers have no epoch to wait for
            return None
        table = served.table
        if isinstance(ids, Texts) is not table.strings or len(ids) > FEW:
            return None
        found = table.few(ids, min_epoch)
        if found is None:
            return None
        self.consistency = served.job.consistency
        return found.epoch, ids, found.own, found.rows

    def ask(self, name: str, asked: dict[str, Any], wanted: Wanted) -> tuple[int, pa.Table]:
        """Answer a request of this name here."""
        answer = REQUESTS[name].run(of_generation(self._lookup, wanted.generation), asked, wanted)
        self.consistency = answer.served.job.consistency
        return answer.epoch, answer.as_table(False)

    def health(self) -> dict[str, Any]:
        """Return the figures of the table's header."""
        return Health(self._lookup).figures()

    def close(self) -> None:
        """The mapping goes with the object."""

    def _epoch_of(self, answer: Answer) -> int:
        self.consistency = answer.served.job.consistency
        return answer.epoch

    @property
    def _lookup(self) -> Lookup:
        return (self._known or self._found())[1]

    @property
    def _current(self) -> CurrentTable:
        return (self._known or self._found())[0]

    def _found(self) -> tuple[CurrentTable, Lookup]:
        """Look for the job once; what each table says of its own holds."""
        with self._lock:
            if self._known is None:
                current = CurrentTable(self._tables, self._job())
                self._known = current, Lookup(current)
                self.consistency = current.job.consistency
            return self._known

    def _job(self) -> JobHere:
        try:
            job = ServedJob.of_tables(self._tables) or FedJob.recorded(self._tables)
        except KindChoiceError as error:
            raise _folder_of_a_kind(self._tables, error.returned) from None
        if job is not None:
            return JobHere.of(job)
        shown = read_shown(self._tables)  # of a service, whose job is elsewhere
        if shown is not None and shown[1] is not None:
            return JobHere.described(shown[1])
        msg = (
            f"{self._tables}: no job beside it; give O/tables, of the --out folder O of a `freshet run`, or the "
            "folder in which a `freshet serve` keeps its table"
        )
        raise NotReadyError(msg)


def _fitting(lookup: Lookup, ids: Ids) -> Ids:
    return ids if len(ids) else lookup.ids_of([])


def _folder_of_a_kind(given: Path, returned: Sequence[str]) -> UsageError:
    tables = LogFolders.of_tables(given).out / layout.TABLES
    if len(returned) > 1:
        folders = ", ".join(str(tables / written_kind(kind)) for kind in returned)
        return UsageError(f"{given}: the model returns {len(returned)} kinds of vertices; give one of {folders}")
    return UsageError(f"{given}: the model returns one kind of vertices; give {tables}")
