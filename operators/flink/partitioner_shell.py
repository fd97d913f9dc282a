"""The shell of the Partitioner: its timers seal epochs by time, and begin and end an attempt."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from pyflink.datastream import RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction as _Keyed

from freshet.operators.dataflow import FEATURES, PARTITIONER, STORAGE
from freshet.operators.epochs.flush_intervals import monotonic_ms
from freshet.operators.epochs.under_way import of_attempt
from freshet.operators.flink.shell import FINISH, START, KeyedShell, set_timer
from freshet.operators.stage import SealingStage

MAX_TIMESTAMP = 2**63 - 1
# How long an idle Partitioner sleeps where epochs are cut by count alone: the timer then only wakes it after a restore.
WAKE_MS = 1000
# How soon an epoch that waits for those before it is looked after: a wait that a reader would hardly notice.
SOON_MS = 2


class PartitionerShell(KeyedShell):
    """The one Partitioner: begins an attempt, seals epochs by count and time, and seals the last at the end."""

    def __init__(self, config: str, keys: list[int], epoch_ms: int, chained: bool = False) -> None:
        """Take plain data; epoch_ms = 0: epochs are cut by count alone."""
        super().__init__(PARTITIONER, config, keys, {STORAGE: FEATURES}, (STORAGE,) if chained else ())
        self.epoch_ms = epoch_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        """Nothing has begun."""
        super().open(runtime_context)
        self._under_way = of_attempt(self._job, self._attempt)
        self._stage: SealingStage | None = None

    def _own_tasks(self, info: Any) -> list[int]:
        return [0]

    def process_element(self, value: bytes, ctx: _Keyed.Context) -> Iterator[Any]:
        """Begin the attempt at its first element; hand blocks of events to the stage."""
        stage = self._stage or (yield from self._begin(ctx))
        if value == FINISH:
            yield from self._finish(stage)
        elif value != START:
            block, size = self._mailbox.taken(value)
            self._profile.bytes_in += size
            yield from self._apply(self._act(stage.receive, block, monotonic_ms()))
            if stage.holds_back:
                self._set_timer(ctx)
        yield from self._letters(stage)

    def on_timer(self, timestamp: int, ctx: _Keyed.OnTimerContext) -> Iterator[Any]:
        """Seal by time, or at the end of a bounded input; after a restore the first timer begins the attempt."""
        if self._worker is None:  # closed: the input has ended, and a timer was still to come
            return
        stage = self._stage or (yield from self._begin(ctx))
        if timestamp == MAX_TIMESTAMP:
            yield from self._finish(stage)
            yield from self._letters(stage)
            return
        self._set_timer(ctx)
        # Asking plain attributes costs less than a call on the worker, 50 times a second in an idle job.
        if stage.is_due(now_ms := monotonic_ms()):
            yield from self._apply(self._act(stage.tick, now_ms))
        self._metrics.update()  # of the last events before a pause, too
        yield from self._letters(stage)

    def _begin(self, ctx: Any) -> Generator[Any, None, SealingStage]:
        """Restore the stage and replay its journal, outcome by outcome: a long replay is never in memory whole."""
        stage: SealingStage = self._restored(0)
        stage.watch(self._under_way)
        replay = self._worker.call(lambda: iter(stage.begin(monotonic_ms())))
        while (outcome := self._act(next, replay, None)) is not None:
            yield from self._apply(outcome)
        self._stage = stage
        self._set_timer(ctx)
        if ctx.timer_service().current_watermark() == MAX_TIMESTAMP:  # restored behind the end, where no timer is left
            yield from self._finish(stage)
        else:
            ctx.timer_service().register_event_time_timer(MAX_TIMESTAMP)
        return stage

    def _finish(self, stage: SealingStage) -> Iterator[Any]:
        yield from self._apply(self._act(stage.finish))
        self._profile.input_ended = True
        self._worker.call(self._profile.write)  # the client may wait for this

    def _set_timer(self, ctx: Any) -> None:
        soon = self._stage is not None and self._stage.holds_back
        set_timer(ctx, SOON_MS if soon else self.epoch_ms if self.epoch_ms > 0 else WAKE_MS)
