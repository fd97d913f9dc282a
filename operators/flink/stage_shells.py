"""The shells of the operators that act once per epoch: Storages, Tails and the Sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from pyflink.common import Row
from pyflink.datastream import RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction as _Keyed

from freshet.operators.dataflow import OUTLET, SINK, outlet_of
from freshet.operators.epochs.under_way import UnderWay, of_attempt
from freshet.operators.flink.shell import KeyedShell, outlet_tag
from freshet.operators.outcome import Message
from freshet.operators.stage import EpochStage, SendingStage
from freshet.operators.telemetry.load import Sums
from freshet.operators.telemetry.sum_report import all_sums
from freshet.operators.telemetry.traffic import all_traffic


class StageShell(KeyedShell):
    """A Storage, a Tail or the Sink: acts once per task and epoch, when the stage has all blocks of it.

    All parts that a subtask has of a Storage or Tail are one task; each part of the Sink is one.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """No task has a stage yet."""
        super().open(runtime_context)
        stages = self._stages_here = dict[int, EpochStage]()
        self._profile.sums = lambda: all_sums(stage.sums for stage in list(stages.values()))
        self._under_way: UnderWay | None = None
        if self.operator == self._last_of_first:
            self._under_way = of_attempt(self._job, self._attempt)
            self._under_way.expect(self._tasks_here)
        self._task_of = {self.keys[parts.start]: task for task, parts in enumerate(self._own.parts_of)}

    def process_element(self, value: bytes, ctx: _Keyed.Context) -> Iterator[Any]:
        """Offer a block to the stage of its task; act when that completes an epoch."""
        task = self._task_of[ctx.get_current_key()] if len(self._task_of) > 1 else 0
        stage = self._stages_here.get(task)
        if stage is None:
            stage = self._stages_here[task] = self._restored(task)
        block, size = self._mailbox.taken(value)
        self._profile.bytes_in += size
        # Only the header is read here; one hand-over to the worker per task and epoch, not one per block.
        blocks = stage.offer(block)
        if blocks is not None:
            outcome = self._act(stage.act, blocks)
            if self._under_way is not None:
                self._under_way.note_applied(task, stage.epoch)
            yield from self._apply(outcome, task)


class OutletShell(StageShell):
    """A Sink that writes a topic, or one for each kind: its messages are blocks of Kafka records."""

    def __init__(self, config: str, keys: list[int], kinds: Sequence[str] = ()) -> None:
        """Take plain data only; `kinds` are those with a topic of their own."""
        super().__init__(SINK, config, keys, {})
        self._kinds = list(kinds)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Count the writer of the topic, which takes records in this thread, and its messages."""
        super().open(runtime_context)
        self._tags = {outlet_of(kind): outlet_tag(kind) for kind in self._kinds}
        profile, stages = self._profile, cast(dict[int, SendingStage], self._stages_here)
        profile.loads.places[SINK] = lambda: {"busy_s": profile.own_s}

        def sums() -> Sums:
            traffic = all_traffic(stage.traffic for stage in list(stages.values()))
            return {"busy_s": profile.emit_s, **traffic.sums()}

        profile.loads.places[OUTLET] = sums

    def _elements(self, messages: Sequence[Message]) -> Iterator[Any]:
        for message in messages:
            assert isinstance(message.block, bytes)
            self._profile.bytes_out += len(message.block)
            self._profile.bytes_away += len(message.block)
            row = Row(message.block)
            yield (self._tags[message.to], row) if self._tags else row
