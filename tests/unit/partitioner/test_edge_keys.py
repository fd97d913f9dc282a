"""Parallel edges in the Partitioner: each has its key, and one deletion may take all of them."""

from __future__ import annotations

import math
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.state.table
from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, Events
from freshet.partitioner.ids import Ids
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import WEIGHT, EdgeValues, FeatureRows, Features
from freshet.state.codec import encode
from freshet.state.sweep import Mutations, Sweeper
from freshet.state.task_parts import TaskParts
from tests.unit.partitioner.test_partitioner import INTS, Bench, configs, rows_of

CTL = np.zeros(8, np.int64)
KEYS: dict[str, list[Any]] = {"int": [-1, 0, 7, 2**63 - 1], "string": ["a", "b", "k" * 40]}
PARALLEL = 100_000


def keyed(kind: str) -> st.SearchStrategy:
    """Event rows with keys: of edges, some of which have none."""
    keys, every = st.sampled_from([None, *KEYS[kind]]), st.sampled_from([None, "*", *KEYS[kind]])
    return rows_of(INTS[:3]).flatmap(
        lambda row: st.tuples(
            st.just(row), every if row[0] == "del_edge" else keys if row[0] == "add_edge" else st.none()
        )
    )


@settings(max_examples=120, deadline=None)
@given(
    configs,
    st.integers(1, 4),
    st.sampled_from([1, 64]),
    st.sampled_from(sorted(KEYS)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(st.lists(keyed(kind), max_size=14), max_size=8))
    ),
)
def test_blocks_build_the_reference_graph(config, parts, key_bits, drawn):
    kind, epochs = drawn
    bench = Bench(parts, edge_keys=kind, key_bits=key_bits, **config)
    plain = ReferenceGraph(Features(1), bench.partitioner.config.rules)
    for epoch in epochs:
        rows, keys = [row for row, _ in epoch], [key for _, key in epoch]
        bench.run(*rows, keys=keys)
        plain.apply(Events.decode(events_of(rows, keys=keys).encode()))
        assert edges_of(plain) == bench.reference.edges
        given = plain.replaced, plain.unchanged, plain.nothing_deleted
        plain.replaced = plain.unchanged = plain.nothing_deleted = 0
        assert given == tuple(bench.effects._asdict()[name] for name in ("replaced", "unchanged", "nothing_deleted"))


def edges_of(graph: ReferenceGraph) -> dict[Any, float]:
    """The weight of each edge of the reference that jobs are checked by."""
    ids, _, src, dst, values = graph.arrays()
    rows = zip(src.tolist(), dst.tolist(), graph.edge_types(), graph.edge_keys(), values.weight.tolist(), strict=True)
    found = {(ids[a], ids[b], name, key): weight for a, b, name, key, weight in rows}
    assert len(found) == len(src)
    return found


@pytest.mark.parametrize("kind", sorted(KEYS))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_longer_streams_of_parallel_edges(strategy, kind, monkeypatch):
    """Logs, indexes and words that grow as they fill, rows that are used again, edges that expire."""
    monkeypatch.setattr("freshet.partitioner.core._SCRATCH_KEPT", 1)
    monkeypatch.setattr("freshet.partitioner.epoch_log.ENTRIES_MIN", 1)
    rng = np.random.default_rng(STRATEGIES.index(strategy))
    options = {"edge_keys": kind, "undirected": kind == "string", "key_bits": 3}
    bench = Bench(3, strategy=strategy, hybrid_threshold=6, edge_ttl_ms=9, **options)
    sizes = []
    for epoch in range(16):
        rows, keys, times = [], [], []
        for _ in range(120):
            a, b, number = (int(n) for n in (*rng.integers(0, 5, 2), rng.integers(0, 12)))
            name = rng.choice(
                ["add", "del", "*", "vertex"], p=[0.8, 0.1, 0.07, 0.03] if epoch % 4 < 3 else [0.1, 0.2, 0.5, 0.2]
            )
            etype = str(rng.choice(["", "t"]))
            rows.append(
                {"add": ("add_edge", a, b, float(number % 4), etype), "vertex": ("del_vertex", a)}.get(
                    name, ("del_edge", a, b, etype)
                )
            )
            key = "*" if name == "*" else number if kind == "int" else f"key {number}" * (1 + number % 3)
            keys.append(None if name == "vertex" or (number == 0 and name != "*") else key)
            times.append(epoch + int(rng.integers(0, 3)))
        bench.run(*rows, keys=keys, ts=times)
        sizes.append(bench.partitioner.edges)
    assert max(sizes) > 3 * min(sizes[3:])
    bench.run(*[("del_vertex", k) for k in range(5)])
    assert bench.partitioner.edges == 0


