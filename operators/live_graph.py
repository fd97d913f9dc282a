"""The graph of a job that is not running, from the durable state of the operators that hold it.

The Partitioner has the vertices and edges, Storage 0 the features, and the first layer that reads attributes of edges
has those. They are restored as a resumed job restores them, and the journal is replayed to the epoch that the job had
sealed: what comes out is what the job would go on from. It can be written as images of its own, and goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.files.json_file import DamagedFileError
from freshet.operators.control import LAST_ARRIVAL_MS, control_values, event_ts_of
from freshet.operators.dataflow import FEATURES, PARTITIONER, STORAGE, Place
from freshet.operators.epochs.cut import FILES, AnyCutLog, Lane
from freshet.operators.epochs.journal import journaled_blocks
from freshet.operators.factory import dataflow_of, make_partitioner, plan_of, stages_of
from freshet.operators.live_attributes import LiveAttributes, attribute_keepers, unkept_attributes
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.events import Events
from freshet.partitioner.live_graph import PlacedGraph
from freshet.partitioner.net_change import EpochChange
from freshet.schema import ATTR, FeatureRows, Features, dropped_among
from freshet.state.block_columns import POSITIONS, kind_prefix
from freshet.state.codec import Block
from freshet.state.entries import Entries
from freshet.state.image import write_image
from freshet.state.served.times import NOTHING_KNOWN, Moment
from freshet.state.table import TableSet

_ATTRIBUTES = "attributes.f4"  # of all edges, in their order: (edges, width) float32, little-endian


def features_of(graph: PlacedGraph, tables: TableSet, features: Features) -> FeatureRows:
    """Return the features of a graph's vertices, from the tables of a Storage 0 that has all parts."""
    kind = np.zeros(len(graph.ids), np.uint8) if graph.kind is None else graph.kind
    by_kind = []
    for code in range(len(features.widths)):
        x = tables["x" if graph.kind is None else f"{kind_prefix(code)}x"]
        mine = kind == code
        rows = x.data[graph.master[mine].astype(np.int64) * x.stride + graph.slot[mine]]
        by_kind.append(rows[:, : features.widths[code]])  # learned rows stand behind them
    return FeatureRows.of_kinds(kind, by_kind, features)


