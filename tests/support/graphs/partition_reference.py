"""Slow, obvious second opinions on the Partitioner: event rules on dicts, and receivers that apply TOPOLOGY blocks."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict

import numpy as np

from freshet.state.codec import Block

Edge = tuple[object, object, str, object]  # its ends, type and key, None without


class ReferenceGraph:
    """The graph by the book: one event at a time, on dicts."""

    def __init__(
        self,
        undirected: bool = False,
        one_loop: bool = False,
        types_max: int = 32_767,
        ttl: int = 0,
        jump: int = 0,
    ) -> None:
        self.ttl, self.jump = ttl, jump
        self.came: list[int] = []  # the `ts` of all events so far
        self.largest: int | None = None  # of the accepted ones
        self.added: dict[Edge, int | None] = {}  # the `ts` of an edge's last add
        self.undirected, self.one_loop, self.types_max = undirected, one_loop, types_max
        self.attr_width: int | None = None
        self.x: dict[object, float] = {}
        self.edges: dict[Edge, float] = {}
        self.effects: Counter = Counter()  # of the last epoch's events: as `Effects` names them

    def apply(
        self, rows: list[tuple], times: list[int | None] | None = None, keys: list[object] | None = None
    ) -> list[int]:
        """Take an epoch; returns the numbers of the rejected events. The key "*" of a deletion stands for all."""
        times, keys = times or [None] * len(rows), keys or [None] * len(rows)
        self.effects = Counter()
        rejected = self._too_far_ahead(times)
        for number, (op, *fields) in enumerate(rows):
            if number in rejected:
                continue
            if op in ("add_vertex", "set_features"):
                x = fields[1][0] if len(fields) > 1 else None
                self.effects["unchanged"] += x is None and fields[0] in self.x
                self.x[fields[0]] = self.x.get(fields[0], 0.0) if x is None else x
            elif op == "del_vertex":
                self.effects.update(deletions=1, nothing_deleted=fields[0] not in self.x)
                self._delete_vertex(fields[0])
            elif op == "add_edge":
                src, dst, weight, etype, attr = [*fields, *[1.0, "", None][len(fields) - 2 :]]
                key = keys[number]
                others = [edge for edge in self.edges if edge[:2] == (src, src) and edge[2:] != (etype, key)]
                types = {edge[2] for edge in self.edges} - {""}
                if (
                    (self.one_loop and src == dst and others)
                    or (etype not in {"", *types} and len(types) >= self.types_max)
                    or (None not in (attr, self.attr_width) and attr != self.attr_width)
                ):
                    rejected.append(number)
                    continue
                self.attr_width = self.attr_width if attr is None else attr
                if (src, dst, etype, key) in self.edges:
                    same_time = not self.ttl or self.added[src, dst, etype, key] == times[number]
                    same = self.edges[src, dst, etype, key] == weight and same_time
                    self.effects.update(replaced=1, unchanged=same)
                for a, b in self._ways(src, dst):
                    self.x.setdefault(a, 0.0)
                    self.x.setdefault(b, 0.0)
                    self.edges[a, b, etype, key] = weight
                    self.added[a, b, etype, key] = times[number]
            else:
                src, dst, etype = [*fields, *[""][len(fields) - 2 :]]
                gone = [
                    edge
                    for edge in self.edges
                    if edge[:3] in [(a, b, etype) for a, b in self._ways(src, dst)] and keys[number] in ("*", edge[3])
                ]
                self.effects.update(deletions=1, nothing_deleted=not gone)
                for edge in gone:
                    del self.edges[edge]
        accepted = [ts for number, ts in enumerate(times) if ts is not None and number not in rejected]
        self.largest = max([*accepted, *([] if self.largest is None else [self.largest])], default=None)
        for edge in list(self.edges) if self.ttl and self.largest is not None else ():
            if (ts := self.added[edge]) is not None and ts + self.ttl < self.largest:
                del self.edges[edge]
        return sorted(rejected)

    def _too_far_ahead(self, times: list[int | None]) -> list[int]:
        """Those behind the first gap wider than the jump, above the largest so far and most of the neighbours."""
        here = [ts for ts in times if ts is not None]
        neighbours = (self.came + here)[-max(16, len(here)) :]
        neighbours += [self.largest] * (16 - len(neighbours)) if self.largest is not None else []
        self.came += here
        if not here or not self.jump:
            return []
        begin = max(
            statistics.median_low(neighbours), *([] if self.largest is None else [self.largest]), min(neighbours)
        )
        ladder = [begin, *sorted(ts for ts in here if ts > begin)]
        wide = [low for low, high in itertools.pairwise(ladder) if high - low > self.jump]
        return [number for number, ts in enumerate(times) if wide and ts is not None and ts > wide[0]]

    def _ways(self, src, dst):
        return [(src, dst), (dst, src)] if self.undirected and src != dst else [(src, dst)]

    def _delete_vertex(self, vertex) -> None:
        self.x.pop(vertex, None)
        self.edges = {edge: weight for edge, weight in self.edges.items() if vertex not in edge[:2]}

    def context(self, vertex) -> tuple[int, float]:
        """Number of in-edges, and weighted in-degree without self-loops."""
        into = [(src, weight) for (src, dst, *_), weight in self.edges.items() if dst == vertex]
        return len(into), math.fsum(weight for src, weight in into if src != vertex)

    def loop_weight(self, vertex) -> float | None:
        """The weight of the self-loops of all types together."""
        loops = [weight for (src, dst, *_), weight in self.edges.items() if src == dst == vertex]
        return math.fsum(loops) if loops else None


class Receiver:
    """One part as the operators see it: rows and edges, from TOPOLOGY blocks alone."""

    def __init__(self) -> None:
        self.masters: dict[int, int] = {}  # slot: key
        self.names: dict[int, str] = {}
        self.replicas: dict[int, tuple[int, int]] = {}  # slot: address of the master
        self.edges: Counter = Counter()  # (source slot, destination slot, weight)
        self.context: dict[int, tuple[int, float, float | None]] = {}
        self.x: dict[int, float] = {}
        self.split: set[int] = set()
        self.replica_sets: dict[int, dict[int, int]] = defaultdict(dict)
        self.sizes: Counter = Counter()

    def apply(self, block: Block, part: int, epoch: int) -> None:
        assert (block.header.kind, block.header.source, block.header.epoch) == (1, part, epoch)
        assert all(column.size for column in block.columns.values())
        columns = {name: column.tolist() for name, column in block.columns.items()}
        self._get = lambda name: columns.get(name, [])
        self._new_rows()
        self._change_edges()
        self._change_masters()
        self._drop_rows()
        names = ("m_slot", "d_slot", "r_slot", "f_slot", "del_src", "rew_src", "add_src")
        self.sizes = Counter({name: len(self._get(name)) for name in names})

    def _new_rows(self) -> None:
        get = self._get
        offsets, text = get("m_off"), bytes(get("m_name"))
        for k, (slot, key) in enumerate(zip(get("m_slot"), get("m_key"), strict=True)):
            assert slot not in self.masters and slot not in self.replicas, "a slot in use was handed out"
            self.masters[slot], self.x[slot] = key, 0.0
            if offsets:
                self.names[slot] = text[offsets[k] : offsets[k + 1]].decode()
        for slot, part, home in zip(get("r_slot"), get("r_part"), get("r_home"), strict=True):
            assert slot not in self.masters and slot not in self.replicas, "a slot in use was handed out"
            self.replicas[slot] = (part, home)

    def _change_edges(self) -> None:
        get = self._get
        for edge in zip(get("del_src"), get("del_dst"), get("del_w"), strict=True):
            assert self.edges[edge] > 0, f"{edge} is deleted but not there"
            self.edges[edge] -= 1
        for src, dst, old, new in zip(get("rew_src"), get("rew_dst"), get("rew_old"), get("rew_new"), strict=True):
            assert self.edges[src, dst, old] > 0 and old != new
            self.edges[src, dst, old] -= 1
            self.edges[src, dst, new] += 1
        for edge in zip(get("add_src"), get("add_dst"), get("add_w"), strict=True):
            assert all(slot in self.masters or slot in self.replicas for slot in edge[:2])
            self.edges[edge] += 1
        self.edges = +self.edges

    def _change_masters(self) -> None:
        get = self._get
        for slot, *context in zip(get("c_slot"), get("c_count"), get("c_degree"), get("c_loop"), strict=True):
            assert slot in self.masters
            self.context[slot] = (context[0], context[1], None if math.isnan(context[2]) else context[2])
        for slot, x in zip(get("x0_slot"), get("x0"), strict=True):
            self.x[slot] = x[0]
        for slot in get("s_slot"):
            assert slot not in self.split
            self.split.add(slot)
        for slot in get("u_slot"):
            self.split.remove(slot)
        for slot, part in zip(get("rd_slot"), get("rd_part"), strict=True):
            del self.replica_sets[slot][part]
        for slot, part, there in zip(get("ra_slot"), get("ra_part"), get("ra_rslot"), strict=True):
            assert part not in self.replica_sets[slot]
            self.replica_sets[slot][part] = there

    def _drop_rows(self) -> None:
        get = self._get
        for slot, key in zip(get("d_slot"), get("d_key"), strict=True):
            assert self.masters.pop(slot) == key
            for rows in (self.names, self.context, self.x, self.replica_sets):
                rows.pop(slot, None)
            self.split.discard(slot)
        for slot in get("f_slot"):
            del self.replicas[slot]
        used = {slot for edge in self.edges for slot in edge[:2]}
        assert used <= self.masters.keys() | self.replicas.keys(), "an edge lost a row"
        assert self.replicas.keys() <= used, "a replica without an edge"


def check_receivers(
    receivers: list[Receiver], reference: ReferenceGraph, strings: bool
) -> dict[object, tuple[int, int]]:
    """Hold what the blocks built against the reference; returns the address of each vertex."""
    at = {}
    for part, receiver in enumerate(receivers):
        for slot, key in receiver.masters.items():
            vertex = receiver.names[slot] if strings else key
            assert vertex not in at, "two masters"
            at[vertex] = (part, slot)
    assert at.keys() == reference.x.keys()
    vertex_at = {address: vertex for vertex, address in at.items()}
    edges: Counter = Counter()
    replicas = defaultdict(dict)
    away = set()
    for part, receiver in enumerate(receivers):
        for slot, home in receiver.replicas.items():
            replicas[home][part] = slot
        names = {slot: vertex_at[part, slot] for slot in receiver.masters}
        names |= {slot: vertex_at[home] for slot, home in receiver.replicas.items()}
        for (src, dst, weight), count in receiver.edges.items():
            edges[names[src], names[dst], weight] += count
            if dst in receiver.replicas:
                away.add(names[dst])
    assert edges == Counter((src, dst, np.float32(w).item()) for (src, dst, *_), w in reference.edges.items())
    for vertex, (part, slot) in at.items():
        receiver = receivers[part]
        assert receiver.context[slot][:2] == reference.context(vertex), vertex
        assert receiver.context[slot][2] == reference.loop_weight(vertex), vertex
        assert receiver.x[slot] == reference.x[vertex], vertex
        assert (slot in receiver.split) == (vertex in away), vertex
        assert receiver.replica_sets.get(slot, {}) == replicas[part, slot], vertex
    return at