def _epochs(kind: str) -> list[tuple[list[tuple[object, ...]], list[object]]]:
    rng, found = np.random.default_rng(5), []
    for _ in range(20):
        rows, keys = list[tuple[object, ...]](), list[object]()
        for _ in range(40):
            a, b, number = (int(n) for n in (*rng.integers(0, 6, 2), rng.integers(0, 20)))
            deletes = rng.random() < 0.3
            rows.append(("del_edge", a, b) if deletes else ("add_edge", a, b, float(number % 3)))
            key = number if kind == "int" else f"{number}" * (1 + number)
            keys.append("*" if deletes and rng.random() < 0.3 else None if number == 0 else key)
        found.append((rows, keys))
    return found


def _save(state_map: dict[Any, bytes], changes: dict[int, Mutations]) -> None:
    mutations = changes.get(0, Mutations())
    state_map.update(mutations.puts)
    for key in mutations.deletes:
        state_map.pop(key, None)


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_sweep_restore_and_replay_give_the_same_blocks(kind, monkeypatch):
    """The order in which a deletion of all keys takes edges is durable, too; each edge has a page of its own."""
    monkeypatch.setattr(freshet.state.table, "PAGE_BYTES", 16)

    def make() -> Partitioner:
        return Partitioner(3, Features(1), PartitionerConfig(edge_keys=kind, key_bits=6, hybrid_threshold=3))

    def run(partitioner: Partitioner, epoch: int) -> list[bytes]:
        rows, keys = epochs[epoch]
        change = partitioner.partition(events_of(rows, keys=keys))  # type: ignore[arg-type]
        return [encode(block.header, block.columns) for block in partitioner.split(change, CTL, epoch)]

    epochs, state_map, original = _epochs(kind), dict[Any, bytes](), make()
    sweeper, blocks = Sweeper(original.tables, spread_epochs=3), []
    for epoch in range(len(epochs)):
        blocks.append(run(original, epoch))
        for changes in [sweeper.step(), *([sweeper.mark(epoch)] if epoch % 5 == 4 else [])]:
            _save(state_map, changes)
    restored = make()
    at = Sweeper(restored.tables).restore(state_map.items())
    restored.after_restore()
    assert 0 < at < len(epochs) - 4
    for epoch in range(at + 1, len(epochs)):
        assert run(restored, epoch) == blocks[epoch]


@pytest.mark.parametrize("gone", range(5))
def test_links_of_parallel_edges_are_durable(gone, monkeypatch):
    """Nothing but the deletion of an edge touches those beside it in the list, before the state is saved."""
    monkeypatch.setattr(freshet.state.table, "PAGE_BYTES", 16)
    make = partial(Partitioner, 1, Features(1), PartitionerConfig(edge_keys="int"))
    original, state_map = make(), dict[Any, bytes]()
    sweeper = Sweeper(original.tables)
    nothing = OP_ADD_EDGE, list[int]()  # its marker writes what is left of the one before
    for epoch, (op, keys) in enumerate([(OP_ADD_EDGE, [*range(5)]), nothing, (OP_DEL_EDGE, [gone]), nothing]):
        original.partition(_block(op, Ids.of_ints(keys)))
        _save(state_map, sweeper.mark(epoch))
    restored = make()
    assert Sweeper(restored.tables).restore(state_map.items()) == 2
    restored.after_restore()

    def deleted(core: Partitioner) -> bytes:
        (block,) = core.split(core.partition(_block(OP_DEL_EDGES, Ids.of_ints([0]))), CTL, 2)
        return encode(block.header, block.columns)

    assert restored.edges == 4
    links, expected = (one.tables["edge_key"].data[:5] for one in (restored, original))
    assert links.tolist() == expected.tolist(), "else a deletion of all keys may not end"
    assert deleted(restored) == deleted(original)
    assert restored.edges == original.edges == 0


@pytest.mark.parametrize("undirected", [False, True])
def test_a_deletion_of_all_keys_has_room_in_the_log_for_each_edge(undirected, monkeypatch):
    """The edges came one an epoch, so that the log never had room for all of them."""
    monkeypatch.setattr("freshet.partitioner.epoch_log.ENTRIES_MIN", 1)
    core = Partitioner(1, Features(1), PartitionerConfig(edge_keys="int", undirected=undirected))
    for key in range(60):
        core.partition(_block(OP_ADD_EDGE, Ids.of_ints([key])))
    (block,) = core.split(core.partition(_block(OP_DEL_EDGES, Ids.of_ints([0]))), CTL, 60)
    assert core.edges == 0
    assert len(block.get("del_src")) == 60 * (1 + undirected)


def test_the_texts_of_keys_that_went_make_room_for_others():
    core = Partitioner(1, Features(1), PartitionerConfig(edge_keys="string"))
    for epoch in range(50):
        keys = Ids.of_strings([f"payment {epoch} {number}" for number in range(100)])
        core.partition(_block(OP_ADD_EDGE, keys))
        core.partition(_block(OP_DEL_EDGE, keys))
    assert core.edges == 0
    assert core.tables["words"].rows <= 2 * 2 * 100, "two words each, of two epochs at most"


