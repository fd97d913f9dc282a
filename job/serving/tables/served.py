"""Source of answers: the table that is valid now, the job and the model that its rows are of, and answers of it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from freshet.job.service.generations import GENERATION
from freshet.job.serving.bounds.budget import RowShape
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.wanted import EPOCH, ROW, as_metadata
from freshet.job.serving.tables.place import read_shown, read_table_file
from freshet.job.serving.tables.served_job import ServedJob, TailsHere, readouts_of
from freshet.operators.output_folders import LogFolders
from freshet.state.served.ids import Ids, Texts, frozen, slice_of
from freshet.state.served.mapped import NoTableError
from freshet.state.served.plain import PlainReader
from freshet.state.served.times import NOTHING_KNOWN, Moment

if TYPE_CHECKING:
    from freshet.gnn.layers.link_scores import LinkScores
    from freshet.gnn.readout import Readout
    from freshet.state.served.reader import TableReader

_LOOK_S = 0.2
_WHOLE_S = 10.0  # for a table that is being taken over, which takes less than one


class JobHere(NamedTuple):
    """The job whose rows a table has, as answers and readers of the table need to know it."""

    sources: tuple[str, ...] = ()
    consistency: str = EPOCH
    kind: str = ""  # where the model returns several
    kind_name: str = ""  # of that kind, or of the only one that the model returns
    lacks: str = ""  # which rows a topic that it comes from can't have
    job_id: str = ""  # of the change log; empty where it is not known
    model: str = ""  # the folder, empty without one
    model_sha256: str = ""  # empty where it is not known
    tails: TailsHere | None = None  # that the server's machine has or may have
    generation: int | None = None  # of a service
    inner_width: int = 0  # of rows of an inner layer that the table has in the place of embeddings
    out: str = ""  # its folder, where that is not beside the table

    @staticmethod
    def of(job: ServedJob) -> JobHere:
        """Return what answers need to know of a job."""
        return JobHere.described(job.described())

    @staticmethod
    def described(fields: dict[str, Any]) -> JobHere:
        """The inverse of `ServedJob.described`, also of the record beside a table."""
        known = {name: fields[name] for name in JobHere._fields if name in fields}
        tails = known.get("tails")
        more = {"sources": tuple(known["sources"]), "tails": None if tails is None else TailsHere(**tails)}
        return JobHere(**(known | more))

    @property
    def more(self) -> dict[str, Any]:
        """Metadata of answers besides the epoch and its times.

        The consistency, unless it is by epochs; of a service the generation, and the SHA-256 of the model.
        """
        found: dict[str, Any] = {} if self.consistency == EPOCH else {"consistency": self.consistency}
        of_service = {"generation": self.generation, "model": self.model_sha256}
        return found if self.generation is None else found | of_service

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its id and its generation, see ServedJob."""
        return self.job_id, self.generation

    @property
    def base(self) -> int:
        """The epoch under which the job's epoch 0 is served."""
        return (self.generation or 0) * GENERATION

    @property
    def id_of_job(self) -> str:
        """Id of the job itself, which all of its change logs share."""
        return self.job_id.partition(".")[0]

    def check_kind(self, kind: str | None) -> None:
        """Refuse another kind than that of the rows; a server that feeds from a topic may not know its kind.

        Raises: BadRequestError
        """
        unsure = not self.kind_name and self.consistency == ROW
        if kind is None or (kind and (kind == self.kind_name or unsure)):
            return
        known = f"the embeddings of {self.kind_name}" if self.kind_name else "embeddings of one kind, which has no name"
        cure = "ask the server of that kind" if self.kind_name else "leave it out"
        msg = f"kind: this server has {known}, got {kind!r}; {cure}"
        raise BadRequestError(msg)

    def log_beside(self, tables: Path) -> LogFolders:
        """Return the folders of its change log, if they are on this machine."""
        return LogFolders(Path(self.out), self.kind) if self.out else LogFolders.of_tables(tables)


_ANY_JOB = JobHere()


class Served(NamedTuple):
    """Source of an answer: all of it comes from one.

    `generation` grows whenever another table, of whatever job or model, takes the place of the one before.
    """

    generation: int
    job: JobHere
    table: TableReader | PlainReader

    @property
    def readout(self) -> Readout | None:
        """The function that is applied to rows at the read; None without a model, and of a model without a head.

        Raises: NotReadyError where the model is not that of the rows.
        """
        job = self.job
        return readouts_of(job.model, job.model_sha256).of(job.kind) if job.model else None

    @property
    def scored_kinds(self) -> list[tuple[str, str]]:
        """Kinds of the left and the right vertex of each link head of the model; none where it has no kinds.

        Raises: NotReadyError where the model is not that of the rows.
        """
        job = self.job
        return readouts_of(job.model, job.model_sha256).scored_kinds if job.model else []

    def link_scores(self, right: Served) -> LinkScores:
        """Return the function that scores pairs of its rows and others: the model's link head, or the dot product.

        Raises: BadRequestError where the model has heads, but none for these kinds.
        """
        from freshet.gnn.model import ModelError
        from freshet.gnn.readout import dot_product

        job = self.job
        try:
            found = readouts_of(job.model, job.model_sha256) if job.model else None
            return dot_product() if found is None else found.link_scores(job.kind, right.job.kind)
        except ModelError as error:
            msg = f"score: {error}"
            raise BadRequestError(msg) from error

    def row_shape(self, *, readout: bool = False) -> RowShape:
        """Return the contents of a row of an answer."""
        found = self.readout if readout else None
        return RowShape(self.table.width, 0 if found is None else found.width)

    @property
    def whole(self) -> TableReader:
        """The table with all that can be read of it, where it comes from `CurrentTable.whole`."""
        return cast("TableReader", self.table)

    def so_far(self, epoch: int) -> Moment:
        """Return the time up to which an answer's epoch has the input, and the largest `ts` of events up to it.

        Nothing is known of rows of no one epoch, and of epochs of earlier versions.
        """
        return self.table.so_far(epoch) if self.job.consistency == EPOCH else NOTHING_KNOWN

    def metadata(self, epoch: int) -> dict[str, str]:
        """Return the metadata of an answer: its epoch, its times where they are known, and what `more` says."""
        return (
            {"epoch": str(epoch)}
            | as_metadata(self.so_far(epoch))
            | {name: str(value) for name, value in self.job.more.items()}
        )


