"""The graph that a run's input leads to, by the slow reference: what `freshet check` recomputes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from job.change_log_reader import Positions
from job.errors import UsageError
from operators.event_files import ChunkReader, EventFile, EventFileError, list_files, plan_file
from operators.parser import Parser
from operators.replay_graph import ReferenceGraph
from operators.snapshot import SnapshotError, open_snapshot
from partitioner.events import Events

Say = Callable[[str], None]
_SAY_EVERY = 200_000


@dataclass(frozen=True, slots=True)
class Input:
    """What a run was given, as far as it decides the graph."""

    events: Sequence[str]
    snapshot: Path | None
    in_width: int
    id_kind: str | None  # None: the first accepted event's
    edge_types: Sequence[str] | None
    undirected: bool
    forbid_typed_loops: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events of one source that apply one after the other: up to the position `end`."""

    source: str
    end: int


def stretches(positions: Positions, sources: Sequence[str]) -> list[Stretch]:
    """The order in which the input applies: by epoch, in it by source (in the order given) and partition.

    Raises:
        UsageError: the run read from something that is none of the sources.
    """
    unknown = sorted(set(positions.source.tolist()) - set(sources))
    if unknown or positions.partition.any():
        message = f"--events: the run read {', '.join(unknown or ['several partitions'])}; give the files that it read"
        raise UsageError(message)
    rank = {name: k for k, name in enumerate(sources)}
    ranks = np.array([rank[name] for name in positions.source.tolist()], np.int64)
    order = np.lexsort((ranks, positions.epoch))
    rows = [(positions.source[k], int(positions.next_offset[k])) for k in order]
    return [Stretch(source, list(group)[-1][1]) for source, group in groupby(rows, key=lambda row: row[0])]


def named_files(events: Sequence[str], recorded: Sequence[str]) -> dict[str, EventFile]:
    """The event files by the names that the run recorded for them, in reading order.

    Files that lie elsewhere now are taken by their place in the order.

    Raises:
        UsageError: they can't be the run's files.
    """
    try:
        files = list_files(events)
    except EventFileError as error:
        message = f"--events: {error}"
        raise UsageError(message) from None
    by_name = {file.name: file for file in files}
    if set(recorded) <= set(by_name):
        return by_name
    if len(recorded) == len(files):
        return dict(zip(recorded, files, strict=True))
    message = f"--events: got {len(files)} files, the run read {len(recorded)}: {', '.join(recorded)}"
    raise UsageError(message)


class SourceEvents:
    """The events of one file in order, parsed as far as they are asked for."""

    def __init__(self, file: EventFile, parser: Parser) -> None:
        self._file, self._parser = file, parser
        self._blocks = self._parsed()
        self._rest: Events | None = None

    def _parsed(self) -> Iterator[Events]:
        reader = ChunkReader()
        for chunk in plan_file(self._file):
            yield self._parser.parse_chunk(chunk, reader.read(chunk))[0]

    def until(self, position: int) -> Iterator[Events]:
        """The events that are left of those before the position, block by block."""
        while (block := self._rest or next(self._blocks, None)) is not None:
            count = int(np.searchsorted(block.position, position, side="right"))
            self._rest = block.slice(count, len(block)) if count < len(block) else None
            if count:
                yield block.slice(0, count)
            if self._rest is not None:
                return

    @property
    def has_more(self) -> bool:
        """Whether events are left."""
        if self._rest is None:
            self._rest = next((block for block in self._blocks if len(block)), None)
        return self._rest is not None


def final_graph(given: Input, positions: Positions, recorded: Sequence[str], say: Say) -> ReferenceGraph:
    """The graph after the events that the positions cover.

    Raises:
        UsageError: the snapshot or the events can't be read, or are not what the run read.
    """
    graph = ReferenceGraph(given.in_width, given.undirected, forbid_typed_loops=given.forbid_typed_loops)
    id_kind = given.id_kind
    try:
        if given.snapshot is not None:
            snapshot = open_snapshot(given.snapshot, given.in_width, None, given.edge_types)
            id_kind = snapshot.id_kind
            for block in snapshot.blocks():
                graph.apply(block)
            say(f"snapshot: {len(graph):,} vertices")
        _apply_events(graph, given, id_kind, positions, recorded, say)
    except (SnapshotError, EventFileError) as error:
        raise UsageError(str(error)) from None
    return graph


def _apply_events(
    graph: ReferenceGraph, given: Input, id_kind: str | None, positions: Positions, recorded: Sequence[str], say: Say
) -> None:
    names = list(recorded) or list(dict.fromkeys(positions.source.tolist()))
    files = named_files(given.events, names)
    parser = Parser(given.in_width, id_kind, given.edge_types)
    sources = {name: SourceEvents(file, parser) for name, file in files.items()}
    applied = said = 0
    for stretch in stretches(positions, list(files)):
        for block in sources[stretch.source].until(stretch.end):
            graph.apply(block)
            applied += len(block)
            if applied - said >= _SAY_EVERY:
                said = applied
                say(f"{applied:,} events replayed")
    if any(source.has_more for source in sources.values()):
        say(f"the run stopped before the end of its input: checking what it applied, {applied:,} events")
    expected = int(positions.events.sum())
    if applied != expected:
        message = f"--events: {applied:,} events replayed, but the run applied {expected:,}: not the files that it read"
        raise UsageError(message)
