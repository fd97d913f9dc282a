"""Checks of the messages that another server sends: nothing of them is used before it has passed here.

The other server may be of another version, broken, or somebody else's. Whatever does not fit raises a ValueError, which
ends that stream with its reason; the next server is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import orjson
import pyarrow as pa

from freshet.gnn.kinds.names import check_kinds
from freshet.job.service.generations import GENERATIONS_MAX
from freshet.job.serving.protocol.columns import whole
from freshet.job.serving.protocol.wanted import EPOCH, ROW
from freshet.state.served.times import NOTHING_KNOWN

WIDTH_MAX = 1 << 16  # numbers of an embedding
PARTS_MAX = 1 << 15  # Flink's largest parallelism
_WORD_MAX = 2**62
# It becomes part of the names of tables; of one of several kinds, its written name follows (see `log_id`).
_NAME = r"[0-9A-Za-z%][0-9A-Za-z_.%-]{0,127}"
_JOB_ID = re.compile(rf"[0-9A-Za-z_-]{{1,64}}(\.{_NAME})?")
_DIGEST = re.compile(r"[0-9a-f]{64}|")  # of SHA-256; it becomes the name of a folder
_SHOWN = 60


def _is_word(value: object) -> bool:
    return type(value) is int and 0 <= value <= _WORD_MAX


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 4096


def is_kind(value: object) -> bool:
    """Return whether a value is the name of a kind, or empty."""
    return isinstance(value, str) and (not value or _fits(value))


def _fits(kind: str) -> bool:
    try:
        check_kinds([kind])
    except ValueError:
        return False
    return True


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of 64 bits, with some room for sums."""
    return type(value) is int and -(2**62) <= value <= 2**62


def is_row_of_integers(value: object) -> bool:
    """Return whether a value is a list of four such integers."""
    return isinstance(value, list) and len(value) == 4 and all(map(is_integer, value))


def _is_positions(value: object) -> bool:
    return isinstance(value, list) and all(map(is_row_of_integers, value))


def _is_time(value: object) -> bool:
    return type(value) is int and -(2**63) < value < 2**63


def _is_times(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list)
        and len(row) == 1 + len(NOTHING_KNOWN)
        and _is_word(row[0])
        and all(one is None or _is_time(one) for one in row[1:])
        for row in value
    )


_Check = tuple[Callable[[Any], bool], str]
_WORD: _Check = _is_word, "an integer from 0 to 2^62"
_FLAG: _Check = _is_flag, "true or false"
_TEXT: _Check = _is_text, "a string"
_SHA256: _Check = (
    lambda one: isinstance(one, str) and _DIGEST.fullmatch(one) is not None,
    "64 hexadecimal digits, or none",
)
# Field of a job's description: its check, what is expected, and the value where it is absent (...: it must be there).
_JOB: dict[str, tuple[Callable[[Any], bool], str, Any]] = {
    "job_id": (lambda one: isinstance(one, str) and _JOB_ID.fullmatch(one) is not None, "letters and digits", ...),
    "strings": (*_FLAG, ...),
    "width": (lambda one: _is_word(one) and 0 < one <= WIDTH_MAX, f"an integer from 1 to {WIDTH_MAX}", ...),
    "sources": (lambda one: isinstance(one, list) and all(map(_is_text, one)), "a list of strings", ...),
    "parts": (lambda one: _is_word(one) and one <= PARTS_MAX, f"an integer from 0 to {PARTS_MAX}", 0),
    "begins_empty": (*_FLAG, False),
    "kind_name": (is_kind, "the name of a kind", ""),
    "consistency": (lambda one: one in (EPOCH, ROW), f"{EPOCH} or {ROW}", EPOCH),
    "model": (*_TEXT, ""),
    "model_folder": (*_TEXT, ""),
    "model_digest": (*_SHA256, ""),
    "model_sha256": (*_SHA256, ""),
    "generation": (
        lambda one: one is None or (_is_word(one) and one < GENERATIONS_MAX),
        f"null or an integer below {GENERATIONS_MAX}",
        None,
    ),
}
_METADATA: dict[str, _Check] = {
    "arrived_us": _WORD,
    "published_us": _WORD,
    "behind_us": (lambda one: one is None or is_integer(one), "an integer or null"),
    "tail_failures": _WORD,
    "ended": _FLAG,
    "positions": (_is_positions, "rows of four integers"),
}
# What servers of an earlier version do not say.
_LATER: dict[str, tuple[Callable[[Any], bool], str, Any]] = {
    "event_ts": (lambda one: one is None or _is_time(one), "an integer or null", None),
    "times": (_is_times, "rows of an epoch and two integers or nulls", []),
}


