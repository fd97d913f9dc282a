"""A slow, obvious graph of several kinds and relations on dicts, and receivers of its TOPOLOGY blocks, kind by kind."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any

import numpy as np

from freshet.kinds import NO_MIRROR, Kinds
from freshet.partitioner.events import ALL_KEYS
from freshet.state.block_columns import kind_prefix, relation_prefix
from freshet.state.codec import Block, view, views

Vertex = tuple[int, Any]  # kind and id
Edge = tuple[
    Any, ...
]  # relation, ids of source and destination; where edges have keys, the text of its key, "" without


class KindGraph:
    """What events mean, one at a time: vertices by (kind, id), edges by (relation, source, destination).

    Where edges have keys, these stand behind the operation, as in "add_edge#5", and edges are known by them, too.
    """

    def __init__(self, kinds: Kinds, ttl: int = 0, *, keyed: bool = False, one_loop: Collection[int] = ()) -> None:
        """`one_loop`: relations of which a vertex has one self-loop at most; one with another key is rejected."""
        self.kinds, self.ttl, self.keyed, self.one_loop = kinds, ttl, keyed, one_loop
        self.rejected: list[int] = []  # the last epoch's events that break that rule
        self.x: dict[Vertex, tuple[float, ...]] = {}
        self.edges: dict[Edge, tuple[float, tuple[float, ...]]] = {}  # weight and attributes
        self.added: dict[Edge, int | None] = {}
        self.largest: int | None = None
        self.effects: Counter[str] = Counter()  # of the last epoch's events: as `Effects` names them

    def mirror_of(self, relation: int) -> int | None:
        """The relation that follows this one."""
        found = [k for k, one in enumerate(self.kinds.relations) if one.mirrors == relation]
        return found[0] if found else None

    def both_ways(self, relation: int, src: Any, dst: Any) -> list[Edge]:
        """The edges that an event about one acts on."""
        mirror = self.mirror_of(relation)
        return [(relation, src, dst), *([] if mirror is None else [(mirror, dst, src)])]

    def born(self, vertex: Vertex) -> None:
        """Make the vertex exist."""
        self.x.setdefault(vertex, (0.0,) * self.kinds.widths[vertex[0]])

    def apply(self, rows: list[tuple[Any, ...]], times: list[int | None]) -> None:
        """Take an epoch of rows as `rows_of` of the tests makes them."""
        self.effects, self.rejected = Counter(), []
        for number, ((op, *fields), ts) in enumerate(zip(rows, times or [None] * len(rows), strict=True)):
            if op == "del_vertex":
                self.effects.update(deletions=1, nothing_deleted=fields[0] not in self.x)
                self.x.pop(fields[0], None)
                self.edges = {edge: one for edge, one in self.edges.items() if fields[0] not in self.ends(edge)}
            elif op in ("add_vertex", "set_features"):
                self.effects["unchanged"] += fields[0] in self.x and len(fields) == 1
                self.born(fields[0])
                if len(fields) > 1:
                    self.x[fields[0]] = fields[1]
            elif not self._edge(op, *fields, ts=ts):
                self.rejected.append(number)
                continue
            if ts is not None:
                self.largest = max(ts, self.largest or ts)
        if self.ttl and (now := self.largest) is not None:
            old = [edge for edge in self.edges if (ts := self.added[edge]) is not None and ts + self.ttl < now]
            for edge in old:
                del self.edges[edge]

    def _edge(
        self, op: str, relation: int, src: Any, dst: Any, weight: float = 1.0, attr: Any = None, *, ts: int | None
    ) -> bool:
        """Add or delete an edge; False where it breaks a rule."""
        op, _, key = op.partition("#")
        own = self._known((relation, src, dst), key)
        if op == "del_edge":
            gone = [one for edge in self.both_ways(relation, src, dst) for one in self._meant(edge, key)]
            self.effects.update(deletions=1, nothing_deleted=not gone)
            for edge in gone:
                del self.edges[edge]
            return True
        one, other = self.ends(own)  # the same id of two kinds is two vertices
        if one == other and relation in self.one_loop and any(one != own for one in self._meant(own[:3], ALL_KEYS)):
            return False
        if own in self.edges:
            same = self.edges[own][0] == weight and (not self.ttl or self.added[own] == ts)
            attributed = any(one.edge_width for one in self.kinds.relations)
            self.effects.update(replaced=1, unchanged=same and not attributed)
        for edge in self.both_ways(relation, src, dst):
            for vertex in self.ends(edge):
                self.born(vertex)
            width = self.kinds.relations[edge[0]].edge_width
            self.edges[self._known(edge, key)] = weight, tuple(attr)[:width] if attr else (0.0,) * width
            self.added[self._known(edge, key)] = ts
        return True

    def _known(self, edge: Edge, key: str) -> Edge:
        """What edges are known by."""
        return (*edge, key) if self.keyed else edge

    def _meant(self, edge: Edge, key: str) -> list[Edge]:
        """The edges that are there of these ends, with this key or with all."""
        if key == ALL_KEYS:
            return [one for one in self.edges if one[:3] == edge]
        return [one for one in [self._known(edge, key)] if one in self.edges]

    def ends(self, edge: Edge) -> tuple[Vertex, Vertex]:
        """Both ends of an edge, with their kinds."""
        relation = self.kinds.relations[edge[0]]
        return (relation.source, edge[1]), (relation.target, edge[2])


class KindReceiver:
    """All parts as operators see them, from TOPOLOGY blocks alone: rows by (part, kind, slot), edges by relation."""

    def __init__(self, kinds: Kinds, parts: int, *, strings: bool) -> None:
        self.kinds, self.parts, self.strings = kinds, parts, strings
        self.masters: dict[tuple[int, int, int], tuple[int, Any]] = {}  # (part, kind, slot): key and id
        self.replicas: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self.x: dict[tuple[int, int, int], tuple[float, ...]] = {}
        self.degree: dict[tuple[int, int, int], tuple[int, float]] = {}
        self.degree_in: dict[tuple[int, tuple[int, int, int]], tuple[int, float, float]] = {}  # by relation
        self.split: set[tuple[int, int, int]] = set()
        self.of_master: defaultdict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        self.edges: dict[tuple[int, int, int, int], list[tuple[float, tuple[float, ...], Any]]] = defaultdict(list)

    def apply(self, blocks: list[Block], parts_of: tuple[range, ...]) -> None:
        """Take the blocks of all tasks."""
        for block, parts in zip(blocks, parts_of, strict=True):
            names = {*map(kind_prefix, range(len(self.kinds))), *map(relation_prefix, range(len(self.kinds.relations)))}
            assert views(block).keys() <= {"", *names}
            for step in (self._births, self._edges, self._masters, self._deaths):
                step(block, parts)

    def _rows(self, block: Block, group: str, kind: int, parts: range) -> list[tuple[int, int, int]]:
        slots, to = block.get(f"{group}_slot"), block.get(f"{group}_to")
        of = to.tolist() if len(parts) > 1 else [parts[0]] * slots.size
        assert all(part in parts for part in of)
        return [(part, kind, slot) for part, slot in zip(of, slots.tolist(), strict=True)]

    def _each(self, block: Block) -> Any:
        return ((kind, view(block, kind_prefix(kind))) for kind in range(len(self.kinds)))

    def _births(self, whole: Block, parts: range) -> None:
        for kind, block in self._each(whole):
            offsets, text = block.get("m_off").tolist(), block.get("m_name").tobytes()
            for k, row in enumerate(self._rows(block, "m", kind, parts)):
                assert row not in self.masters and row not in self.replicas, "a slot in use was handed out"
                key = int(block.get("m_key")[k])
                self.masters[row] = key, (text[offsets[k] : offsets[k + 1]].decode() if self.strings else key)
                self.x[row] = (0.0,) * self.kinds.widths[kind]
            homes = zip(block.get("r_part").tolist(), block.get("r_home").tolist(), strict=True)
            for row, (part, slot) in zip(self._rows(block, "r", kind, parts), homes, strict=True):
                assert row not in self.masters and row not in self.replicas, "a slot in use was handed out"
                self.replicas[row] = part, kind, slot

    def _edges(self, whole: Block, parts: range) -> None:
        for number, relation in enumerate(self.kinds.relations):
            block = view(whole, relation_prefix(number))
            for group, has_new in (("del", False), ("rew", True), ("add", True)):
                ends = [block.get(f"{group}_{end}").tolist() for end in ("src", "dst")]
                part = block.get(f"{group}_to").tolist() if len(parts) > 1 else [parts[0]] * len(ends[0])
                old = block.get({"del": "del_w", "rew": "rew_old"}.get(group, "add_w")).tolist()
                new = block.get("rew_new" if group == "rew" else "add_w").tolist()
                attr = [()] * len(ends[0])
                tags = block.get(f"{group}_row").tolist() or [None] * len(ends[0])
                if relation.edge_width:
                    assert set(block.get(f"{group}_type").tolist()) <= {number}
                    if has_new and ends[0]:
                        assert block.get(f"{group}_attr").shape[1] == relation.edge_width
                        attr = list(map(tuple, block.get(f"{group}_attr").tolist()))
                else:
                    assert f"{group}_type" not in block.columns and f"{group}_attr" not in block.columns
                    assert group != "rew" or all(one != other for one, other in zip(old, new, strict=True))
                for k, at in enumerate(zip(part, *ends, strict=True)):
                    edges = self.edges[(number, *at)]
                    if group != "add":
                        edges.remove(next(edge for edge in edges if (edge[0], edge[2]) == (old[k], tags[k])))
                    if has_new:
                        edges.append((new[k], attr[k], tags[k]))
                    for kind, slot in ((relation.source, at[1]), (relation.target, at[2])):
                        row = at[0], kind, slot
                        assert group != "add" or row in self.masters or row in self.replicas
            columns = (block.get(f"c_{name}").tolist() for name in ("count", "degree", "loop"))
            rows = [(number, row) for row in self._rows(block, "c", relation.target, parts)]
            assert len({*rows}) == len(rows)
            self.degree_in.update(zip(rows, zip(*columns, strict=True), strict=True))

    def _masters(self, whole: Block, parts: range) -> None:
        for kind, block in self._each(whole):
            counts = zip(block.get("c_count").tolist(), block.get("c_degree").tolist(), strict=True)
            self.degree.update(zip(self._rows(block, "c", kind, parts), counts, strict=True))
            rows = self._rows(block, "x0", kind, parts)
            if rows:
                assert block.get("x0").shape == (len(rows), self.kinds.widths[kind])
                self.x.update(zip(rows, map(tuple, block.get("x0").tolist()), strict=True))
            for row in self._rows(block, "s", kind, parts):
                assert row not in self.split
                self.split.add(row)
            self.split -= {*self._rows(block, "u", kind, parts)}
            for row, part in zip(self._rows(block, "rd", kind, parts), block.get("rd_part").tolist(), strict=True):
                del self.of_master[row][part]
            there = zip(block.get("ra_part").tolist(), block.get("ra_rslot").tolist(), strict=True)
            for row, (part, slot) in zip(self._rows(block, "ra", kind, parts), there, strict=True):
                assert part not in self.of_master[row]
                self.of_master[row][part] = slot

    def _deaths(self, whole: Block, parts: range) -> None:
        for kind, block in self._each(whole):
            for row, key in zip(self._rows(block, "d", kind, parts), block.get("d_key").tolist(), strict=True):
                assert self.masters.pop(row)[0] == key
                for rows in (self.x, self.degree, self.of_master):
                    rows.pop(row, None)
                self.degree_in = {at: one for at, one in self.degree_in.items() if at[1] != row}
                self.split.discard(row)
            for row in self._rows(block, "f", kind, parts):
                del self.replicas[row]

    def assert_is(self, graph: KindGraph) -> None:
        """What the blocks have built is that graph, with each vertex mastered once and replicas where it has edges."""
        at = {(kind, name): (part, kind, slot) for (part, kind, slot), (_, name) in self.masters.items()}
        assert len(at) == len(self.masters), "two masters"
        assert at.keys() == graph.x.keys()
        keys = [(kind, key) for (_, kind, _), (key, _) in self.masters.items()]
        assert len(set(keys)) == len(keys), "two vertices of a kind with one key"
        assert {vertex: self.x[row] for vertex, row in at.items()} == graph.x
        names = {row: (kind, name) for (kind, name), row in at.items()}
        names |= {row: names[home] for row, home in self.replicas.items()}
        found: dict[Edge, list[tuple[float, tuple[float, ...]]]] = defaultdict(list)
        needed, away, tags = set(), set(), list[int]()
        for (number, part, src, dst), edges in self.edges.items():
            relation = self.kinds.relations[number]
            ends = (part, relation.source, src), (part, relation.target, dst)
            for weight, attr, tag in edges:
                found[number, names[ends[0]][1], names[ends[1]][1]].append((weight, attr))
                tags += [tag] if tag is not None else []
                needed |= {*ends}
                away |= {names[ends[1]]} if ends[1] in self.replicas else set()
        wanted: dict[Edge, list[tuple[float, tuple[float, ...]]]] = defaultdict(list)
        for known, one in graph.edges.items():
            wanted[known[:3]].append(one)
        assert {edge: sorted(every) for edge, every in found.items()} == {
            edge: sorted(every) for edge, every in wanted.items()
        }
        assert len(set(tags)) == len(tags) == (len(graph.edges) if graph.keyed else 0)
        assert self.replicas.keys() == needed - self.masters.keys()
        replicas: defaultdict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        for (part, _, slot), home in self.replicas.items():
            replicas[home][part] = slot
        into: defaultdict[Vertex, list[tuple[bool, float]]] = defaultdict(list)
        for known, (weight, _) in graph.edges.items():
            source, target = graph.ends(known)
            into[target].append((source == target, weight))
        for vertex, row in at.items():
            weights = [weight for is_loop, weight in into[vertex] if not is_loop]
            assert self.degree[row] == (len(into[vertex]), math.fsum(weights)), vertex
            assert (row in self.split) == (vertex in away), vertex
            assert self.of_master.get(row, {}) == replicas[row], vertex

    def assert_degrees(self, graph: KindGraph, relations: tuple[int, ...]) -> None:
        """Of these relations alone the blocks have brought the degrees of all vertices that have in-edges."""
        at = {(kind, name): (part, kind, slot) for (part, kind, slot), (_, name) in self.masters.items()}
        edges: dict[tuple[int, tuple[int, int, int]], list[tuple[bool, float]]] = defaultdict(list)
        for known, (weight, _) in graph.edges.items():
            source, target = graph.ends(known)
            if known[0] in relations:
                edges[known[0], at[target]].append((source == target, weight))
        wanted = dict.fromkeys(self.degree_in, (0, 0.0, None)) | {
            row: (
                len(into),
                math.fsum(weight for is_loop, weight in into if not is_loop),
                math.fsum(loops) if (loops := [weight for is_loop, weight in into if is_loop]) else None,
            )
            for row, into in edges.items()
        }
        found = {row: (*one, None if math.isnan(loop) else loop) for row, (*one, loop) in self.degree_in.items()}
        assert found == wanted


def expected_live(graph: KindGraph) -> tuple[set[Vertex], dict[Edge, float]]:
    """What `Partitioner.live_graph` has of it."""
    return set(graph.x), {edge: weight for edge, (weight, _) in graph.edges.items()}


def given_relations(kinds: Kinds) -> list[int]:
    """The relations whose edges events bring."""
    return [number for number, one in enumerate(kinds.relations) if one.mirrors == NO_MIRROR]


def widths_of(kinds: Kinds) -> np.ndarray:
    """Widths by kind."""
    return np.array(kinds.widths)