class Answer(NamedTuple):
    """Rows of ids at one epoch, without those that have none.

    Shapes: epochs (n,) int64, each row's own; rows (n, width) float32
    """

    epoch: int
    ids: Ids
    epochs: np.ndarray
    rows: np.ndarray
    asked: int
    served: Served

    def part(self, begin: int, end: int) -> Answer:
        """Some of its rows."""
        ids, here = slice_of(self.ids, begin, end), slice(begin, end)
        return self._replace(ids=ids, epochs=self.epochs[here], rows=self.rows[here])


class Tables(Protocol):
    """A source of tables, for a Lookup: see CurrentTable."""

    tables: Path
    is_computed: bool

    @property
    def job(self) -> JobHere:
        """The job of the table."""

    @property
    def switches(self) -> int | None:
        """The number of generations of a service that came since the first one that was read."""

    def served(self) -> Served:
        """The table and its job."""

    def at_hand(self) -> Served:
        """The same, for a caller that checks itself whether the table was replaced."""

    def whole(self) -> Served:
        """The table with all that can be read of it."""


class CurrentTable:
    """The table that is valid now, by whatever file, and the job that it is of; safe for threads."""

    is_computed = False  # whether its rows are computed at the read

    def __init__(self, tables: Path, job: JobHere = _ANY_JOB) -> None:
        """`job`: the one that a table is of, while there is none, and where an earlier version has not said it."""
        self.tables, self._expected = tables, job
        self._served: Served | None = None
        self._first: int | None = None  # generation of a service that was served first
        self._lock = threading.Lock()
        self._looked = 0.0
        self._left: PlainReader | None = None
        self._is_whole = threading.Event()
        self._is_whole.set()

    @property
    def job(self) -> JobHere:
        """The job of the table; while there is none, the one that is expected."""
        try:
            return self.served().job
        except NotReadyError:
            return self._expected

    @property
    def switches(self) -> int | None:
        """The number of generations of a service that came since the first one that was read; None without one."""
        generation = self.job.generation
        return None if generation is None or self._first is None else generation - self._first

    def begin_with(self, left: Path) -> None:
        """Read the table that another server left, until `go_on`; nobody writes it before."""
        self._left = PlainReader(left)
        self._served = Served(self._next, self._job_of(read_shown(self.tables), left), self._left)
        self._is_whole.clear()

    def go_on(self) -> None:
        """Note that rows may change from now on."""
        from freshet.state.served.reader import TableReader

        left, self._left = self._left, None
        if left is not None and self._served is not None:
            reader = TableReader(left.path)
            nothing: Ids = Texts.encode([]) if left.strings else frozen(np.empty(0, np.int64))
            reader.get(nothing)  # the kernels are loaded before anybody waits for them
            self._served = Served(self._next, self._served.job, reader)
            left.hand_over(reader)
            self._is_whole.set()

    def whole(self) -> Served:
        """The table with all that can be read of it; waits a moment while one that another server left is taken over.

        Raises: NotReadyError while there is none.
        """
        if not self._is_whole.wait(_WHOLE_S):
            msg = "the table is being taken over; try again in a moment"
            raise NotReadyError(msg)
        return self.served()

    def served(self) -> Served:
        """The table and its job.

        Raises: NotReadyError while there is none.
        """
        found = before = self._served
        now = time.monotonic()
        if found is not None and self._left is None and now - self._looked > _LOOK_S:
            self._looked = now  # a server that was killed could not say that its table has been replaced
            path = read_table_file(self.tables)
            found = found if path in (None, found.table.path) else None
        if found is None or found.table.superseded:
            with self._lock:
                found = self._served
                if found is None or found is before or found.table.superseded:
                    found = self._served = self._open()
        return found

    def at_hand(self) -> Served:
        """Like `served`, for a caller that checks itself whether the table was replaced."""
        found = self._served
        return self.served() if found is None or time.monotonic() - self._looked > _LOOK_S else found

    @property
    def _next(self) -> int:
        return 0 if self._served is None else self._served.generation + 1

    def _job_of(self, shown: tuple[Path, dict[str, Any] | None] | None, path: Path) -> JobHere:
        if shown is None or shown[1] is None or shown[0] != path:
            job = self._expected
        else:
            job = JobHere.described(shown[1])
        self._first = job.generation if self._first is None else self._first
        return job

    def _reader(self, path: Path) -> TableReader:
        from freshet.state.served.reader import TableReader

        return TableReader(path)

    def _open(self) -> Served:
        for _ in range(100):  # another server may be putting its own in the place
            shown = read_shown(self.tables)
            if shown is not None:
                with suppress(FileNotFoundError, NoTableError):
                    found = self._reader(shown[0])
                    if not found.superseded:
                        return Served(self._next, self._job_of(shown, shown[0]), found)
            elif self._served is None:
                break
            time.sleep(0.005)
        msg = f"{self.tables}: no server keeps a table there; start `freshet serve --tables {self.tables}`"
        raise NotReadyError(msg)