def job_fields(sent: object) -> dict[str, Any]:
    """Return the fields of a job's description, those that are absent with their defaults.

    Raises: ValueError naming the field that does not fit.
    """
    fields = _object(sent, "a job")
    found = {}
    for name, (fits, expected, default) in _JOB.items():
        value = fields.get(name, default)
        _check(value is not ... and fits(value), f"a job: {name}", expected, fields.get(name))
        found[name] = value
    return found


def change_head(sent: object) -> dict[str, Any]:
    """Return the metadata of a piece of changes, with every field that is read.

    Raises: ValueError naming what does not fit.
    """
    head = _object(sent, "a piece of changes")
    for name, (fits, expected) in {"epoch": _WORD, "whole": _FLAG, "lives": _FLAG}.items():
        _check(fits(head.get(name)), f"a piece of changes: {name}", expected, head.get(name))
    if "told" in head:
        metadata = _object(head["told"], "a piece of changes: told")
        for name, (fits, expected) in _METADATA.items():
            _check(fits(metadata.get(name)), f"a piece of changes: {name}", expected, metadata.get(name))
        for name, (fits, expected, default) in _LATER.items():
            metadata.setdefault(name, default)
            _check(fits(metadata[name]), f"a piece of changes: {name}", expected, metadata[name])
    return head


def whole_batches(chunks: Iterable[Any]) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield the metadata (JSON) and the batch of each chunk.

    Raises: pa.ArrowInvalid for a batch that reaches past its buffers, ValueError for a chunk without both.
    """
    for chunk in chunks:
        if chunk.data is None or chunk.app_metadata is None:
            msg = "a piece of a stream without a batch or without its metadata"
            raise ValueError(msg)
        yield parsed(chunk.app_metadata.to_pybytes()), whole(chunk.data)


def check_rows(batch: pa.RecordBatch, schema: pa.Schema, upto: int) -> None:
    """Check that a batch has the columns of `schema`, no nulls, and epochs from 0 to `upto`.

    Raises: ValueError saying what does not fit.
    """
    if not batch.schema.equals(schema):
        expected, got = (", ".join(f"{one.name} {one.type}" for one in each) for each in (schema, batch.schema))
        msg = f"a piece of changes: columns of another width or type: expected {expected}; got {got[:200]}"
        raise ValueError(msg)
    if any(column.null_count for column in [*batch.columns, batch.column(2).flatten()]):
        msg = "a piece of changes: expected columns without nulls"
        raise ValueError(msg)
    epochs = batch.column(1).to_numpy()
    if len(epochs) and not (epochs.min() >= 0 and epochs.max() <= upto):
        msg = f"a piece of changes: expected rows of epochs 0 to {upto}, got {epochs.min()} to {epochs.max()}"
        raise ValueError(msg)


def parsed(sent: bytes) -> Any:
    """Return the JSON value, of any type.

    Raises: ValueError.
    """
    return orjson.loads(sent)


def _object(sent: object, what: str) -> dict[str, Any]:
    _check(isinstance(sent, dict), what, "a JSON object", sent)
    return cast("dict[str, Any]", sent)


def _check(fits: bool, what: str, expected: str, got: object) -> None:
    if not fits:
        msg = f"{what}: expected {expected}, got {str(got)[:_SHOWN]!r}"
        raise ValueError(msg)
