"""Answers as Feast's feature server gives them, in parts: a column of values for each feature that is asked for.

The time of a value is that of its row's epoch: the largest `ts` of its events, else when the last of them came. Where
neither is known, and for an id without a row, it is the beginning of 1970, as Feast's own server has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from freshet.job.serving.bounds.asked_ids import as_stored
from freshet.job.serving.bounds.budget import FLOAT, NUMBER
from freshet.job.serving.doors.http_front import as_json
from freshet.job.serving.doors.json_answers import PART_BYTES as _PART_BYTES
from freshet.job.serving.doors.json_answers import ids_in, items_of, object_of, values_of
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Answer
from freshet.state.served.ids import Texts
from freshet.state.served.times import NO_TIME

EMBEDDING, EPOCH = "embedding", "epoch"
_NEVER = "1970-01-01T00:00:00.000Z"
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
Column = tuple[str, str]  # the view, and the feature
_STATUS, _MOMENT, _NULL, _AROUND = 12, 27, 5, 64  # characters, with a comma


def feast_bytes(width: int, columns: Sequence[Column], count: int) -> int:
    """Return the maximum length of the answer for `count` ids, without the ids and names themselves."""
    of_value = {EMBEDDING: FLOAT * width + 3, EPOCH: NUMBER}
    around = _AROUND + count * (_STATUS + _MOMENT)
    return around + sum(around + count * of_value.get(column, _NULL) for _, column in columns)


def moments_of(lookup: Lookup, answer: Answer) -> np.ndarray:
    """Return the time of each row of an answer, as text, (n,) str.

    Raises: DamagedFileError.
    """
    arrived_ms, event_ts = lookup.times_of(answer).T
    times = np.where(event_ts != NO_TIME, event_ts, arrived_ms)
    known = np.where(times != NO_TIME, times, 0)
    years = known.clip(_FIRST_MS, _LAST_MS).astype("datetime64[ms]")  # what Python's datetime can read
    return np.datetime_as_string(years, unit="ms", timezone="UTC")


def feast_parts(
    head: dict[str, Any], values: list[Any], columns: Sequence[Column], answer: Answer, moments: np.ndarray
) -> Iterator[bytes]:
    """The answer for the ids `values`, whose other members are those of `head`; `moments` are the times of its rows."""
    at = {id_: k for k, id_ in enumerate(ids_in(answer))}
    rows = [at.get(value) for value in as_stored(values, isinstance(answer.ids, Texts))]
    nowhere: list[int | None] = [None] * len(rows)
    yield as_json(head)[:-1] + b',"results":['
    times = [_NEVER, *moments.tolist()]
    stamps = [times[0 if row is None else row + 1] for row in rows]
    yield from _column(values_of(values, 2 * NUMBER), [0] * len(rows), stamps)
    for _, column in columns:
        yield b","
        found = rows if column in (EMBEDDING, EPOCH) else nowhere
        yield from _column(_values(found, column, answer), found, stamps)
    yield b"]}"


def _column(values: Iterator[bytes], rows: list[int | None], stamps: list[str]) -> Iterator[bytes]:
    statuses = ["NOT_FOUND" if row is None else "PRESENT" for row in rows]
    moments = values_of(stamps, _MOMENT)
    lists = {"values": values, "statuses": values_of(statuses, _STATUS), "event_timestamps": moments}
    yield from object_of({}, lists)


def _values(rows: list[int | None], column: str, answer: Answer) -> Iterator[bytes]:
    source: Any = answer.epochs.tolist() if column == EPOCH else answer.rows
    step = max(1, _PART_BYTES // (FLOAT * answer.rows.shape[1] if column == EMBEDDING else NUMBER))
    return items_of(
        [None if row is None else source[row] for row in rows[at : at + step]] for at in range(0, len(rows), step)
    )
