"""What a sink part hands to the output topic: the last change of each vertex per interval, each interval once.

An interval ends with the epoch that the Partitioner says, which the cut log records, or when the rows that are held
become too many, which the epochs alone decide. So a replay ends the same intervals, and how far they were handed over
is a value in keyed state: a barrier finds the records of all intervals up to it before it, and none of later ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from operators.dataflow import OUTLET
from operators.outcome import Message, Outcome
from operators.sink.change_log import EpochRows
from operators.sink.coalesce import Coalescer
from operators.sink.core import Sink
from operators.sink.kafka_lines import Lines
from operators.stage import Stage
from operators.telemetry.level import Level
from state.codec import Block

BYTES_HELD = 64 << 20
_FLUSHED = "flushed"  # the entry of keyed state


class Outlet:
    """Collects changes and turns them into blocks of lines, interval by interval.

    Invariant: nothing is held after an epoch that ends an interval, as every marker does; `flushed` never goes back.
    """

    def __init__(self, part: int, width: int, id_kind: str, lines: Lines, bytes_held: int = BYTES_HELD) -> None:
        self.part, self.flushed = part, 0
        self._width, self._id_kind = width, id_kind
        self._coalescer = Coalescer(width, id_kind)
        self._lines, self._bytes_held = lines, bytes_held
        self.level = Level(bytes_held)  # bytes

    def clear(self) -> None:
        """Forget what an epoch before a restore left behind."""
        self._coalescer.clear()
        self.level.set(0)

    def warm_up(self) -> None:
        """Have every kernel ready: takes throwaway changes through an outlet of the same kind."""
        other = Outlet(0, self._width, self._id_kind, self._lines)
        keys, row = np.array([1, 2], np.int64), np.zeros((1, self._width), np.float32)
        texts = np.array([0, 1, 2], np.int32), np.frombuffer(b"ab", np.uint8)
        other.take(keys, EpochRows(1, [texts] if self._id_kind == "string" else [keys], [row], 1, 1), ends=True)

    def take(self, keys: np.ndarray, rows: EpochRows, ends: bool) -> list[Message]:
        """Take an epoch's changes; what goes to the topic if the epoch ends an interval."""
        if rows.epoch <= self.flushed:  # a replay: it is in the topic
            return []
        self._coalescer.add(keys, rows)
        self.level.set(self._coalescer.bytes_held)
        self.level.bound = max(self.level.bound or 0, self._bytes_held + rows.nbytes)
        if not ends and self._coalescer.bytes_held < self._bytes_held:
            return []
        self.flushed = rows.epoch
        changes = self._coalescer.take()
        self.level.set(0)
        return [Message(OUTLET, self.part, rows.epoch, self.part, block) for block in self._lines.blocks(changes)]


class OutletStage(Stage):
    """The stage of a Sink with an outlet: keeps how far it has handed over in keyed state, beside the tables."""

    core: Sink

    def restore(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Load the newest complete cut, and the epoch up to which rows were handed over."""
        entries = dict(items)
        self._outlet.flushed = int(entries.pop(_FLUSHED, b"0"))
        super().restore(entries.items())

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""
        before = self._outlet.flushed
        outcome = super().act(blocks)
        if self._outlet.flushed != before:
            outcome.mutations.puts.append((_FLUSHED, str(self._outlet.flushed).encode()))
        return outcome

    @property
    def _outlet(self) -> Outlet:
        assert self.core.outlet is not None
        return self.core.outlet
