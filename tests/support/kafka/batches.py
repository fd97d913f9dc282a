"""Batches of messages, as MessageBatcher.java makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from freshet.operators.parser.messages import TopicMessage, messages_in


def batch_of(messages: Iterable[tuple[int, int, bytes | None]]) -> bytes:
    """The inverse of `freshet.operators.parser.messages.messages_in`."""
    given = [TopicMessage(*one) for one in messages]
    there = [one.key if one.value is None else one.value for one in given]
    size = [-1 if one is None else len(one) for one in there]
    size = [-2 - n if one.value is None and n >= 0 else n for one, n in zip(given, size, strict=True)]
    columns = (
        np.array([len(given)], "<i8"),
        np.array([one.offset for one in given], "<i8"),
        np.array([one.partition for one in given], "<i4"),
        np.array(size, "<i4"),
    )
    values = [one + b"\n" for one in there if one is not None]
    return b"".join([*(column.tobytes() for column in columns), *values])


def messages_of(batch: bytes) -> Iterator[TopicMessage]:
    """The messages of a batch, in the order in which they were read."""
    order = {partition: iter(messages) for partition, messages in messages_in(batch).items()}
    count = sum(map(len, messages_in(batch).values()))
    for partition in np.frombuffer(batch, "<i4", count, 8 + 8 * count).tolist() if batch else ():
        yield TopicMessage(partition, *next(order[partition]))
