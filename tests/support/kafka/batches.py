"""Batches of messages, as MessageBatcher.java makes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from freshet.operators.parser.topic_stage import TopicMessage


def batch_of(messages: Iterable[TopicMessage]) -> bytes:
    """The inverse of `freshet.operators.parser.topic_stage.messages_of`."""
    pieces = []
    for partition, offset, value in messages:
        pieces += [struct.pack(">iqi", partition, offset, -1 if value is None else len(value)), value or b""]
    return b"".join(pieces)