class LiveState:
    """A job's graph and features: `restore`, then `replay`; `finish_messages` and `apply` take events beyond that.

    Invariant: `graph` and `features` are those of the job after `epoch`; `positions` says how far the epochs that were
    replayed here reach, by source and partition: the offset of the first record that is not covered whole; `times` are
    the greatest ones of these epochs.
    """

    def __init__(self, settings: Settings, log: AnyCutLog, images: Path | None = None) -> None:
        """`settings` as the job has them; `log` is only read; `images`: what `write` has written, for `load`."""
        plan = plan_of(settings)
        settings = replace(settings, tasks=(settings.parts,), image=settings.image if images is None else str(images))
        self.settings = settings
        self.partitioner = make_partitioner(settings, plan, log)
        self.core = self.partitioner.core
        (self.storage,) = stages_of(settings, plan, [dataflow_of(settings, plan)[FEATURES]]).values()
        keepers = attribute_keepers(plan)
        self._keepers = keepers
        self._is_loaded = images is not None  # attributes have a file of their own then
        of_job = settings if images is None else replace(settings, image="")  # there are none of these operators
        self._attributes = LiveAttributes(of_job, plan, keepers) if keepers else None
        self.operators = (PARTITIONER, FEATURES, *dict.fromkeys(keeper.operator for keeper in keepers))
        self.positions: dict[Lane, int] = {}
        self.times = NOTHING_KNOWN  # of the epochs that were replayed, and of events beyond
        self._watch: Callable[[Events, EpochChange], None] = lambda events, change: None
        self._journal: list[tuple[int, bytes]] = []  # blocks in order, with the number of their first event in its lane

    def restore(self, entries_of: Callable[[str, int], Entries]) -> None:
        """Load the state that `entries_of` has of an operator's part.

        Raises:
            UnknownFormatError, DamagedFileError, LostCutError: what a resumed job would fail with.
        """
        entries = dict(entries_of(PARTITIONER, 0))
        self.partitioner.restore(entries.items())
        self._journal += ((first, block) for _, first, block in journaled_blocks(entries))
        self.storage.restore(*(entries_of(FEATURES, part) for part in self.storage.parts))
        if self._attributes is not None and not self._is_loaded:
            self._attributes.restore(entries_of)

    def write(self, folder: Path) -> None:
        """Write the graph as images into a folder, from which `load` goes on; they are of use together alone."""
        for table in [*self.core.tables, *self.storage.core.tables]:
            table.touch_all()  # also what is as a state or an image has it
        write_image(self.core.tables, folder / str(Place(PARTITIONER, 0)), 0)
        for k, part in enumerate(self.storage.parts):
            tables, number = self.storage.core.tables_of(k)
            write_image(tables, folder / str(Place(FEATURES, part)), 0, number)
        if self._attributes is not None:
            attr = self._attributes.of(self.core, self.core.live_graph())
            attr.astype("<f4", copy=False).tofile(folder / _ATTRIBUTES)

    def load(self) -> None:
        """Load the images that `write` has written, where this began with them.

        Raises: UnknownFormatError, DamagedFileError for images that are not as they were written.
        """
        self.restore(lambda operator, part: ())
        if self._attributes is not None:
            path = Path(self.settings.image) / _ATTRIBUTES
            shape = self.core.edges, self.core.features.edge_width
            expected, found = 4 * shape[0] * shape[1], path.stat().st_size if path.is_file() else -1
            if found != expected:
                msg = f"{path}: has {found:,} bytes, expected {expected:,}; save the graph again"
                raise DamagedFileError(msg)
            self._attributes.load(self.core, np.fromfile(path, "<f4").reshape(shape))

    def close(self) -> None:
        """Let go of what is mapped, and of threads."""
        self.partitioner.sweeper.close()
        self.storage.close()

    def replay(self) -> Iterator[int]:
        """Go on to the epoch at which the state was saved; yields the epochs on the way."""
        for outcome in self.partitioner.replay():
            self._deliver(outcome.messages)
            yield self.epoch

    def finish_messages(self) -> int:
        """Apply the rest of messages within which the epoch ends, so that positions are between messages.

        Such a message came whole, so the rest of it is in the journal. Returns how many events that were.
        """
        pieces = []
        for lane, following in sorted(self._following().items()):
            rest = _positions_of(following[1:])
            count = _left_of_message(following)
            for events in following[1:] if count else ():
                pieces.append(events.slice(0, count))
                count -= len(pieces[-1])
                if not count:
                    break
            if rest.size and rest[0] == following[0].position[0]:
                self.positions[lane] = int(rest[0])
        if pieces:
            self.apply(Events.concatenate(pieces))
        return sum(map(len, pieces))

    def rests(self) -> dict[Lane, int]:
        """Return the number of events that are left of the messages within which the epoch ends, where that is so."""
        counts = {lane: _left_of_message(following) for lane, following in self._following().items()}
        return {lane: count for lane, count in counts.items() if count}

    def _following(self) -> dict[Lane, list[Events]]:
        """Return the last sealed event of each partition of a topic, if the journal has it, and all waiting ones."""
        lanes, found = self.partitioner.lanes, dict[Lane, list[Events]]()
        ends = lanes.sealed_by_lane()
        for first, block in self._journal:
            events = Events.decode(block)
            lane = lanes.lane_of(events)
            last = ends.get(lane, 0) - 1  # the number of its last sealed event
            if lane == FILES or last < 0:
                continue
            if first <= last < first + len(events):
                found[lane] = [events.slice(last - first, last - first + 1)]
            if lane in found and first + len(events) > last + 1:
                found[lane].append(events.slice(max(0, last + 1 - first), len(events)))
        return found

    def apply(self, events: Events) -> None:
        """Take events as one epoch more, which no log records."""
        change = self.core.partition(events)
        self._watch(events, change)
        self.times = self.times.latest(Moment(event_ts=change.event_ts))  # they may be read again, and came before
        self.partitioner.progress.attrs += events.values.dropped
        control = control_values(events=len(events), vertices=self.core.vertices)
        self.partitioner.epoch += 1
        blocks = self.core.split(change, control, self.epoch)
        self._deliver(Message(STORAGE, task, self.epoch, block) for task, block in enumerate(blocks))

    def hand_over_attributes(self) -> np.ndarray | None:
        """Return the attributes of all live edges, (edges, width) float32, None without any; keep none from now on."""
        found, self._attributes = self.graph().values.attr, None
        return found

    def watch(self, watch: Callable[[Events, EpochChange], None]) -> None:
        """Have a function called in each `apply`, between the Partitioner and Storage 0."""
        self._watch = watch

    @property
    def epoch(self) -> int:
        """The epoch that the graph is at."""
        return self.partitioner.epoch

    @property
    def attrs(self) -> tuple[int, int] | None:
        """Length of the dropped attr of its edges, and number of events that brought one; None without any."""
        width = self.core.attr_width
        return None if width is None or not dropped_among([ATTR]) else (width, self.partitioner.progress.attrs)

    def graph(self) -> PlacedGraph:
        """All live vertices and edges."""
        graph = self.core.live_graph()
        if self._attributes is None:
            return graph
        return replace(graph, values=replace(graph.values, attr=self._attributes.of(self.core, graph)))

    def unkept_attributes(self, graph: PlacedGraph) -> np.ndarray:
        """The edges that may have had attributes that the state does not have, (edges,) bool."""
        return unkept_attributes(graph, self.core.features, self._keepers)

    def features(self, graph: PlacedGraph) -> FeatureRows:
        """The features of the graph's vertices."""
        return features_of(graph, self.storage.core.tables, self.core.features)

    def _deliver(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message.block, Block) and "pos_next" in message.block.columns:
                self._note(message.block)
            if self._attributes is not None and isinstance(message.block, Block):
                self._attributes.take(message.block)
            blocks = self.storage.offer(message.block)
            if blocks is not None:
                self.storage.act(blocks)
        if self._attributes is not None:
            self._attributes.forget_former(self.core)

    def _note(self, block: Block) -> None:
        columns = [block.columns[name].tolist() for name in POSITIONS]
        for source, partition, following, _ in zip(*columns, strict=True):
            self.positions[source, partition] = following
        control = block.columns["ctl"]
        self.times = self.times.latest(Moment(int(control[LAST_ARRIVAL_MS]) or None, event_ts_of(control)))


def _positions_of(blocks: Iterable[Events]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(events.position for events in blocks)])


def _left_of_message(following: list[Events]) -> int:
    """Return how many events after the first one are of its message."""
    return int(np.argmax(np.append(_positions_of(following[1:]) != following[0].position[0], True)))
