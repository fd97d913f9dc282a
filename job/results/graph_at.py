"""The graph of a job at an epoch: brought on by its input, from where it begins, by the job's own Parser and graph.

`freshet export` and `LiveGraph` read by it. `freshet check` has a reader that shares nothing with it (plain_replay).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from freshet.job.console import Report
from freshet.job.errors import UsageError
from freshet.job.run.sources import Source, Sources
from freshet.operators.factory import load_plan, parser_of
from freshet.operators.live_graph import LiveState
from freshet.operators.parser.core import Parser
from freshet.operators.sink.change_log_reader import Positions
from freshet.partitioner.events import Events

_AT_ONCE = 1 << 16  # events that are applied together where it does not matter which of them are an epoch
_REPORT_EVERY = 200_000


class Piece(NamedTuple):
    """Share of an epoch in one partition of a source: its number of events, and the position after them."""

    epoch: int
    source: str
    partition: int
    next_offset: int
    events: int


def input_order(positions: Positions, sources: Sequence[str]) -> Iterator[Piece]:
    """The pieces by epoch, within it by source (in the order given) and partition.

    Raises: UsageError when the run read from something that is none of the sources.
    """
    unknown = sorted(set(positions.source.tolist()) - set(sources))
    if unknown:
        msg = f"--events: the run read {', '.join(unknown)}; give what it read"
        raise UsageError(msg)
    rank = {name: k for k, name in enumerate(sources)}
    ranks = np.array([rank[name] for name in positions.source.tolist()], np.int64)
    order = np.lexsort((positions.partition, ranks, positions.epoch))
    columns = (positions.epoch, positions.source, positions.partition, positions.next_offset, positions.events)
    return map(Piece, *(column[order].tolist() for column in columns))


@dataclass(frozen=True)
class Reached:
    """Coverage of the sources by a graph, by their names and partitions; nothing of those that are not there.

    `offsets`: the first record that is not covered whole; `rests`: number of events that are left of that message.
    """

    epoch: int = 0
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    rests: Mapping[tuple[str, int], int] = field(default_factory=dict)


class GraphAt:
    """The graph of a job, brought on from one epoch to a later one.

    Invariant: `live` is the graph after `epoch`: the events that `epochs/` counts up to there, in the same order.
    """

    def __init__(self, live: LiveState, sources: Sources, begin: Reached) -> None:
        """`live` is the graph as of `begin`."""
        self.live, self.epoch = live, begin.epoch
        self.events = 0  # applied here
        self._sources = {source.name: source for source in sources}
        self._begin = begin
        self._lanes: dict[tuple[str, int], _PartitionEvents] = {}
        self._reported = 0

    @property
    def reached(self) -> Reached:
        """Coverage of the sources by the graph."""
        lanes = {place: lane.reached for place, lane in self._lanes.items()}
        offsets = {place: offset for place, (offset, _) in lanes.items()}
        rests = {place: rest for place, (_, rest) in lanes.items()}
        return Reached(self.epoch, {**self._begin.offsets, **offsets}, {**self._begin.rests, **rests})

    def bring_to(self, epoch: int, positions: Positions, report: Report) -> None:
        """Apply the epochs that follow, up to this one; `positions` are at least theirs.

        Raises: UsageError, EventFileError when the sources do not have what the job read; JobFailed when Kafka does not
        answer.
        """
        within = (positions.epoch > self.epoch) & (positions.epoch <= epoch)
        pieces = input_order(positions.only(within), list(self._sources))
        blocks = self._blocks(pieces)
        # Where events have times, it matters which of them are an epoch; else fewer and larger blocks are quicker.
        is_timed = self.live.settings.partitioning.rules.is_timed
        for events in _by_epoch(blocks) if is_timed else _many_at_once(blocks):
            self.live.apply(events)
            self.events += len(events)
            if self.events - self._reported >= _REPORT_EVERY:
                self._reported = self.events
                report(f"{self.events:,} events replayed")
        self.epoch = epoch

    def pause(self) -> None:
        """Let go of connections to brokers; the next call goes on where this one ended."""
        for lane in self._lanes.values():
            lane.pause()

    def _blocks(self, pieces: Iterator[Piece]) -> Iterator[tuple[int, Events]]:
        """The events of the pieces, block by block, each with the epoch that it is of."""
        for (name, partition), group in groupby(pieces, lambda piece: (piece.source, piece.partition)):
            lane, applied = self._lane(name, partition), 0
            covered = lane.reached[0]
            for piece in group:
                left, covered = piece.events, piece.next_offset
                for block in lane.take(left):
                    applied, left = applied + len(block), left - len(block)
                    yield piece.epoch, block
                if left:
                    break
            if left or not self._sources[name].ends_at(lane.position - lane.is_within, covered):
                msg = (
                    f"--events: {name} stands at {lane.position} after {self.events + applied:,} events, the run at "
                    f"{covered}: these are not the events that it read"
                )
                raise UsageError(msg)

    def _lane(self, name: str, partition: int) -> _PartitionEvents:
        place = name, partition
        if place not in self._lanes:
            settings = self.live.settings
            begin = self._begin.offsets.get(place), self._begin.rests.get(place, 0)
            parser = parser_of(settings, load_plan(settings.model))
            self._lanes[place] = _PartitionEvents(self._sources[name], partition, parser, *begin)
        return self._lanes[place]


def _by_epoch(blocks: Iterator[tuple[int, Events]]) -> Iterator[Events]:
    for _, group in groupby(blocks, lambda one: one[0]):
        yield Events.concatenate([block for _, block in group])


def _many_at_once(blocks: Iterator[tuple[int, Events]]) -> Iterator[Events]:
    waiting, count = list[Events](), 0
    for _, block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= _AT_ONCE:
            yield Events.concatenate(waiting)
            waiting, count = [], 0
    if waiting:
        yield Events.concatenate(waiting)


class _PartitionEvents:
    """The events of one partition of a source in order, parsed as far as they are asked for."""

    def __init__(self, source: Source, partition: int, parser: Parser, begin: int | None, rest: int) -> None:
        """`begin`: the first record to read, None: the source's own; `rest`: events that are left of it, 0: all."""
        self._source, self._partition, self._parser = source, partition, parser
        self._next = source.start.get(partition, 0) if begin is None else begin  # the first record of the next block
        self._rest = rest  # of the message there
        self._blocks: Iterator[Events] | None = None
        self._left: Events | None = None
        self.position = self._next  # of the last event taken

    @property
    def reached(self) -> tuple[int, int]:
        """The first record that is not taken whole, and the number of events that are left of it, 0: all."""
        left = self._left
        if left is None:
            return self._next, self._rest
        following = int(left.position[0])
        if following != self.position:
            return max(self.position, following - 1), 0
        return following - 1, int(np.count_nonzero(left.position == following))

    @property
    def is_within(self) -> bool:
        """Return whether the last event taken has others of its record behind it."""
        return self._left is not None and bool(self._left.position[0] == self.position)

    def take(self, count: int) -> Iterator[Events]:
        """The next `count` events, block by block; fewer where the source has no more."""
        while count and (block := self._left or self._read()) is not None:
            taken = min(count, len(block))
            self._left = block.slice(taken, len(block)) if taken < len(block) else None
            count -= taken
            self.position = int(block.position[taken - 1])
            yield block.slice(0, taken)

    def pause(self) -> None:
        """Close what is open."""
        close: Callable[[], None] = getattr(self._blocks, "close", lambda: None)
        close()
        self._blocks = None

    def _read(self) -> Events | None:
        """Return the next block that has events; None where there is none now."""
        if self._blocks is None:
            self._blocks = self._source.events(self._partition, self._parser, self._next)
        for block in self._blocks:
            self._next = max(self._next, block.end_position)
            found = self._without_taken(block) if self._rest and len(block) else block
            if len(found):
                return found
        self._blocks = None
        return None

    def _without_taken(self, block: Events) -> Events:
        """Return the block without the events of its first message that were taken before."""
        first = int(np.count_nonzero(block.position == block.position[0]))
        taken, self._rest = max(0, first - self._rest), 0
        return block.slice(taken, len(block))
