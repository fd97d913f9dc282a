"""Blocks by hand: what an epoch brings to a Storage or Tail, as a few lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.operators.control import control_values
from freshet.operators.outcome import Message
from freshet.state.block_columns import DTYPES, PARTIAL, SYNC, TOPOLOGY
from freshet.state.codec import Block, Header, decode, encode

QUIET = control_values()  # of an epoch without a marker


def block(kind: int, epoch: int, source: int = 0, flags: int = 0, **columns: Any) -> Block:
    """A block of these columns, once through the codec."""
    arrays = {name: np.array(values, DTYPES[name]) for name, values in columns.items()}
    return decode(encode(Header(kind, epoch, 0, source, flags), arrays))


def topology(epoch: int, **columns: Any) -> Block:
    """What Storage 0 gets."""
    return block(TOPOLOGY, epoch, ctl=QUIET, **columns)


def sync(epoch: int, source: int = 0, **columns: Any) -> Block:
    """What a Storage gets from the one before in its own part, with the topology."""
    return block(SYNC, epoch, source, ctl=QUIET, **columns)


def replica_sync(epoch: int, source: int, flags: int = 0, **columns: Any) -> Block:
    """What a Storage gets from others."""
    return block(SYNC, epoch, source, flags, **columns)


def partial(epoch: int, source: int, own: bool = False, **columns: Any) -> Block:
    """What a Tail gets from the Storage of a part; from its own with the topology."""
    return block(PARTIAL, epoch, source, **({"ctl": QUIET} if own else {}), **columns)


def sent(messages: list[Message], to: str) -> dict[int, dict[str, Any]]:
    """Task -> columns of the blocks for that kind of operator, as lists; control values left out."""
    found: dict[int, dict[str, Any]] = {}
    for message in messages:
        if message.to == to:
            columns = message.block.columns
            found[message.task] = {name: column.tolist() for name, column in columns.items() if name != "ctl"}
    return found
