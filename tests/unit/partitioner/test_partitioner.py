"""The Partitioner against a slow reference: after every epoch, from the emitted blocks alone."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.partitioner.ids import NO_KEY
from freshet.partitioner.live_graph import PlacedGraph
from freshet.partitioner.net_change import Effects
from freshet.schema import Features
from freshet.state.codec import Block
from tests.support.graphs.partition_reference import Receiver, ReferenceGraph, check_receivers

INTS, STRINGS = [-3, 0, 7, 1 << 40, 5], ["", "a", "b", "ä" * 9, "x" * 40]
CTL = np.arange(8, dtype=np.int64)


class Bench:
    """A Partitioner, its receivers and the reference, in step."""

    def __init__(self, parts: int, **config) -> None:
        self.strings = config.get("id_kind") == "string"
        self.partitioner = Partitioner(parts, Features(1), PartitionerConfig(**config))
        self.receivers = [Receiver() for _ in range(parts)]
        options = {"one_loop": config.get("forbid_typed_loops", False), "types_max": config.get("types_max", 32_767)}
        rules = self.partitioner.config.rules
        options |= {"ttl": rules.edge_ttl_ms, "jump": rules.jump_ms}
        self.reference = ReferenceGraph(config.get("undirected", False), **options)
        self.epoch = 0

    def run(self, *rows: tuple, ts: Sequence[int | None] = (), keys: Sequence[object] = ()) -> list[Block]:
        """One epoch, checked; `ts` and `keys` of each event."""
        self.epoch += 1
        before_x, before = set(self.reference.x), dict(self.reference.edges)
        events = events_of(rows, Features(1), "string" if self.strings else "int", ts=ts, keys=keys)
        if self.epoch % 2:  # as it comes from the journal: read-only columns, defaults left out
            events = Events.decode(events.encode())
        change = self.partitioner.partition(events)
        blocks = self.partitioner.split(change, CTL, self.epoch)
        assert [event for event, _ in change.rejected] == self.reference.apply(list(rows), list(ts), list(keys))
        self.effects = change.effects
        assert self.effects._asdict() == {name: self.reference.effects[name] for name in Effects._fields}
        for part, (receiver, block) in enumerate(zip(self.receivers, blocks, strict=True)):
            receiver.apply(block, part, self.epoch)
        check_receivers(self.receivers, self.reference, self.strings)
        self._check_net(before_x, before)
        self._check_partitioner()
        return blocks

    def _check_net(self, before_x: set, before: dict) -> None:
        after_x, after = set(self.reference.x), self.reference.edges
        sizes = sum((receiver.sizes for receiver in self.receivers), start=type(self.receivers[0].sizes)())
        assert sizes["m_slot"] == len(after_x - before_x)
        assert sizes["d_slot"] == len(before_x - after_x)
        assert sizes["del_src"] == len(before.keys() - after.keys())
        assert sizes["add_src"] == len(after.keys() - before.keys())
        both = before.keys() & after.keys()
        assert sizes["rew_src"] == sum(before[edge] != after[edge] for edge in both)

    def _check_partitioner(self) -> None:
        partitioner, reference = self.partitioner, self.reference
        assert (partitioner.vertices, partitioner.edges) == (len(reference.x), len(reference.edges))
        graph = partitioner.live_graph()
        ids = graph.ids.to_list()
        found = {
            (ids[src], ids[dst], graph.types[etype], key): weight
            for src, dst, etype, weight, key in zip(
                *(column.tolist() for column in (graph.src, graph.dst, graph.etype, graph.values.weight)),
                _keys_of(graph),
                strict=True,
            )
        }
        assert set(ids) == set(reference.x)
        assert found == reference.edges
        stats = partitioner.stats()
        rows = sum(len(receiver.masters) + len(receiver.replicas) for receiver in self.receivers)
        assert stats.replication_factor == pytest.approx(rows / max(1, len(ids)))
        assert stats.split_share == pytest.approx(sum(len(r.split) for r in self.receivers) / max(1, len(ids)))


def _keys_of(graph: PlacedGraph) -> list[object]:
    """The key of each edge, None without."""
    if graph.edge_keys is None:
        return [None] * len(graph.src)
    return [None if key in (NO_KEY, "") else key for key in graph.edge_keys.to_list()]


def rows_of(ids: list) -> st.SearchStrategy:
    """Event rows over a tiny domain, so that they meet often."""
    vertex, number = st.sampled_from(ids), st.sampled_from([-2.0, 0.0, 1.0, 3.0])
    etype, attr = st.sampled_from(["", "", "t", "t", "u", "v"]), st.integers(0, 2)
    x = st.tuples(number)
    edges = st.one_of(
        st.tuples(st.just("add_edge"), vertex, vertex),
        st.tuples(st.just("add_edge"), vertex, vertex),
        st.tuples(st.just("add_edge"), vertex, vertex, number, etype),
        st.tuples(st.just("add_edge"), vertex, vertex, number, etype, attr),
        st.tuples(st.just("del_edge"), vertex, vertex),
        st.tuples(st.just("del_edge"), vertex, vertex, etype),
    )
    return st.one_of(
        edges,
        edges,
        st.tuples(st.just("add_vertex"), vertex),
        st.tuples(st.just("add_vertex"), vertex, x),
        st.tuples(st.just("set_features"), vertex, x),
        st.tuples(st.just("del_vertex"), vertex),
    )


configs = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(STRATEGIES),
        "hybrid_threshold": st.integers(0, 3),
        "hdrf_lambda": st.sampled_from([0.0, 1.0, 8.0]),
        "undirected": st.booleans(),
        "forbid_typed_loops": st.booleans(),
        "types_max": st.integers(1, 3),
    }
)


@settings(max_examples=150, deadline=None)
@given(configs, st.integers(1, 4), st.lists(st.lists(rows_of(INTS), max_size=12), max_size=8))
def test_blocks_build_the_reference_graph(config, parts, epochs):
    bench = Bench(parts, **config)
    for rows in epochs:
        bench.run(*rows)


@settings(max_examples=100, deadline=None)
@given(
    configs,
    st.integers(1, 4),
    st.lists(st.lists(rows_of(STRINGS), max_size=12), max_size=8),
    st.sampled_from([1, 2, 64]),
)
def test_blocks_build_the_reference_graph_of_string_ids(config, parts, epochs, key_bits):
    bench = Bench(parts, id_kind="string", key_bits=key_bits, **config)
    for rows in epochs:
        bench.run(*rows)
        keys = [key for receiver in bench.receivers for key in receiver.masters.values()]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("id_kind", ["int", "string"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_longer_streams_with_hubs_and_reused_rows(strategy, id_kind):
    """Enough vertices for tables, indexes and chains to grow, empty and fill again."""
    rng = np.random.default_rng(STRATEGIES.index(strategy))
    bench = Bench(3, strategy=strategy, id_kind=id_kind, hybrid_threshold=6)

    def vertex():
        number = int(rng.zipf(1.3)) % 400
        return f"name {number}" if id_kind == "string" else number - 200

    def event(deletes: float):
        if rng.random() < deletes:
            return ("del_vertex", vertex()) if rng.random() < 0.4 else ("del_edge", vertex(), vertex())
        return ("add_edge", vertex(), vertex(), float(rng.integers(1, 5)), str(rng.choice(["", "t"])))

    sizes = []
    for epoch in range(24):
        bench.run(*[event(0.1 if epoch % 8 < 5 else 0.95) for _ in range(150)])
        sizes.append(bench.partitioner.edges)
    assert max(sizes) > 3 * min(sizes[5:]) > 0


@pytest.mark.parametrize("id_kind", ["int", "string"])
@pytest.mark.parametrize("undirected", [False, True])
def test_scratch_memory_grows_as_it_fills(id_kind, undirected, monkeypatch):
    """Wherever an event finds the log full, the next attempt goes on with that event."""
    monkeypatch.setattr("freshet.partitioner.core._SCRATCH_KEPT", 1)
    monkeypatch.setattr("freshet.partitioner.epoch_log.ENTRIES_MIN", 1)
    rng = np.random.default_rng(8)
    bench = Bench(3, id_kind=id_kind, undirected=undirected, forbid_typed_loops=True)

    def event():
        a, b = (int(n) for n in rng.integers(0, 12, 2))
        a, b = (a, b) if id_kind == "int" else (f"name {a}", f"name {b}")
        kind = rng.choice(["add_edge", "add_edge", "add_edge", "loop", "del_edge", "del_vertex", "set_features"])
        if kind == "loop":  # of a second type: rejected
            return "add_edge", a, a, 1.0, str(rng.choice(["t", "u"]))
        if kind == "add_edge":
            return "add_edge", a, b, float(rng.integers(1, 5)), str(rng.choice(["", "t"]))
        return {"del_edge": ("del_edge", a, b), "del_vertex": ("del_vertex", a)}.get(kind, ("set_features", a, (2.0,)))

    for _ in range(40):
        bench.run(*[event() for _ in range(60)])
    assert bench.partitioner.vertices


def test_a_large_epoch_reserves_what_it_fills():
    """`ulimit -d` counts what is reserved; at worst every event would log two vertices and be rejected."""
    n = 100_000
    rows = [("add_edge", k % 997, k % 991) for k in range(n)]
    partitioner = Partitioner(4, Features(1), PartitionerConfig())
    change = partitioner.partition(events_of(rows, Features(1), "int"))
    reserved = sum(array.nbytes for array in (*partitioner._log, *change.records) if isinstance(array, np.ndarray))
    assert partitioner.edges == n
    assert reserved < 100 * n, "for each edge 8 bytes of the log and 20 of its record, both with room to grow"
