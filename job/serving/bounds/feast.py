"""Answers as Feast's feature server gives them, in parts: a column of values for each feature that is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from freshet.job.serving.bounds.json_answers import PART_BYTES as _PART_BYTES
from freshet.job.serving.bounds.json_answers import ids_in, items_of, object_of, values_of
from freshet.job.serving.bounds.sizes import FLOAT, NUMBER
from freshet.job.serving.http_front import as_json
from freshet.job.serving.lookup import Answer

EMBEDDING, EPOCH = "embedding", "epoch"
Column = tuple[str, str]  # the view, and the feature
_STATUS, _MOMENT, _NULL, _AROUND = 12, 23, 5, 64  # characters, with a comma


def feast_bytes(width: int, columns: Sequence[Column], count: int) -> int:
    """Return the maximum length of the answer for `count` ids, without the ids and names themselves."""
    of_value = {EMBEDDING: FLOAT * width + 3, EPOCH: NUMBER}
    around = _AROUND + count * (_STATUS + _MOMENT)
    return around + sum(around + count * of_value.get(column, _NULL) for _, column in columns)


def feast_parts(head: dict[str, Any], values: list[Any], columns: Sequence[Column], answer: Answer) -> Iterator[bytes]:
    """The answer for the ids `values`, whose other members are those of `head`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    at = {id_: k for k, id_ in enumerate(ids_in(answer))}
    rows = [at.get(value) for value in values]
    nowhere: list[int | None] = [None] * len(rows)
    yield as_json(head)[:-1] + b',"results":['
    yield from _column(values_of(values, 2 * NUMBER), [0] * len(rows), stamp)
    for _, column in columns:
        yield b","
        found = rows if column in (EMBEDDING, EPOCH) else nowhere
        yield from _column(_values(found, column, answer), found, stamp)
    yield b"]}"


def _column(values: Iterator[bytes], rows: list[int | None], stamp: str) -> Iterator[bytes]:
    statuses = ["NOT_FOUND" if row is None else "PRESENT" for row in rows]
    moments = values_of([stamp] * len(rows), _MOMENT)
    lists = {"values": values, "statuses": values_of(statuses, _STATUS), "event_timestamps": moments}
    yield from object_of({}, lists)


def _values(rows: list[int | None], column: str, answer: Answer) -> Iterator[bytes]:
    source: Any = answer.epochs.tolist() if column == EPOCH else answer.rows
    step = max(1, _PART_BYTES // (FLOAT * answer.rows.shape[1] if column == EMBEDDING else NUMBER))
    return items_of(
        [None if row is None else source[row] for row in rows[at : at + step]] for at in range(0, len(rows), step)
    )
