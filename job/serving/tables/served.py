"""Source of answers: the table that is valid now, the job and the model that its rows are of, and answers of it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from freshet.job.serving.bounds.budget import RowShape
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.wanted import EPOCH
from freshet.job.serving.tables.place import read_table_file
from freshet.job.serving.tables.served_job import readouts_of
from freshet.state.served.ids import Ids, Texts, frozen, slice_of
from freshet.state.served.mapped import NoTableError
from freshet.state.served.plain import PlainReader

if TYPE_CHECKING:
    from freshet.gnn.layers.link_scores import LinkScores
    from freshet.gnn.readout import Readout
    from freshet.state.served.reader import TableReader

_LOOK_S = 0.2
_WHOLE_S = 10.0  # for a table that is being taken over, which takes less than one


class JobHere(NamedTuple):
    """The job whose rows a table has, as answers need to know it: names of its inputs, consistency, kind of several."""

    sources: tuple[str, ...] = ()
    consistency: str = EPOCH
    kind: str = ""


class Served(NamedTuple):
    """Source of an answer: all of it comes from one.

    `generation` grows whenever another table, of whatever job or model, takes the place of the one before; `model`: the
    folder, empty without one.
    """

    generation: int
    job: JobHere
    model: str
    table: TableReader | PlainReader

    @property
    def readout(self) -> Readout | None:
        """The function that is applied to rows at the read; None without a model, and of a model without a head."""
        return readouts_of(self.model).of(self.job.kind) if self.model else None

    @property
    def link_scores(self) -> LinkScores:
        """Return the function that scores pairs of rows: the model's link head, or the dot product.

        Raises: BadRequestError where the model has heads, but none for two rows of this table.
        """
        from freshet.gnn.model import ModelError
        from freshet.gnn.readout import dot_product

        try:
            kind = self.job.kind
            return readouts_of(self.model).link_scores(kind, kind) if self.model else dot_product()
        except ModelError as error:
            msg = f"score: this server has the embeddings of {self.job.kind}, and {error}"
            raise BadRequestError(msg) from error

    def row_shape(self, *, readout: bool = False) -> RowShape:
        """Return the contents of a row of an answer."""
        found = self.readout if readout else None
        return RowShape(self.table.width, 0 if found is None else found.width)


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


class CurrentTable:
    """The table that is valid now, by whatever file; safe for threads."""

    def __init__(self, tables: Path) -> None:
        self.tables = tables
        self._reader: TableReader | PlainReader | None = None
        self._lock = threading.Lock()
        self._looked = 0.0
        self._left: PlainReader | None = None
        self._is_whole = threading.Event()
        self._is_whole.set()

    def begin_with(self, left: Path) -> None:
        """Read the table that another server left, until `go_on`; nobody writes it before."""
        self._reader = self._left = PlainReader(left)
        self._is_whole.clear()

    def go_on(self) -> None:
        """Note that rows may change from now on."""
        from freshet.state.served.reader import TableReader

        left, self._left = self._left, None
        if left is not None:
            reader = TableReader(left.path)
            nothing: Ids = Texts.encode([]) if left.strings else frozen(np.empty(0, np.int64))
            reader.get(nothing)  # the kernels are loaded before anybody waits for them
            self._reader = reader
            left.hand_over(reader)
            self._is_whole.set()

    def whole(self) -> TableReader:
        """The table with all that can be read of it; waits a moment while one that another server left is taken over.

        Raises: NotReadyError while there is none.
        """
        if not self._is_whole.wait(_WHOLE_S):
            msg = "the table is being taken over; try again in a moment"
            raise NotReadyError(msg)
        return cast("TableReader", self.reader())

    def reader(self) -> TableReader | PlainReader:
        """The table.

        Raises: NotReadyError while there is none.
        """
        found, now = self._reader, time.monotonic()
        if found is not None and self._left is None and now - self._looked > _LOOK_S:
            self._looked = now  # a server that was killed could not say that its table has been replaced
            path = read_table_file(self.tables)
            found = found if path in (None, found.path) else None
        if found is None or found.superseded:
            with self._lock:
                found = self._reader = self._open()
        return found

    def at_hand(self) -> TableReader | PlainReader:
        """Like `reader`, for a caller that checks itself whether the table was replaced."""
        found = self._reader
        return self.reader() if found is None or time.monotonic() - self._looked > _LOOK_S else found

    def _open(self) -> TableReader:
        from freshet.state.served.reader import TableReader

        for _ in range(100):  # another server may be putting its own in the place
            path = read_table_file(self.tables)
            if path is not None:
                with suppress(FileNotFoundError, NoTableError):
                    found = TableReader(path)
                    if not found.superseded:
                        return found
            elif self._reader is None:
                break
            time.sleep(0.005)
        msg = f"{self.tables}: no server keeps a table there; start `freshet serve --tables {self.tables}`"
        raise NotReadyError(msg)
