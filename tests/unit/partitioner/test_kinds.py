"""Vertices of several kinds and relations: the Partitioner's blocks build the graph that a dict of events has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.state.table
from freshet.kinds import Kinds, KindsError, Relation
from freshet.partitioner.config import LOOP_IN_RELATION, REASONS, STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import ALL_KEYS, Events
from freshet.partitioner.ids import NO_KEY
from freshet.schema import Features
from freshet.state.codec import encode
from freshet.state.task_parts import TaskParts
from tests.support.graphs.kind_reference import KindGraph, KindReceiver, expected_live, given_relations

SHOP = Kinds(
    ("user", "item", "shop"),
    (1, 2, 3),
    (
        Relation(0, "buys", 1, edge_width=2),
        Relation(1, "rev_buys", 0, edge_width=2, mirrors=0),
        Relation(0, "rates", 1, edge_width=1),
        Relation(0, "rates", 2),
        Relation(1, "rev_rates", 0, mirrors=2),
        Relation(0, "knows", 0),
        Relation(0, "known_by", 0, mirrors=5),
        Relation(2, "sells", 1),
    ),
)
PLAIN = Kinds(
    ("user", "item"),
    (2, 0),
    (Relation(0, "buys", 1), Relation(1, "rev_buys", 0, mirrors=0), Relation(0, "knows", 0), Relation(1, "like", 1)),
)
ONE = Kinds(("",), (2,), (Relation(0, "cites", 0), Relation(0, "cited_by", 0, mirrors=0), Relation(0, "writes", 0)))
SCHEMAS = [SHOP, PLAIN, ONE]
INTS, STRINGS = [-3, 0, 7, 1 << 40], ["", "a", "ä" * 9, "x" * 40]
CTL = np.arange(8, dtype=np.int64)


@pytest.fixture(scope="module", autouse=True)
def small_pages():
    """Pages of 16 rows, so that a change that is not announced does not hide behind one that is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freshet.state.table, "PAGE_BYTES", 64)
        yield


