"""Requests of clients, and their transports: shared by all clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from freshet.job.serving.protocol.columns import column_of_ids, ids_of_column
from freshet.job.serving.protocol.errors import (
    EXHAUSTED,
    BadRequestError,
    ExhaustedError,
    GoneError,
    NotReadyError,
    NotYetError,
    OtherModelError,
    TooFarError,
)
from freshet.job.serving.protocol.wanted import Wanted
from freshet.state.served.ids import Ids, Texts, frozen

_ERRORS = {
    one.served_as: one for one in (BadRequestError, NotYetError, NotReadyError, OtherModelError, GoneError, TooFarError)
}
ERROR_KINDS = (*_ERRORS, "failed", "too-slow", EXHAUSTED)  # kinds of errors that a server answers with
TOKEN_VARIABLE = "FRESHET_TOKEN"  # of the environment: a token that stands in no list of processes
SOURCE_TOKEN_VARIABLE = "FRESHET_SOURCE_TOKEN"  # of the servers that a server feeds from, where it is another one
AskedIds: TypeAlias = Sequence[int] | Sequence[str] | np.ndarray


class Transport(Protocol):
    """A way to the table."""

    consistency: str  # EPOCH or ROW, as the last answer said

    def table(self, ids: Ids | None, wanted: Wanted, logits: bool) -> tuple[int, pa.Table]:
        """The epoch and the rows of these ids (None: of all) as a table."""

    def rows(self, ids: Ids, wanted: Wanted) -> tuple[int, Ids, np.ndarray, np.ndarray]:
        """The epoch, and the ids found, their epochs and rows."""

    def quick(self, ids: Ids, min_epoch: int) -> tuple[int, Ids, np.ndarray, np.ndarray] | None:
        """Like `rows`, if there is a fast path and the table has reached that epoch; else None."""

    def ask(self, name: str, asked: dict[str, Any], wanted: Wanted, logits: bool = False) -> tuple[int, pa.Table]:
        """The epoch, and the answer to a request of this name with these fields (`job/serving/tables/requests.py`)."""

    def changes(self, since_epoch: int) -> Iterator[pa.Table | None]:
        """Yield what changes after an epoch; None now and then while nothing does. It ends with an error."""

    def health(self) -> dict[str, Any]:
        """Return the freshness of the table."""

    def close(self) -> None:
        """Close open resources."""


def ids_of(asked: AskedIds | pa.Array) -> Ids:
    """Return the ids in the table's form.

    Raises: BadRequestError if they are no list of int64 or of strings.
    """
    if isinstance(asked, np.ndarray) and asked.dtype.kind in "iu":
        return frozen(asked.astype(np.int64, copy=False))
    if isinstance(asked, pa.ChunkedArray | pa.Array):
        return ids_of_column(asked)
    values: list[Any] = list(asked)
    if all(isinstance(one, str) for one in values) and values:
        return Texts.encode(values)
    if all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in values):
        try:
            return frozen(np.array(values, np.int64))
        except OverflowError:
            pass
    msg = f"ids: expected integers of 64 bits or strings, one kind, got {str(values)[:80]}"
    raise BadRequestError(msg)


def as_batch(ids: Ids) -> pa.RecordBatch:
    """The ids as a lookup stream sends them."""
    return pa.RecordBatch.from_arrays([column_of_ids(ids)], ["id"])


def error_of(kind: str, text: str) -> Exception:
    """The error that a server means."""
    if kind == EXHAUSTED:
        return ExhaustedError(text.removeprefix(f"{EXHAUSTED}: "), again=True)
    return _ERRORS.get(kind, NotReadyError)(text)
