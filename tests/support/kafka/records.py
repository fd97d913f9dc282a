"""The records in a block (`operators.record_blocks` has their form), and what a record says."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from freshet.operators.record_blocks import BINARY_HEAD, BINARY_VERSION, KafkaRecord, records_of


def split(block: bytes) -> list[tuple[bytes, bytes | None]]:
    """Key and value (None: a tombstone) of the records in a block."""
    return [(key, value) for key, value, _ in split_epochs(block)]


def split_epochs(block: bytes) -> list[KafkaRecord]:
    """Key, value and the header of the records in a block: a tombstone has an epoch and no value."""
    records = list(records_of(block))
    assert all((value is None) == (epoch is not None) for _, value, epoch in records)
    return records


def parse(value: bytes) -> dict[str, Any]:
    """A record's value, its embedding as an array (NaN where a list has null); of a binary one without the id."""
    if value[:1] != b"{":
        version, model, _, epoch = BINARY_HEAD.unpack_from(value)
        assert version == BINARY_VERSION
        vector = np.frombuffer(value, "<f4", offset=BINARY_HEAD.size)
        return {"epoch": epoch, "model": model.hex(), "embedding": vector}
    record: dict[str, Any] = json.loads(value)
    found = record["embedding"]
    if isinstance(found, str):
        record["embedding"] = np.frombuffer(base64.b64decode(found, validate=True), "<f4")
    else:
        record["embedding"] = np.array(found, np.float32)
    return record
