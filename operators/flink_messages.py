"""The Parser's shell for a Kafka topic: gathers messages, and never loses one that waits.

A call of Python per message costs 16 us, parsing and a block 0.3 ms at least, so messages are parsed many at once. The
ones that wait for that are in keyed state, because nothing tells a Python operator that a checkpoint is about to be
taken. A list state costs 9 us a message (RocksDB; a map state 60), and clearing it is one deletion. A message
that comes after a pause is parsed at once, and so is what makes the batch full: those are never written to state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Row
from pyflink.common.typeinfo import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction as _Keyed
from pyflink.datastream.state import ListStateDescriptor

from operators.flink_shells import MAX_TIMESTAMP, PARTITIONER_KEY, _Shell
from operators.levels import Level
from operators.loading import await_others, counted_as_loading
from operators.message_parsing import TopicMessage

BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 4000
# How long a message waits at most for others to be parsed with. Blocks come no faster than that.
LINGER_MS = 10
# The status goes on being written when a stream pauses.
STATUS_MS = 600


class MessageParserShell(_Shell, KeyedProcessFunction):
    """Turns a topic's messages, Row(partition, offset, value), into blocks of events."""

    def __init__(self, operator: str, config: str) -> None:
        """Take plain data; `operator` names the topic's Parser."""
        super().__init__(operator, config, [PARTITIONER_KEY], "partitioner", None)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state, and wait for the operators that the events go to."""
        with counted_as_loading(self):
            super().open(runtime_context)
            self._kept = runtime_context.get_list_state(ListStateDescriptor("messages", Types.PICKLED_BYTE_ARRAY()))
        self._batch: list[TopicMessage] = []
        self._waiting = self._profile.levels["batch_bytes"] = Level(BATCH_BYTES)
        self._in_state = False  # whether any of the batch is
        self._parsed_at = float("-inf")
        self._stage: Any = None
        await_others()

    def process_element(self, value: Row, ctx: _Keyed.Context) -> Iterator[Any]:
        """Take a message; parse the batch when it is full, or nothing came for a while."""
        if self._stage is None:
            self._begin(ctx)
        message = TopicMessage(*value._values)
        self._wait(message)
        full = self._waiting.now >= BATCH_BYTES or len(self._batch) >= BATCH_MESSAGES
        if full or time.monotonic() - self._parsed_at >= LINGER_MS / 1e3:
            yield from self._parse(ctx)
            return
        if not self._in_state:
            self._wake(ctx, LINGER_MS)
        self._in_state = True
        self._kept.add(message.encode())

    def on_timer(self, timestamp: int, ctx: _Keyed.OnTimerContext) -> Iterator[Any]:
        """Parse what waits: for others, since before a restore, or at the end of a bounded topic."""
        if self._stage is None:
            self._begin(ctx)
        if self._batch or self._stage.status_behind:
            yield from self._parse(ctx)

    def _begin(self, ctx: Any) -> None:
        """Take up the messages that waited when the state was saved."""
        self._stage = self._stages[0] = self._build(0)
        for data in self._kept.get():
            self._wait(TopicMessage.decode(data))
        self._in_state = bool(self._batch)
        ctx.timer_service().register_event_time_timer(MAX_TIMESTAMP)

    def _wait(self, message: TopicMessage) -> None:
        self._batch.append(message)
        size = len(message.value or b"")
        self._waiting.add(size)
        if size + BATCH_BYTES > (self._waiting.bound or 0):  # what makes the batch full may be as long as it likes
            self._waiting.bound = size + BATCH_BYTES

    def _parse(self, ctx: Any) -> Iterator[Any]:
        batch, self._batch = self._batch, []
        self._waiting.set(0)
        blocks = self._act(self._stage.parse, batch)
        if self._in_state:
            self._kept.clear()
            self._in_state = False
        yield from self._events(blocks)
        yield from self._letters()
        if self._stage.status_behind:
            self._wake(ctx, STATUS_MS)
        self._parsed_at = time.monotonic()

    def _wake(self, ctx: Any, wait_ms: int) -> None:
        # A multiple of the wait, so that timers of about the same time are one.
        ctx.timer_service().register_processing_time_timer((int(time.time() * 1e3) // wait_ms + 1) * wait_ms)