def test_each_edge_has_a_number_of_its_own_in_blocks():
    core = Partitioner(1, Features(1, 2), PartitionerConfig(edge_keys="int"), TaskParts.dealt(1, 1))

    def block(*rows: Any, keys: list[Any]) -> dict[str, list[Any]]:
        change = core.partition(events_of(rows, Features(1, 2), keys=keys))
        (found,) = core.split(change, CTL, 0)
        names = "add_row", "rew_row", "del_row", "add_attr"
        assert not {"add_type", "rew_type", "del_type"} & found.columns.keys()
        return {name: found.columns[name].tolist() for name in names if name in found.columns}

    one, two = [1.0, 2.0], [3.0, 4.0]
    added = block(*[("add_edge", 1, 2, 1.0, "", -1, attr) for attr in (one, two, one)], keys=[None, 5, 6])
    assert len(set(added["add_row"])) == 3 and added["add_attr"] == [one, two, one]
    assert block(("add_edge", 1, 2, 1.0, "", -1, one), keys=[5]) == {"rew_row": [added["add_row"][1]]}
    gone = block(("del_edge", 1, 2), ("add_edge", 1, 2), keys=["*", 9])
    assert sorted(gone["del_row"]) == sorted(added["add_row"])
    assert not {*gone["del_row"]} & {*gone["add_row"]}, "a row that goes is used again from the next epoch on"


def test_a_partitioner_without_keys_has_no_table_of_them_and_refuses_keys():
    core = Partitioner(1, Features(1), PartitionerConfig())
    assert "edge_key" not in [table.name for table in core.tables]
    with pytest.raises(ValueError, match="expected edges without keys, got int keys"):
        core.partition(events_of([("add_edge", 1, 2)], keys=[5]))
    with pytest.raises(ValueError, match="expected string keys, got int keys"):
        Partitioner(1, Features(1), PartitionerConfig(edge_keys="string")).partition(
            events_of([("add_edge", 1, 2)], keys=[5])
        )
    with pytest.raises(ValueError, match=r"edge_keys: expected int \| string"):
        PartitionerConfig(edge_keys="float")


def _block(op: int, keys: Ids, dst: int = 2, weight: np.ndarray | None = None) -> Events:
    """Events of one pair."""
    n = len(keys)
    ends, zeros = np.ones(n, np.int64), np.zeros(n, np.int16)
    values = EdgeValues.default(n) if weight is None else EdgeValues(n, {WEIGHT: weight})
    plain = events_of([("add_edge", 1, 2)])
    fields = {name: getattr(plain, name) for name in ("types", "reject_rows")}
    none = np.full(n, -1, np.int32)
    return Events(
        op=np.full(n, op, np.uint8), a=Ids.of_ints(ends), b=Ids.of_ints(dst * ends), values=values,
        etype=np.zeros(n, np.int32), x_row=none, x=FeatureRows.none(Features(1)), position=np.arange(n),
        source=zeros, partition=zeros, keys=keys, **fields,
    )  # fmt: skip


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_a_pair_with_many_edges_costs_no_more_for_each(kind):
    core = Partitioner(1, Features(1), PartitionerConfig(edge_keys=kind))
    numbers = np.arange(PARALLEL)
    keys = Ids.of_ints(numbers) if kind == "int" else Ids.of_strings([f"payment {k}" for k in numbers])
    core.partition(_block(OP_ADD_EDGE, keys))
    assert core.edges == PARALLEL
    begin = perf_counter()
    core.partition(_block(OP_ADD_EDGE, keys))  # finds each
    core.partition(_block(OP_DEL_EDGES, keys.slice(0, 1)))
    taken = perf_counter() - begin
    assert core.edges == 0
    assert taken < 5, "a list of parallel edges that is read for each of them takes minutes"


def test_many_self_loops_of_a_vertex_are_not_read_for_each_other_edge():
    """The sum of their weights stands beside the vertex, and is right after changes and deletions."""
    core = Partitioner(1, Features(1), PartitionerConfig(edge_keys="int"))
    rng, numbers = np.random.default_rng(1), np.arange(PARALLEL)
    weight = rng.standard_normal(PARALLEL).astype(np.float32)

    def loop_weight(events: Events) -> float:
        (block,) = core.split(core.partition(events), CTL, 0)
        return float(block.get("c_loop")[block.get("c_slot") == 0][0])

    found = loop_weight(_block(OP_ADD_EDGE, Ids.of_ints(numbers), 1, weight))
    assert found == pytest.approx(math.fsum(weight.tolist()), rel=1e-6)
    begin = perf_counter()
    for number in range(300):  # each changes the context of the vertex
        loop_weight(events_of([("add_edge", 2, 1, float(number + 2))]))
    assert perf_counter() - begin < 3, "reading all loops for each of them takes ten times as long"
    weight[:1000] = 1e6
    few = Ids.of_ints(numbers[:1000])
    found = loop_weight(_block(OP_ADD_EDGE, few, 1, weight[:1000]))
    assert found == pytest.approx(math.fsum(weight.tolist()), rel=1e-6)
    found = loop_weight(_block(OP_DEL_EDGE, few, 1))
    assert found == pytest.approx(math.fsum(weight[1000:].tolist()), rel=1e-5), "what cancels is summed again"
