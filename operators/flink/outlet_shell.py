"""The Sink of a job that writes a topic: its messages are blocks of lines, which leave Python as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyflink.common import Row

from operators.dataflow import OUTLET, SINK
from operators.flink.shells import StageShell


class OutletShell(StageShell):
    """A Sink with an outlet."""

    def __init__(self, config: str, keys: list[int]) -> None:
        """Take plain data only."""
        super().__init__(SINK, config, keys, [OUTLET])

    def _elements(self, messages: Sequence[Any]) -> Iterator[Any]:
        for message in messages:
            self._profile.bytes_out += len(message.block)
            self._profile.bytes_away += len(message.block)
            yield Row(message.block.decode("ascii"))