class KindBench:
    """A Partitioner of kinds, what its blocks have built, and the graph on dicts, in step."""

    def __init__(self, kinds: Kinds, parts: int, tasks: int = 1, **config: Any) -> None:
        self.kinds, self.features = kinds, Features.of_kinds(kinds)
        self.strings = config.get("id_kind") == "string"
        self.config, self.parts = PartitionerConfig(**config), parts
        self.tasks = TaskParts.dealt(parts, min(tasks, parts))
        self.partitioner = self.made()
        keyed, one_loop = bool(self.config.edge_keys), self.config.one_loop_relations if self.config.edge_keys else ()
        self.graph = KindGraph(kinds, self.config.edge_ttl_ms, keyed=keyed, one_loop=one_loop)
        self.receiver = KindReceiver(kinds, parts, strings=self.strings)
        self.epoch, self.pages = 0, dict[tuple[str, int], bytes]()

    def made(self) -> Partitioner:
        """A new Partitioner without state."""
        return Partitioner(self.parts, self.features, self.config, self.tasks)

    def events(self, rows: Sequence[tuple[Any, ...]], ts: Sequence[int | None] = ()) -> Events:
        """Rows of KindGraph as a block."""
        keys = [op.partition("#")[2] or None for op, *_ in rows] if self.graph.keyed else []
        if self.config.edge_keys == "int":
            keys = [key if key in (None, ALL_KEYS) else int(key) for key in keys]
        return events_of([self._row(*row) for row in rows], self.features, self.config.id_kind, ts=ts, keys=keys)

    def _row(self, op: str, *fields: Any) -> tuple[Any, ...]:
        op = op.partition("#")[0]
        if isinstance(fields[0], tuple):
            (kind, vertex), *x = fields
            return op, ((self.kinds.names[kind], vertex) if self.kinds.are_named else vertex), *x
        relation, src, dst, *values = fields
        name = self.kinds.relation_names[relation]
        if op == "del_edge":
            return op, src, dst, name
        weight, attr = [*values, *[1.0, None][len(values) :]]
        width = self.features.edge_width
        padded = () if attr is None else ((*attr, *[0.0] * (width - len(attr))),)
        return op, src, dst, weight, name, -1, *padded

    def run(self, rows: Sequence[tuple[Any, ...]], ts: Sequence[int | None] = (), *, snapshot: bool = False) -> bytes:
        """One epoch, checked; returns the bytes of its blocks."""
        self.epoch += 1
        events = self.events(rows, ts)
        if self.epoch % 2:  # as they come from the journal
            events = Events.decode(events.encode())
        if self.epoch % 3 == 0:  # as blocks that were cut and joined
            cut = len(events) // 2
            events = Events.concatenate([events.slice(0, cut), Events.empty(self.features), events.slice(cut, 99)])
        change = self.partitioner.partition(events, snapshot=snapshot)
        effects = change.effects._asdict()
        blocks = self.partitioner.split(change, CTL, self.epoch)
        for table in self.partitioner.tables:
            self.pages.update({(table.name, page): data for page, data in table.take_owed(table.freeze())})
        self.graph.apply(list(rows), list(ts))
        assert change.rejected == [(event, self._refusal(rows[event])) for event in self.graph.rejected]
        assert effects == {name: self.graph.effects[name] for name in effects}
        self.receiver.apply(blocks, self.tasks.parts_of)
        self.receiver.assert_is(self.graph)
        self.receiver.assert_degrees(self.graph, self.config.degree_relations)
        self.assert_live()
        return b"".join(encode(block.header, block.columns) for block in blocks)

    def _refusal(self, row: tuple[Any, ...]) -> str:
        name = self.kinds.relation_names[row[1]]
        return REASONS[LOOP_IN_RELATION].format(name=repr(name))

    def assert_live(self) -> None:
        """The tables have the same graph."""
        live, ids = self.partitioner.live_graph(), self.partitioner.live_graph().ids.to_list()
        assert live.kind is not None
        vertices = list(zip(live.kind.tolist(), ids, strict=True))
        columns = (live.etype, live.src, live.dst, live.values.weight)
        keys = [()] * len(live.src)
        if live.edge_keys is not None:
            keys = [("" if key in (NO_KEY, "") else str(key),) for key in live.edge_keys.to_list()]
        listed = zip(*(one.tolist() for one in columns), keys, strict=True)
        edges = {(e, ids[s], ids[d], *key): w for e, s, d, w, key in listed}
        assert (set(vertices), edges) == expected_live(self.graph)
        assert (len(vertices), len(live.src)) == (self.partitioner.vertices, self.partitioner.edges)
        assert live.types == self.kinds.relation_names

    def restore(self) -> None:
        """Go on with another Partitioner that has the pages alone, which were announced as changed after each epoch."""
        self.partitioner = self.made()
        for (name, page), data in self.pages.items():
            self.partitioner.tables[name].load_page(page, data)
        self.partitioner.after_restore()


@st.composite
def rows_of(draw: st.DrawFn, kinds: Kinds, ids: list[Any], *, keyed: bool = False) -> tuple[Any, ...]:
    """Event rows over a tiny domain, in which all kinds have the same ids; `keyed`: some edges have keys."""
    vertex, number = st.sampled_from(ids), st.sampled_from([-2.0, 0.0, 1.0, 3.0])
    what = draw(st.integers(0, 9))
    if what < 6:
        relation = draw(st.sampled_from(given_relations(kinds)))
        ends = relation, draw(vertex), draw(vertex)
        key = draw(st.sampled_from(["", "#3", "#-1", "#77"])) if keyed else ""
        if what < 2:
            return f"del_edge{draw(st.sampled_from([key, '#*'])) if keyed else ''}", *ends
        width = kinds.relations[relation].edge_width
        attr = draw(st.none() | st.tuples(*[number] * width)) if width else None
        return f"add_edge{key}", *ends, draw(number), attr
    at = draw(st.integers(0, len(kinds) - 1)), draw(vertex)
    if what == 6:
        return "del_vertex", at
    if what == 7:
        return "add_vertex", at
    return draw(st.sampled_from(["add_vertex", "set_features"])), at, draw(st.tuples(*[number] * kinds.widths[at[0]]))


