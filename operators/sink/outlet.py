"""Records of a sink part for the output topic: the last change of each vertex per interval, each interval once.

The Partitioner decides which epoch ends an interval, and the cut log records it; an interval also ends when too many
rows are held, which depends on the epochs alone. So a replay ends the same intervals. How far they were handed over is
a value in keyed state: a checkpoint's barrier comes after all records of the intervals up to it, and before those of
later ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.operators.control import FLAGS, FLUSH, LAST, control_values, is_marker
from freshet.operators.dataflow import outlet_of
from freshet.operators.outcome import Message, Outcome
from freshet.operators.record_blocks import HEAD
from freshet.operators.sink.coalesce import Coalescer
from freshet.operators.sink.core import Sink
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.kafka_records import RecordBlocks
from freshet.operators.sink.output import SinkPart
from freshet.operators.sink.task import TaskSink
from freshet.operators.stage import Stage
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.traffic import Traffic, all_traffic
from freshet.state.codec import Block
from freshet.state.entries import Entries

BYTES_HELD = 64 << 20
_FLUSHED = "flushed"  # the entry of keyed state, behind the prefix of a kind where several are returned


class Outlet:
    """Collects changes and turns them into blocks of Kafka records, interval by interval.

    Invariant: nothing is held after an epoch that ends an interval, as every marker does; `flushed` never goes back.
    """

    leaves_by_epoch = True

    def __init__(
        self,
        part: int,
        width: int,
        id_kind: str,
        records: RecordBlocks,
        bytes_held: int = BYTES_HELD,
        kind: str = "",
    ) -> None:
        """`kind`: whose topic it is, where a model returns several."""
        self.part, self._to = part, outlet_of(kind)
        self.flushed = 0  # the epoch up to which rows were handed over; OutletStage keeps it
        self._width, self._id_kind = width, id_kind
        self._coalescer = Coalescer(width, id_kind)
        self._records, self._bytes_held = records, bytes_held
        self._level = Level(bytes_held)
        self.levels = {"outlet_bytes": self._level}
        self.traffic = Traffic()

    def begin(self, part: SinkPart) -> None:
        """Nothing is shared."""

    def check(self) -> None:
        """Nothing happens in the background."""

    def idle(self) -> None:
        """The Partitioner says when an interval ends."""

    def figures(self) -> dict[str, Any]:
        """Return nothing: the topic has its own."""
        return {}

    def clear(self) -> None:
        """Forget what an epoch before a restore left behind."""
        self._coalescer.clear()
        self._level.set(0)

    def pass_marker(self) -> None:
        """Every marker ends an interval."""

    def close(self, write: bool) -> None:
        """Close; buffered changes are replayed after a restore."""

    def warm_up(self) -> None:
        """Have every kernel ready: takes throwaway changes through an outlet of the same kind."""
        other = Outlet(0, self._width, self._id_kind, self._records)
        keys, row = np.array([1, 2], np.int64), np.zeros((1, self._width), np.float32)
        texts = np.array([0, 1, 2], np.int32), np.frombuffer(b"ab", np.uint8)
        other.take(
            1,
            keys,
            EpochRows(1, [texts] if self._id_kind == "string" else [keys], [row], 1, 1),
            control_values(flags=LAST),
        )

    def take(self, epoch: int, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Take an epoch's changes; what goes to the topic if the epoch ends an interval."""
        if epoch <= self.flushed:  # epoch 0, or a replay: it is in the topic
            return []
        ends = is_marker(control) or int(control[FLAGS]) & (FLUSH | LAST)
        self._coalescer.add(keys, rows)
        self._level.set(self._coalescer.bytes_held)
        self._level.bound = max(self._level.bound or 0, self._bytes_held + rows.nbytes)
        if not ends and self._coalescer.bytes_held < self._bytes_held:
            return []
        self.flushed = epoch
        changes = self._coalescer.take()
        self._level.set(0)
        blocks = list(self._records.blocks(changes))
        self.traffic.add(len(changes), sum(map(len, blocks)) - HEAD.size * len(changes))
        return [Message(self._to, self.part, epoch, block) for block in blocks]


class OutletStage(Stage):
    """The stage of Sinks with outlets: keeps how far each has handed over in keyed state, beside its tables."""

    core: Sink | TaskSink

    def restore(self, *items: Entries) -> None:
        """Load the newest complete cut, and the epochs up to which rows were handed over."""
        states = [dict(entries) for entries in items]
        for outlets, entries in zip(self.core.outlets, states, strict=True):
            for prefix, outlet in outlets.items():
                outlet.flushed = int(entries.pop(prefix + _FLUSHED, b"0"))
        super().restore(*(entries.items() for entries in states))

    @property
    def traffic(self) -> Traffic:
        """Messages to the topic, of all parts."""
        return all_traffic(outlet.traffic for outlets in self.core.outlets for outlet in outlets.values())

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""
        by_part = list(zip(self.parts, self.core.outlets, strict=True))
        every = [(part, prefix, outlet) for part, outlets in by_part for prefix, outlet in outlets.items()]
        before = [outlet.flushed for *_, outlet in every]
        outcome = super().act(blocks)
        for (part, prefix, outlet), flushed in zip(every, before, strict=True):
            if outlet.flushed != flushed:
                outcome.of(part).puts.append((prefix + _FLUSHED, str(outlet.flushed).encode()))
        return outcome
