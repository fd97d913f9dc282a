"""The records of a job's output topic as rows: the newest of each id in a batch, and the ids that were deleted.

A record's epoch says which one is newer, not its place: after a failure older records may come again. A tombstone has
its epoch in a header.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from freshet.job.serving.feeds.checked import WIDTH_MAX
from freshet.job.serving.tables.change_log_rows import NewestRows
from freshet.operators.record_blocks import BINARY_HEAD, BINARY_VERSION, EPOCH_HEADER
from freshet.state.served.ids import Ids, Texts, frozen

_SHOWN = 60
_EPOCH_MAX = 2**62
_BINARY = bytes([BINARY_VERSION])  # how a value in binary begins
_KINDS = {False: "integer ids", True: "string ids"}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # as the job writes ids: int() would take " 7 " and "1_0", too


class Record(NamedTuple):
    """A record as it comes from a partition; `value` is None in a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, Any]] = ()


class BadRecordError(ValueError):
    """A record that no job of this kind writes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties common to all records of a topic: the kind of ids, the width of a row, and the model.

    `epoch_max`: the greatest epoch that a record may have.
    """

    strings: bool
    width: int
    model: str
    epoch_max: int = _EPOCH_MAX

    @staticmethod
    def of(record: Record) -> Kind | None:
        """Return the kind that a record with a row shows; None where it has no row, or can't be read."""
        value = record.value or b"null"
        try:
            if value[:1] == _BINARY:
                strings, _, model, row = _binary(value)
                kind = Kind(strings, len(row), model)
            else:
                fields = _json(value)
                kind = Kind(isinstance(fields["id"], str), len(_vector(fields["embedding"])), str(fields["model"]))
            _read(record, kind)
        except (BadRecordError, KeyError, TypeError):
            return None
        return kind if 0 < kind.width <= WIDTH_MAX else None


def rows_of_records(records: Iterable[Record], kind: Kind) -> tuple[NewestRows, list[str]]:
    """Return the newest row of each id, and the reasons of the records that can't be taken."""
    newest: dict[int | str, tuple[int, bytes | np.ndarray | None]] = {}
    refused: list[str] = []
    for record in records:
        try:
            id_, epoch, row = _read(record, kind)
        except BadRecordError as error:
            refused.append(str(error))
            continue
        before = newest.get(id_)
        # Of one epoch the row holds: the vertex moved between parts.
        if before is None or epoch > before[0] or (epoch == before[0] and row is not None):
            newest[id_] = epoch, row
    live = [(id_, epoch, row) for id_, (epoch, row) in newest.items() if row is not None]
    gone = [(id_, epoch) for id_, (epoch, row) in newest.items() if row is None]
    vectors = np.frombuffer(b"".join(bytes(row) for _, _, row in live), "<f4").reshape(-1, kind.width)
    found = NewestRows(
        _ids([id_ for id_, _, _ in live], kind.strings),
        np.array([epoch for _, epoch, _ in live], np.int64),
        vectors,
        _ids([id_ for id_, _ in gone], kind.strings),
        np.array([epoch for _, epoch in gone], np.int64),
    )
    return found, refused


