"""Batches of messages, as MessageBatcher.java makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from freshet.operators.parser.messages import TopicMessage, messages_in


def batch_of(messages: Iterable[tuple[int, int, bytes | None]]) -> bytes:
    """The inverse of `freshet.operators.parser.messages.messages_in`, of (partition, offset, value)."""
    given = list(messages)
    size = [-1 if value is None else len(value) for _, _, value in given]
    columns = (
        np.array([len(given)], "<i8"),
        np.array([offset for _, offset, _ in given], "<i8"),
        np.array([partition for partition, _, _ in given], "<i4"),
        np.array(size, "<i4"),
    )
    values = [value + b"\n" for _, _, value in given if value is not None]
    return b"".join([*(column.tobytes() for column in columns), *values])


def messages_of(batch: bytes) -> Iterator[TopicMessage]:
    """The messages of a batch, in the order in which they were read."""
    order = {partition: iter(messages) for partition, messages in messages_in(batch).items()}
    count = sum(map(len, messages_in(batch).values()))
    for partition in np.frombuffer(batch, "<i4", count, 8 + 8 * count).tolist() if batch else ():
        yield TopicMessage(partition, *next(order[partition]))
