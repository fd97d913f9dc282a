"""What the job's SQL makes of a block of lines (`operators.record_lines` has their form), and what a record says."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from freshet.operators.record_lines import LINE_END, TAB


def split(block: bytes) -> list[tuple[bytes, bytes | None]]:
    """Key and value (None: a tombstone) of the records in a block."""
    return [(key, value) for key, value, _ in split_epochs(block)]


def split_epochs(block: bytes) -> list[tuple[bytes, bytes | None, int | None]]:
    """Key, value and the header of the records in a block: a tombstone has an epoch and no value."""
    records: list[tuple[bytes, bytes | None, int | None]] = []
    for line in block.decode("ascii").split(LINE_END):
        fields = line.split(TAB)
        key = bytes.fromhex(fields[1]) if fields[0] == "" else fields[0].encode()
        rest = fields[2:] if fields[0] == "" else fields[1:]
        if rest[0]:
            assert len(rest) == 1
            records.append((key, rest[0].encode(), None))
        else:
            assert len(rest) == 2
            records.append((key, None, int(rest[1])))
    return records


def parse(value: bytes) -> dict[str, Any]:
    """A record's value, its embedding as an array (NaN where a list has null)."""
    record: dict[str, Any] = json.loads(value)
    found = record["embedding"]
    if isinstance(found, str):
        record["embedding"] = np.frombuffer(base64.b64decode(found, validate=True), "<f4")
    else:
        record["embedding"] = np.array(found, np.float32)
    return record
