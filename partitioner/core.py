"""The Partitioner's core: one epoch's events in, its net change by part out; all durable state in tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from freshet.kernels.kernel_calls import Direct
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner.config import REASONS, PartitionerConfig
from freshet.partitioner.deletions import EDGES_PER_EVENT, expire_edges
from freshet.partitioner.edge_keys import EdgeIndex, index_edges, no_pairs
from freshet.partitioner.edge_types import EdgeTypes
from freshet.partitioner.epoch_end import close_epoch
from freshet.partitioner.epoch_log import Log, empty_log, grow_log
from freshet.partitioner.event_columns import EventColumns
from freshet.partitioner.events import DEFAULT_TYPE, Events, largest_ts
from freshet.partitioner.graph_tables import find_earliest
from freshet.partitioner.hash_index import grown, index_keys, make_index
from freshet.partitioner.id_lookup import MORE, gather_names, index_names, resolve_ints, resolve_names
from freshet.partitioner.ids import STRING
from freshet.partitioner.inspection import Inspection
from freshet.partitioner.live_graph import PartitionStats, PlacedGraph, edge_places, live_graph, partition_stats
from freshet.partitioner.net_change import ADDED, BORN, VERTEX_ROW, Effects, EpochChange, Records, make_records
from freshet.partitioner.netting import ITSELF, Batch, apply_events
from freshet.partitioner.placement.rules import Rule
from freshet.partitioner.placement.whole_graph import whole_masters
from freshet.partitioner.splitter import split
from freshet.partitioner.times.event_times import EventTimes
from freshet.partitioner.words import words_for
from freshet.schema import Features
from freshet.state.codec import Block
from freshet.state.salt import make_salt
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts

_SHOWN = 40  # characters of a type's name in a reason
_NO_INTS = np.empty(0, np.int32)
_UNDIRECTED = np.array([ITSELF], np.int32)
_SCRATCH_KEPT = 1 << 16  # entries; scratch memory beyond that goes when an epoch needs less than a 16th of it


class Partitioner:
    """Owns the graph and its placement.

    Invariant: `tables` holds all that decides what comes next: a Partitioner with the same tables, after
    `after_restore`, answers the same events with the same bytes.
    """

    def __init__(
        self, parts: int, features: Features, config: PartitionerConfig | None = None, tasks: TaskParts | None = None
    ) -> None:
        """`tasks`: those that the parts are dealt to, by default one each."""
        if not 1 <= parts <= 32_767:
            msg = f"parts: expected 1 to 32767, got {parts}"
            raise ValueError(msg)
        self.parts, self.features = parts, features
        self.tasks = TaskParts.dealt(parts, parts) if tasks is None else tasks
        self.config = PartitionerConfig() if config is None else config
        kinds = features.kinds
        sections = (1, 0) if kinds is None else (len(kinds), len(kinds.relations))
        is_timed = self.config.edge_ttl_ms > 0
        key_kind = self.config.key_kind
        self._t = t.GraphTables(parts, *sections, self.config.degree_relations, is_timed=is_timed, key_kind=key_kind)
        plain = _UNDIRECTED if self.config.undirected else _NO_INTS
        self._mirrors = plain if kinds is None else kinds.mirrors(undirected=self.config.undirected)
        alone = np.isin(np.arange(sections[1]), self.config.one_loop_relations)
        self._one_loop = np.full(int(self.config.forbid_typed_loops), True) if kinds is None else alone
        self._times = EventTimes(self._t.set, self.config.rules)
        self._salt = make_salt(self.config.hash_seed)
        self._keys, self._edges = make_index(self._salt), self._edge_index(0)
        self._log, self._records = self._empty_log(), self._make_records(0, 0, 0)
        self._room = 0, 0, 0  # of the records: vertices, edges that were there before, edges that were not
        self._block: EventColumns | None = None  # while epochs of it may follow
        self._t.touch_small()
        types = kinds.relation_names if kinds else self.config.edge_types or (DEFAULT_TYPE,)
        self._types = EdgeTypes(self._t, types, self.config.types_max)
        self._resolve_kernel = Direct(resolve_names if self.config.id_kind == STRING else resolve_ints)
        balance, epsilon = float(self.config.hdrf_lambda), float(self.config.hdrf_epsilon)
        threshold = self.config.hybrid_threshold
        self._rule = Rule(self.config.strategy_code, balance, epsilon, threshold, self._salt)
        self._apply_kernel, self._close_kernel = Direct(apply_events), Direct(close_epoch)
        self._expire_kernel = Direct(expire_edges)

    @property
    def attr_width(self) -> int | None:
        """Width of the attr of edges; None until an edge had one."""
        width = self._t.scalar(t.ATTR_WIDTH) - 1
        return None if width < 0 else width

    @property
    def index_bytes(self) -> int:
        """Bytes of the indexes, which are built of the tables and are no state."""
        pairs = self._edges.pairs.entries.nbytes if self._t.key_kind else 0
        return int(self._keys.entries.nbytes + self._edges.rows.entries.nbytes + pairs)

    @property
    def tables(self) -> TableSet:
        """All durable state."""
        return self._t.set

    def partition(
        self, events: Events, start: int = 0, stop: int | None = None, *, snapshot: bool = False, tried: bool = False
    ) -> EpochChange:
        """Apply the events of one whole epoch; the result is good until the next call.

        They are those from `start` to `stop` of a block, by default all. Those of a snapshot come first, and may be
        placed with all of them in view (placement/whole_graph.py). `tried`: they are to be taken back, or take others
        back; the clock stands still meanwhile, and no edge expires.

        Raises:
            ValueError: ids of another kind or features of another width than the job's (the Parser rejects them).
        """
        stop = len(events) if stop is None else stop
        ts = None if events.ts is None else events.ts[start:stop]
        too_far = [] if snapshot or tried else self._times.too_far_ahead(ts)
        if not too_far:
            return self._partition(events, start, stop, snapshot=snapshot, tried=tried)
        rows = np.delete(np.arange(stop - start), [event for event, _ in too_far])
        change = self._partition(events.slice(start, stop).take(rows), 0, len(rows))
        rejected = [(int(rows[event]), reason) for event, reason in change.rejected]
        return replace(change, rejected=sorted(too_far + rejected))

    def _columns_of(self, events: Events) -> EventColumns:
        if self._block is None or self._block.events is not events:
            self._block = EventColumns(events, self.config, self.features, self._types, self._times, self._salt)
        return self._block

    def _partition(
        self, events: Events, start: int, stop: int, *, snapshot: bool = False, tried: bool = False
    ) -> EpochChange:
        block = self._columns_of(events)
        self._t.touch_small()
        self._make_room(stop - start, *block.begin(start, stop))
        view = self._resolve(block, start, stop)
        self._t.read_ahead(block.batch.a[start:stop], block.batch.b[start:stop])
        self._apply(block.batch, start, stop, view)
        logged = self._log.counts[: e.EFFECTS + 4].tolist()
        rejected = [self._refusal(events, start, *one) for one in self._log.rejected[: logged[e.REJECTED]].tolist()]
        event_ts = None if events.ts is None else largest_ts(events.ts[start:stop], rejected)
        if not tried:
            self._times.advance(event_ts)
        if not (snapshot or tried):
            self._expire(self._times.expire_before)
        self._types.end_epoch()
        if snapshot and self.parts > 1 and self.config.places_whole:
            self._master_whole()
        self._close()
        if stop == len(events):  # no further epoch
            self._block = None
        kinds, names, effects = self.features.kinds, self._born_names(), Effects(*logged[e.EFFECTS :])
        keyed = self._t.key_kind != t.NO_KEYS
        return EpochChange(self._records, events.x, names, rejected, block.attr, kinds, event_ts, effects, keyed)

    def split(
        self, change: EpochChange, ctl: np.ndarray, epoch: int, positions: Mapping[str, np.ndarray] | None = None
    ) -> list[Block]:
        """The TOPOLOGY block of each task; the first one also carries the input positions (columns `pos_*`)."""
        return split(change, self.tasks, ctl, epoch, positions or {})

    def after_restore(self) -> None:
        """Build derived state from the tables."""
        tables = self._t
        tables.reserve_vertices(0)
        tables.reserve_edges(0)
        tables.reserve_slots(0)
        tables.reserve_words(0)
        tables.reserve_lists()
        self._log = self._empty_log()
        self._keys = make_index(self._salt, 2 * tables.scalar(t.VERTICES))
        view = tables.view
        if self.config.id_kind == STRING:
            rows, bits = tables.scalar(t.VERTEX_ROWS), self.config.key_bits
            index_names(self._keys, view.vertex.data, view.wide, view.words.data, rows, bits)
        else:
            index_keys(self._keys, view.vertex.data, view.wide, tables.live_vertices())
        edges = tables.live_edges()
        self._edges = self._edge_index(edges.size)
        index_edges(self._edges, view, edges, self.config.key_bits)
        self._types.after_restore(edges)
        if self._t.is_timed:
            find_earliest(view)

    def forget_indexes(self) -> None:
        """Give back the memory of all but tables and the last change; no events can come before `after_restore`."""
        self._keys, self._edges = make_index(self._salt), self._edge_index(0)
        self._log, self._block = self._empty_log(), None

    @property
    def vertices(self) -> int:
        """Live vertices."""
        return self._t.scalar(t.VERTICES)

    @property
    def edges(self) -> int:
        """Edges; an undirected one counts twice, a self-loop once."""
        return self._t.scalar(t.EDGES)

    @property
    def event_ts(self) -> int | None:
        """The largest `ts` so far; None before the first, or where it does not matter."""
        return self._times.largest

    def live_graph(self) -> PlacedGraph:
        """The graph as it is now."""
        return live_graph(self._t, self.config.id_kind, self._types, self.features.kinds)

    def edge_places(self) -> np.ndarray:
        """Part, slots of both ends there, number within its pair, and code of the type of each live edge.

        Shapes: (5, edges) int32. The number differs from those of the pair's other edges: it is the code of the type
        or, where edges have keys, the number of the edge in the graph.
        """
        return edge_places(self._t)

    def inspection(self) -> Inspection:
        """Return the graph as it is between two epochs, to be read; good until the next one."""
        of_ids = self.config.id_kind, self.config.key_bits
        return Inspection(self._t, self._keys, self._edges, self._log, self._types, *of_ids)

    def forget_attr_width(self, width: int | None) -> None:
        """Have `attr_width` be as it was, after events that are taken back."""
        self._t.scalars.data[t.ATTR_WIDTH] = 0 if width is None else width + 1

    def stats(self) -> PartitionStats:
        """Return the quality of the partition."""
        return partition_stats(self._t)

    def _refusal(self, events: Events, start: int, event: int, reason: int) -> tuple[int, str]:
        """A rejected event, as its number in the epoch that begins with event `start`, and the reason in words."""
        name = events.types[int(events.etype[event])]
        particulars = {
            "bound": self.config.types_max,
            "name": repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…"),
            "width": self.attr_width,
            "numbers": max(events.values[event : event + 1].attr_widths, default=-1),
        }
        return event - start, REASONS[reason].format(**particulars)

    def _make_room(self, n: int, adds: int, edges: int) -> None:
        """Room for `n` events, of which `edges` are about edges and `adds` add some.

        The log of a large epoch grows as it fills: what it may come to at worst is many times what a snapshot does.
        """
        if adds:
            adds *= 2 if self._mirrors.size else 1
            self._t.reserve_edges(adds)
            rows, pairs = self._edges
            rows = grown(rows, rows.used.item() + adds)
            pairs = grown(pairs, pairs.used.item() + adds) if self._t.key_kind else pairs
            if rows is not self._edges.rows or pairs is not self._edges.pairs:
                self._edges = EdgeIndex(rows, pairs)
        self._log.counts.fill(0)
        if len(self._log.edges) + len(self._log.vertices) > max(_SCRATCH_KEPT, 64 * n):
            self._log = self._empty_log()
        few, edges = min(n, _SCRATCH_KEPT), edges * (2 if self._mirrors.size else 1)
        self._log = grow_log(self._log, vertices=2 * few, edges=edges + EDGES_PER_EVENT, events=few)

    def _resolve(self, block: EventColumns, start: int, stop: int) -> t.GraphView:
        """Find the vertices of an epoch's events; returns the tables as they are then."""
        at, batch, kinds, ids, bits = start, block.batch, block.kinds, block.ids, block.bits
        while True:
            view = self._t.view
            known = view, self._keys, self._log
            at = self._resolve_kernel(at, stop, batch.op, kinds, *ids, *known, batch.a, batch.b, *bits)
            if at == stop:
                return view
            self._grow_dictionary(block.events, at)

    def _grow_dictionary(self, events: Events, at: int) -> None:
        self._t.reserve_vertices(2)
        self._keys = grown(self._keys, int(self._keys.used[0]) + MORE)
        self._log = grow_log(self._log, vertices=int(self._log.counts[e.LOGGED_VERTICES]) + 2, edges=0, events=0)
        if events.a.kind == STRING:
            ends = (events.a.offsets[at : at + 2], events.b.offsets[at : at + 2])
            longest = max(int(pair[1] - pair[0]) for pair in ends)
            self._t.reserve_words(2 * words_for(longest))

    def _apply(self, batch: Batch, at: int, stop: int, view: t.GraphView) -> None:
        types, ways = self._types.counts, (self._mirrors, self._one_loop)
        while True:
            at = self._apply_kernel(at, stop, batch, view, types, self._edges, self._log, *ways)
            if at == stop:
                return
            self._grow_log()
            if self._t.key_kind == t.STRING_KEYS:
                self._t.reserve_words(2 * words_for(int(batch.keys.offsets[at + 1] - batch.keys.offsets[at])))
                view = self._t.view

    def _expire(self, before: int | None) -> None:
        """Delete the edges whose last `ts` is less than that."""
        if before is None or int(self._t.earliest[1].min()) >= before:
            return
        at, view, types = 0, self._t.view, self._types.counts
        while at < len(view.earliest):
            at = self._expire_kernel(at, before, view, types, self._edges, self._log)
            if at < len(view.earliest):
                self._grow_log()

    def _grow_log(self) -> None:
        """Make room for one more event, which may be the deletion of a vertex with all its edges."""
        logged = self._log.counts
        more = int(logged[e.NEEDED])
        vertices = min(int(logged[e.LOGGED_VERTICES]) + more, self._t.scalar(t.VERTEX_ROWS))
        self._log = grow_log(self._log, vertices, int(logged[e.LOGGED_EDGES]) + more, int(logged[e.REJECTED]) + 1)

    def _master_whole(self) -> None:
        """Give the vertices of a graph that is there as a whole their masters."""
        tables, rows = self._t, self._t.live_edges()
        edge = tables.edge.data
        masters = whole_masters(edge[rows, t.SRC], edge[rows, t.DST], tables.scalar(t.VERTEX_ROWS), self.parts)
        if masters is not None:
            tables.vertex.data[: len(masters), t.MASTER] = masters
            tables.loads[:, t.MASTERS] += np.bincount(masters[masters >= 0], minlength=self.parts)

    def _close(self) -> None:
        edges, vertices = int(self._log.counts[e.LOGGED_EDGES]), int(self._log.counts[e.LOGGED_VERTICES])
        self._t.reserve_slots(vertices)
        if not self._has_room(vertices, edges):
            fresh = int(np.count_nonzero(np.isnan(self._log.old[:edges, e.E_OLD]))) if edges else 0
            self._reserve_records(vertices, edges - fresh, fresh)
        strings, bits = self.config.id_kind == STRING, self.config.key_bits
        of = self._log, self._records, self._keys, self._edges, strings, bits, self._rule
        placed = -1
        while placed < self._records.counts[ADDED]:
            self._t.reserve_lists()
            placed = self._close_kernel(max(placed, 0), self._t.view, *of)

    def _has_room(self, vertices: int, edges: int) -> bool:
        """Return whether few records have room, whichever of the edges were there before."""
        room = self._room
        return vertices <= room[0] and edges <= room[1] and edges <= room[2] and sum(room) <= _SCRATCH_KEPT

    def _reserve_records(self, *needs: int) -> None:
        if max(self._room) and sum(self._room) > max(_SCRATCH_KEPT, 16 * sum(needs)):
            self._room = 0, 0, 0
        elif all(need <= room for need, room in zip(needs, self._room, strict=True)):
            return
        vertices, before, fresh = (
            max(room, need + min(need // 2, _SCRATCH_KEPT)) for need, room in zip(needs, self._room, strict=True)
        )
        self._room = vertices, before, fresh
        self._records = self._make_records(*self._room)

    def _empty_log(self) -> Log:
        return empty_log(self._t.values, attributed=self.features.edge_width > 0)

    def _make_records(self, vertices: int, before: int, fresh: int) -> Records:
        more = {"out_degrees": self.config.out_degrees, "degree_relations": self._t.has_degrees}
        more |= {"attributed": self.features.edge_width > 0, "keyed": self._t.key_kind != t.NO_KEYS}
        return make_records(vertices, before, fresh, self.parts, self._t.values, **more)

    def _edge_index(self, edges: int) -> EdgeIndex:
        """Return indexes with room for that many edges."""
        pairs = make_index(self._salt, edges) if self._t.key_kind else no_pairs(self._salt)
        return EdgeIndex(make_index(self._salt, edges), pairs)

    def _born_names(self) -> tuple[np.ndarray, np.ndarray] | None:
        if self.config.id_kind != STRING:
            return None
        born = int(self._records.counts[BORN])
        offsets = np.empty(born + 1, np.int64)
        view = self._t.view
        return offsets, gather_names(view.vertex.data, view.words.data, self._records.born[VERTEX_ROW, :born], offsets)