CONFIGS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(STRATEGIES),
        "hybrid_threshold": st.integers(0, 3),
        "key_bits": st.sampled_from([1, 2, 64]),
        "id_kind": st.sampled_from(["int", "string"]),
        "degree_relations": st.sampled_from([(), (0,), (2, 0)]),
        "edge_keys": st.sampled_from(["", "", "int", "string"]),
        "one_loop_relations": st.sampled_from([(), (2,), (0, 1)]),
    }
)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(SCHEMAS), CONFIGS, st.integers(1, 4), st.integers(1, 4), st.integers(0, 8))
def test_blocks_build_the_graph(data, kinds, config, parts, tasks, restored_at):
    """A restore in the middle changes no byte of the blocks that follow."""
    bench, twin = (KindBench(kinds, parts, tasks, **config) for _ in range(2))
    ids = STRINGS if bench.strings else INTS
    for epoch, rows in enumerate(
        data.draw(st.lists(st.lists(rows_of(kinds, ids, keyed=bench.graph.keyed), max_size=12), max_size=8))
    ):
        if epoch == restored_at:
            twin.restore()
        assert bench.run(rows) == twin.run(rows)
    pair = (bench.partitioner.tables, twin.partitioner.tables)
    tables = [{one.name: one.data.tobytes().rstrip(b"\0") for one in found} for found in pair]
    assert tables[0] == tables[1]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(SCHEMAS), st.integers(1, 3))
def test_edges_of_mirrors_expire_with_those_that_they_follow(data, kinds, parts):
    """An edge that is added again is kept on, its mirror too; of parallel ones each has a time of its own."""
    keys = data.draw(st.sampled_from(["", "int"]))
    bench = KindBench(kinds, parts, edge_ttl_ms=20, ts_jump_ms=0, edge_keys=keys)
    time = st.none() | st.integers(0, 60)
    for _ in range(4):
        rows = data.draw(st.lists(rows_of(kinds, INTS, keyed=keys == "int"), min_size=1, max_size=8))
        bench.run(rows, [data.draw(time) for _ in rows])


@pytest.mark.parametrize("parts", [1, 3, 20])
@pytest.mark.parametrize("id_kind", ["int", "string"])
def test_longer_streams(id_kind, parts):
    """Tables, indexes, chains of slots and lists of parts grow, empty and fill again; the first epoch is a snapshot."""
    rng = np.random.default_rng(parts)
    bench = KindBench(SHOP, parts, 2, id_kind=id_kind, hybrid_threshold=6, degree_relations=(5, 6, 1))

    def name() -> Any:
        number = int(rng.zipf(1.3)) % 200
        return f"name {number}" if id_kind == "string" else number - 100

    def event(deletes: float) -> tuple[Any, ...]:
        relation, kind = int(rng.choice(given_relations(SHOP))), int(rng.integers(3))
        if rng.random() < deletes:
            return ("del_vertex", (kind, name())) if rng.random() < 0.4 else ("del_edge", relation, name(), name())
        if rng.random() < 0.2:
            return "set_features", (kind, name()), tuple(map(float, rng.integers(1, 5, kind + 1)))
        return "add_edge", relation, name(), name(), float(rng.integers(1, 5)), None

    sizes = []
    for epoch in range(12):
        rows = [event(0.1 if epoch % 6 < 4 else 0.95) for _ in range(120)]
        bench.run(rows[:98] if epoch % 3 == 2 else rows, snapshot=epoch == 0)
        sizes.append(bench.partitioner.edges)
        if epoch == 7:
            bench.restore()
    assert max(sizes) > 2 * min(sizes[4:]) > 0


def test_equal_ids_of_two_kinds_are_two_vertices():
    bench = KindBench(PLAIN, 2)
    bench.run([("add_vertex", (0, 7), (1.0, 2.0)), ("add_edge", 0, 7, 7)])
    bench.run([("del_vertex", (0, 7))])
    assert bench.graph.x.keys() == {(1, 7)} and not bench.graph.edges
    bench.run([("add_edge", 3, 7, 7), ("add_edge", 2, 7, 7)])
    assert bench.partitioner.edges == 2