def _read(record: Record, kind: Kind) -> tuple[int | str, int, bytes | None]:
    id_ = _id(record.key, kind.strings)
    if record.value is None:
        return id_, _epoch_of(record.headers, kind.epoch_max), None
    epoch: Any
    model: Any
    if record.value[:1] == _BINARY:
        strings, epoch, model, row = _binary(record.value)
        if strings != kind.strings:
            msg = f"ids: expected {_KINDS[kind.strings]}, got a value of a graph with {_KINDS[strings]}"
            raise BadRecordError(msg)
    else:
        fields = _json(record.value)
        epoch, model = fields.get("epoch"), fields.get("model")
        if fields.get("id") != id_ or type(fields.get("id")) is not type(id_):
            msg = f"id: expected that of the key, {str(id_)[:_SHOWN]!r}, got {str(fields.get('id'))[:_SHOWN]!r}"
            raise BadRecordError(msg)
        row = _vector(fields.get("embedding"))
    if type(epoch) is not int or not 0 <= epoch <= kind.epoch_max:
        msg = f"epoch: expected an integer from 0 to {kind.epoch_max}, got {str(epoch)[:_SHOWN]!r}"
        raise BadRecordError(msg)
    if model != kind.model:
        msg = f"model: expected {kind.model}, got {str(model)[:_SHOWN]!r}: the topic has rows of another model"
        raise BadRecordError(msg)
    if len(row) != kind.width:
        msg = f"embedding: expected {kind.width} numbers, got {len(row)}"
        raise BadRecordError(msg)
    return id_, epoch, row.tobytes()


def _binary(value: bytes) -> tuple[bool, int, str, np.ndarray]:
    """Return whether ids are strings, the epoch, the model and the row of a value in binary."""
    if len(value) < BINARY_HEAD.size or (len(value) - BINARY_HEAD.size) % 4:
        msg = f"value: expected a head of {BINARY_HEAD.size} bytes and float32, got {len(value)} bytes"
        raise BadRecordError(msg)
    _, model, strings, epoch = BINARY_HEAD.unpack_from(value)
    if strings not in (0, 1):
        msg = f"value: expected 0 or 1 in byte 7, got {strings}"
        raise BadRecordError(msg)
    return bool(strings), epoch, model.hex(), np.frombuffer(value, "<f4", offset=BINARY_HEAD.size)


def _id(key: bytes | None, strings: bool) -> int | str:
    try:
        text = (key if key is not None else b"\xff").decode()
        if strings:
            return text
        if _INTEGER.fullmatch(text) and -(2**63) <= (number := int(text)) < 2**63:
            return number
    except ValueError:
        pass
    msg = f"key: expected {'text' if strings else 'an integer of 64 bits'}, got {key!r:.{_SHOWN}}"
    raise BadRecordError(msg)


def _json(value: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        msg = f"value: expected JSON, got {value[:_SHOWN]!r}"
        raise BadRecordError(msg) from error
    if not isinstance(fields, dict):
        msg = f"value: expected a JSON object, got {value[:_SHOWN]!r}"
        raise BadRecordError(msg)
    return fields


def _vector(written: object) -> np.ndarray:
    """The numbers of an embedding in either format; null is no number."""
    try:
        if isinstance(written, str):
            return np.frombuffer(binascii.a2b_base64(written, strict_mode=True), "<f4")
        if isinstance(written, list) and all(one is None or type(one) in (int, float) for one in written):
            with np.errstate(over="ignore"):
                found = np.array(written, "<f4").reshape(-1)
            if np.isinf(found).any():  # a job writes null for what is not finite
                wrong = written[int(np.isinf(found).argmax())]
                msg = f"embedding: expected numbers of float32, got {wrong!s:.{_SHOWN}}"
                raise BadRecordError(msg)
            return found
    except BadRecordError:
        raise
    except (ValueError, OverflowError):  # binascii.Error is a ValueError
        pass
    msg = f"embedding: expected base64 of float32 or a list of numbers, got {str(written)[:_SHOWN]!r}"
    raise BadRecordError(msg)


def _epoch_of(headers: Sequence[tuple[str, Any]], epoch_max: int) -> int:
    written = next((value for name, value in headers if name == EPOCH_HEADER), None)
    if isinstance(written, bytes) and written.isdigit() and len(written) < 19 and int(written) <= epoch_max:
        return int(written)
    msg = f"header {EPOCH_HEADER}: expected a number from 0 on, got {written!r:.{_SHOWN}}"
    raise BadRecordError(msg)


def _ids(values: list[Any], strings: bool) -> Ids:
    return Texts.encode(values) if strings else frozen(np.array(values, np.int64))
