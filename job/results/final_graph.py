"""The final graph of a job that has left no state: its input is read again, by the job's own Parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.run.sources import Sources
from freshet.operators.factory import load_plan, parser_of
from freshet.operators.live_graph import LiveState
from freshet.operators.settings import Settings
from freshet.operators.sink.change_log_reader import ChangeLogReader, Positions
from freshet.partitioner.events import Events

_SAY_EVERY = 200_000


def rebuild(live: LiveState, sources: Sources, log: ChangeLogReader) -> None:
    """Bring a graph from the base image to the last epoch, by the events of all epochs in their order.

    Raises: UsageError, EventFileError when the events are not there as they were; JobFailed when Kafka is not.
    """
    live.restore(lambda operator, part: ())
    applied = said = 0
    events = _events_in_order(sources, log, live.settings)
    # Where events have times, it matters which of them are an epoch; else fewer and larger blocks are quicker.
    for block in _by_epoch(events) if live.settings.partitioning.rules.is_timed else (block for _, block in events):
        live.apply(block)
        applied += len(block)
        if applied - said >= _SAY_EVERY:
            said = applied
            say(f"{applied:,} events replayed")
    live.partitioner.epoch = log.last_epoch() or 0  # it counts blocks, and there are fewer of them than epochs


def _by_epoch(events: Iterator[tuple[int, Events]]) -> Iterator[Events]:
    return (Events.concatenate([block for _, block in group]) for _, group in groupby(events, lambda one: one[0]))


def _events_in_order(sources: Sources, log: ChangeLogReader, settings: Settings) -> Iterator[tuple[int, Events]]:
    """The events of all epochs, block by block, each with the epoch that it is of.

    Where epochs do not matter, those that follow one another in the same partition are taken as one.

    Raises: UsageError when a source does not have what the run read.
    """
    named, plan = {source.name: source for source in sources}, load_plan(settings.model)
    partitions: dict[tuple[str, int], _PartitionEvents] = {}
    applied, is_timed = 0, settings.partitioning.rules.is_timed
    for (name, partition, epoch), group in groupby(
        input_order(log.positions(), list(named)),
        lambda piece: (piece.source, piece.partition, piece.epoch if is_timed else 0),
    ):
        pieces, source, place = list(group), named[name], (name, partition)
        left, covered = sum(piece.events for piece in pieces), pieces[-1].next_offset
        if place not in partitions:
            partitions[place] = _PartitionEvents(source.events(partition, parser_of(settings, plan)))
        for block in partitions[place].take(left):
            applied, left = applied + len(block), left - len(block)
            yield epoch, block
        if left or not source.ends_at(partitions[place].position, covered):
            msg = (
                f"--events: after {applied:,} events {source.name} stands at {partitions[place].position}, the run at "
                f"{covered}: these are not the events that it read"
            )
            raise UsageError(msg)


class _PartitionEvents:
    """The events of one partition of a source in order, parsed as far as they are asked for."""

    def __init__(self, blocks: Iterator[Events]) -> None:
        self._blocks = blocks
        self._rest: Events | None = None
        self.position = 0  # of the last event taken

    def take(self, count: int) -> Iterator[Events]:
        """The next `count` events, block by block; fewer where the source has no more."""
        while count and (block := self._rest or next(self._blocks, None)) is not None:
            taken = min(count, len(block))
            self._rest = block.slice(taken, len(block)) if taken < len(block) else None
            if taken:
                count -= taken
                self.position = int(block.position[taken - 1])
                yield block.slice(0, taken)


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
