"""The shells of the Parsers, of files and of topics, and of the block that begins an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyflink.common import Row
from pyflink.datastream import ProcessFunction, RuntimeContext

from freshet.operators.dataflow import PARSER, PARTITIONER
from freshet.operators.flink.opening import await_others, counted_as_loading
from freshet.operators.flink.shell import FINISH, PARTITIONER_KEY, START, Shell
from freshet.operators.flink.task_clock import TaskClock
from freshet.operators.stage import ChunkStage, TopicStage
from freshet.operators.telemetry.load import Sums, source_of


class _ParserShell(Shell):
    """Common base of the Parsers' shells: they begin when the operators that receive their events are there."""

    _stage: Any

    def open(self, runtime_context: RuntimeContext) -> None:
        """Wait for the operators that the events go to."""
        with counted_as_loading(self):
            super().open(runtime_context)
        self._stage = None
        await_others()


class ParserShell(_ParserShell, ProcessFunction):
    """Turns chunk numbers into blocks of events, in the order of the numbers."""

    _stage: ChunkStage | None

    def __init__(self, config: str, finish_after: int) -> None:
        """Take plain data; after the chunk `finish_after` (-1: none) the input is declared finished."""
        super().__init__(PARSER, config, [PARTITIONER_KEY], {PARTITIONER: PARTITIONER})
        self.finish_after = finish_after

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Read and parse one chunk."""
        if self._stage is None:
            self._stage = self._stages[0] = self._build(0)
        yield from self._events(self._act(self._stage.parse, value))
        yield from self._letters(self._stage)
        if value == self.finish_after:
            yield Row(PARTITIONER_KEY, FINISH)


class MessageParserShell(_ParserShell, ProcessFunction):
    """Turns batches of a topic's messages into blocks of events; each subtask has some of the topic's partitions."""

    _stage: TopicStage | None

    def __init__(self, operator: str, config: str) -> None:
        """Take plain data; `operator` names the topic's Parser."""
        super().__init__(operator, config, [PARTITIONER_KEY], {PARTITIONER: PARTITIONER})

    def open(self, runtime_context: RuntimeContext) -> None:
        """Watch the task: the source is in it, too."""
        super().open(runtime_context)
        self._task_clock = TaskClock(runtime_context, self._profile)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Parse a batch."""
        if self._stage is None:
            stage = self._stage = self._stages[0] = self._build(self._profile.subtask)
            self._idle_work.append(stage.write_status)
            self._profile.loads.places[source_of(self.operator)] = self._source_load(stage)
        self._task_clock.look()
        yield from self._events(self._act(self._stage.parse, value))
        yield from self._letters(self._stage)

    def _source_load(self, stage: TopicStage) -> Callable[[], Sums]:
        """Return what gives the load of the source: all that its thread did beside this operator, and its messages."""
        clock, traffic = self._task_clock, stage.traffic

        def sums() -> Sums:
            return {"busy_s": clock.beside_s, **traffic.sums()}

        return sums


class StartShell(ProcessFunction):
    """Turns the start source's one number into the block that begins an attempt."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Row]:
        """Yield the start block."""
        yield Row(PARTITIONER_KEY, START)
