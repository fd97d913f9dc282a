"""The client's way straight to the table that a server of this machine keeps, with no server in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.returned_kinds import KindChoiceError
from freshet.job.serving.clients.changed import tables_of
from freshet.job.serving.feeds.fed_job import FedJob
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.wanted import EPOCH, ROW, Wanted
from freshet.job.serving.tables.asked import NOT_MAPPED
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import FEW, Lookup, joined
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

    def __init__(self, tables: Path, kind: str | None = None) -> None:
        """`kind`: of the vertices whose rows are read, where the folder has tables of several."""
        self._tables, self._kind = tables.absolute(), kind
        self._known: Lookup | None = None  # of all kinds
        self._rows: Lookup | None = None
        self._returned: tuple[str, ...] = ()  # kinds of a job whose folder has tables of several
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
        served = self._lookup.at_hand()
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

    def ask(self, name: str, asked: dict[str, Any], wanted: Wanted, logits: bool = False) -> tuple[int, pa.Table]:
        """Answer a request of this name here."""
        answer = REQUESTS[name].run(of_generation(self._every, wanted.generation), asked, wanted)
        self.consistency = answer.served.job.consistency
        return answer.epoch, answer.as_table(logits)

    def changes(self, since_epoch: int) -> Iterator[pa.Table | None]:
        """Read changes from the table, as its writer makes them."""
        from freshet.job.serving.feeds import change_stream

        lookup = self._lookup
        served = lookup.whole
        if served.job.consistency == ROW:
            raise BadRequestError(change_stream.OF_ROWS)
        found = change_stream.changes(lookup, served, lambda: False, since_epoch)
        yield from tables_of(piece for change, end in found for piece in change_stream.batches_of(change, end))

    def health(self) -> dict[str, Any]:
        """Return the figures of the table's header."""
        return Health(self._every).figures()

    def close(self) -> None:
        """The mapping goes with the object."""

    def _epoch_of(self, answer: Answer) -> int:
        self.consistency = answer.served.job.consistency
        return answer.epoch

    @property
    def _lookup(self) -> Lookup:
        """The lookup of rows.

        Raises: UsageError where the folder has tables of several kinds and none is named.
        """
        if self._rows is None:
            every = self._every
            if self._kind is None and (returned := self._returned or [*every.beside]):
                raise _folder_of_a_kind(self._tables, returned)
            self._rows = every.of(self._kind)
        return self._rows

    @property
    def _every(self) -> Lookup:
        """The lookups of all kinds of the folder; a job is looked for once, what each table says of its own holds."""
        with self._lock:
            if self._known is None:
                found = [Lookup(CurrentTable(tables, job)) for tables, job in self._jobs().items()]
                if found[0].job.inner_width:
                    raise BadRequestError(NOT_MAPPED)
                self._known, self.consistency = joined(found), found[0].job.consistency
            return self._known

    def _jobs(self) -> dict[Path, JobHere]:
        """Return the job of each kind by its folder of tables."""
        tables = self._tables
        try:
            job = ServedJob.of_tables(tables) or FedJob.recorded(tables)
        except KindChoiceError as error:
            if len(error.returned) < 2 or LogFolders.of_tables(tables).kind:
                raise _folder_of_a_kind(tables, error.returned) from None
            self._returned = error.returned
            every = [one for kind in error.returned if (one := ServedJob.of_tables(tables, kind)) is not None]
            kept = [one for one in every if read_shown(one.log.tables) is not None]
            return {one.log.tables: JobHere.of(one) for one in kept or every}
        if job is not None:
            return {tables: JobHere.of(job)}
        places = [tables, *sorted(one for one in tables.glob("*/") if one.is_dir())]
        shown = {one: read_shown(one) for one in places}  # of a service, whose job is elsewhere
        if described := {one: JobHere.described(of[1]) for one, of in shown.items() if of is not None and of[1]}:
            return described
        msg = (
            f"{tables}: no job beside it; give O/tables, of the --out folder O of a `freshet run`, or the "
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
