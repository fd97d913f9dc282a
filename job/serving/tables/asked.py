"""Tables of a job whose embeddings are computed at the read: rows of the last layer, made of those of the inner one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.tables.hypotheses import Embedder
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.state.served.ids import Ids
from freshet.state.served.mapped import NEWEST, Found
from freshet.state.served.reader import TableReader

_PATIENCE_S = 10.0
NOT_OF_ALL = (
    "embeddings of this job are computed as they are asked for (--embeddings asked), so there are no lists of all "
    "rows, no changes and no neighbours; ask for ids, or run the job with --embeddings eager"
)
NOT_MAPPED = (
    "embeddings of this job are computed by its server (--embeddings asked), and its table has rows of inner layers; "
    "give the server's address, HOST:PORT"
)


class AskedTable(TableReader):
    """The table of an inner layer, which gives embeddings in the place of its rows; their epoch is that of the answer.

    Shapes: rows (n, width) float32, of the model's embeddings
    """

    def __init__(self, path: Path, kind: str, width: int, embedder: Embedder) -> None:
        """Map the table; see TableReader."""
        super().__init__(path)
        self.width, self._kind, self._embedder = width, kind, embedder

    def get(self, ids: Ids, upto: int = NEWEST) -> Found:
        """Compute the embeddings of these ids.

        Raises: HistoryTooShortError, NotYetError, NotReadyError.
        """
        return self._embedder.embedded(self._kind, ids, upto, _PATIENCE_S)

    def few(self, ids: Ids, wanted: int) -> None:
        """There is no quick way."""

    def few_into(self, ids: Ids, wanted: int, own: np.ndarray, rows: np.ndarray) -> int:
        """There is no quick way."""
        return -1


class AskedTables(CurrentTable):
    """The source of embeddings of a kind of vertices."""

    is_computed = True

    def __init__(self, inner: CurrentTable, job: JobHere, width: int, embedder: Embedder) -> None:
        """`inner` has rows of the inner layer; `job` is described as answers are of it."""
        super().__init__(inner.tables, job)
        self._width, self._embedder = width, embedder

    def whole(self) -> NoReturn:
        """Refuse what needs the rows of all vertices.

        Raises: BadRequestError.
        """
        raise BadRequestError(NOT_OF_ALL)

    def _reader(self, path: Path) -> TableReader:
        return AskedTable(path, self._expected.kind_name, self._width, self._embedder)

    def _job_of(self, shown: tuple[Path, dict[str, Any] | None] | None, path: Path) -> JobHere:
        return self._expected


def asked_job(job: JobHere, kind: str, kind_name: str) -> JobHere:
    """Return the job of an inner layer's table as it is described with embeddings of a kind: others read no tails."""
    return job._replace(kind=kind, kind_name=kind_name, inner_width=0, tails=None)
