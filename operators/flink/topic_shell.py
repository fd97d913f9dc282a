"""The Parser's shell for a Kafka topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction as _Keyed

from operators.dataflow import PARTITIONER
from operators.flink.opening import await_others, counted_as_loading
from operators.flink.shells import PARTITIONER_KEY, _Shell

# The status goes on being written when a stream pauses.
STATUS_MS = 600


class MessageParserShell(_Shell, KeyedProcessFunction):
    """Turns batches of a topic's messages into blocks of events; keyed for the sake of timers alone."""

    def __init__(self, operator: str, config: str) -> None:
        """Take plain data; `operator` names the topic's Parser."""
        super().__init__(operator, config, [PARTITIONER_KEY], [PARTITIONER])

    def open(self, runtime_context: RuntimeContext) -> None:
        """Wait for the operators that the events go to."""
        with counted_as_loading(self):
            super().open(runtime_context)
        self._stage: Any = None
        await_others()

    def process_element(self, value: bytes, ctx: _Keyed.Context) -> Iterator[Any]:
        """Parse a batch."""
        if self._stage is None:
            self._stage = self._stages[0] = self._build(0)
        yield from self._parse(value, ctx)

    def on_timer(self, timestamp: int, ctx: _Keyed.OnTimerContext) -> Iterator[Any]:
        """Write the status that is behind."""
        if self._stage is not None and self._stage.status_behind:
            yield from self._parse(b"", ctx)

    def _parse(self, batch: bytes, ctx: Any) -> Iterator[Any]:
        blocks = self._act(self._stage.parse, batch)
        yield from self._events(blocks)
        yield from self._letters()
        if self._stage.status_behind:
            # a multiple of the wait, so that timers of about the same time are one
            due = (int(time.time() * 1e3) // STATUS_MS + 1) * STATUS_MS
            ctx.timer_service().register_processing_time_timer(due)