def test_undirected_relations_within_a_kind_follow_themselves():
    kinds = Kinds(("",), (1,), (Relation(0, "a", 0), Relation(0, "b", 0), Relation(0, "rev_b", 0, mirrors=1)))
    partitioner = Partitioner(1, Features.of_kinds(kinds), PartitionerConfig(undirected=True))
    rows = [
        ("add_edge", 1, 2, 1.0, "a"),
        ("add_edge", 1, 2, 1.0, "b"),
        ("add_edge", 3, 3, 1.0, "a"),
        ("add_edge", 3, 3, 1.0, "b"),
    ]
    partitioner.partition(events_of(rows, Features.of_kinds(kinds)))
    live = partitioner.live_graph()
    ids = live.ids.to_list()
    edges = {(live.types[e], ids[s], ids[d]) for e, s, d in zip(live.etype, live.src, live.dst, strict=True)}
    assert edges == {("a", 1, 2), ("a", 2, 1), ("b", 1, 2), ("rev_b", 2, 1), ("a", 3, 3), ("b", 3, 3), ("rev_b", 3, 3)}
    with pytest.raises(KindsError, match="--undirected: edges of 'rates' lead from user to shop"):
        Partitioner(1, Features.of_kinds(SHOP), PartitionerConfig(undirected=True))


def test_events_of_other_kinds_are_refused():
    partitioner = Partitioner(1, Features.of_kinds(PLAIN))
    with pytest.raises(ValueError, match=r"expected features of width \(2, 0\), got \(1, 2, 3\)"):
        partitioner.partition(events_of([("add_vertex", ("shop", 1), (1.0, 2.0, 3.0))], Features.of_kinds(SHOP)))
    with pytest.raises(ValueError, match="expected relations among"):
        partitioner.partition(events_of([("add_edge", 1, 2, 1.0, "sells")], Features.of_kinds(SHOP)))


def test_plain_blocks_have_no_column_more():
    """Without kinds there is neither a kind nor a prefix."""
    events = events_of([("add_edge", 1, 2), ("add_vertex", 3, (1.0,))], Features(1))
    assert events.kind is None
    partitioner = Partitioner(2, Features(1))
    for block in partitioner.split(partitioner.partition(events), CTL, 1):
        assert not [name for name in block.columns if "." in name]
    assert events_of([("add_vertex", 3, (1.0, 2.0))], Features.of_kinds(ONE)).x.several is None


@pytest.mark.parametrize("parts", [1, 3])
def test_slots_count_by_part_and_kind(parts):
    """Those of a kind have no gaps for vertices of others, and are handed out again to vertices of the kind alone."""
    bench = KindBench(SHOP, parts, strategy="hash")
    bench.run([("add_vertex", (kind, vertex)) for vertex in range(30) for kind in range(3) if vertex % (kind + 1) == 0])

    def slots() -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for part, kind, slot in sorted(bench.receiver.masters):
            found.setdefault((part, kind), []).append(slot)
        return found

    before = slots()
    assert all(found == list(range(len(found))) for found in before.values())
    bench.run([("del_vertex", (1, vertex)) for vertex in range(0, 30, 2)])
    bench.run([("add_vertex", (kind, vertex)) for kind in (0, 2) for vertex in range(40, 50)])
    bench.run([("add_vertex", (1, vertex)) for vertex in range(0, 30, 2)])
    assert all(found == list(range(len(found))) for found in slots().values())
    assert all(slots()[part, 1] == before[part, 1] for part in range(parts))


def test_the_same_id_of_two_kinds_is_no_self_loop():
    bench = KindBench(PLAIN, 1, edge_keys="int", one_loop_relations=(0, 2))
    bench.run([("add_edge#1", 0, 7, 7), ("add_edge#2", 0, 7, 7), ("add_edge#1", 2, 7, 7), ("add_edge#2", 2, 7, 7)])
    assert bench.graph.rejected == [3]
