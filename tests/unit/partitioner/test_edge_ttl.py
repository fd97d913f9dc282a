"""Edges that expire and times that are not believed, against the slow reference after every epoch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.partitioner.config import DAY_MS, GraphRules, PartitionerConfig, duration_in_words
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import NO_TS
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.partitioner.times.reference import ReferenceTimes
from freshet.schema import Features
from tests.unit.partitioner.test_partitioner import INTS, Bench, configs, rows_of

COUNTED = "replaced", "unchanged", "nothing_deleted"
TIMED = st.tuples(rows_of(INTS), st.one_of(st.none(), st.integers(-40, 60)))


def bench(ttl: int, jump: int | None = 0, parts: int = 2, **config: Any) -> Bench:
    return Bench(parts, edge_ttl_ms=ttl, ts_jump_ms=jump, **config)


def edges_of(one: Bench) -> set[tuple[object, object]]:
    return {edge[:2] for edge in one.reference.edges}


@settings(max_examples=80, deadline=None)
@given(
    configs,
    st.integers(1, 4),
    st.integers(1, 30),
    st.sampled_from([0, 1, 7]),
    st.lists(st.lists(TIMED, max_size=12), max_size=8),
)
def test_edges_expire_as_in_the_reference(config, parts, ttl, jump, epochs):
    one = bench(ttl, jump, parts, **config)
    for epoch in epochs:
        one.run(*(row for row, _ in epoch), ts=[ts for _, ts in epoch])


@settings(max_examples=80, deadline=None)
@given(configs, st.integers(1, 30), st.sampled_from([0, 1, 7]), st.lists(st.lists(TIMED, max_size=12), max_size=8))
def test_the_oracle_knows_the_same(config, ttl, jump, epochs):
    rules = {name: config[name] for name in ("undirected", "forbid_typed_loops", "types_max")}
    one, oracle = (
        bench(ttl, jump, **config),
        ReferenceGraph(Features(1), GraphRules(**rules, edge_ttl_ms=ttl, ts_jump_ms=jump)),
    )
    effects = Counter()
    for epoch in epochs:
        ts = [ts for _, ts in epoch]
        one.run(*(row for row, _ in epoch), ts=ts)
        effects.update(one.effects._asdict())
        oracle.apply(events_of([row for row, _ in epoch], ts=ts))
        graph = oracle.arrays()
        ends = [(graph.ids[src], graph.ids[dst]) for src, dst in zip(graph.src, graph.dst, strict=True)]
        found = {(*ends, name, None) for ends, name in zip(ends, oracle.edge_types(), strict=True)}
        assert found == set(one.reference.edges)
        assert (len(oracle), oracle.times.largest) == (len(one.reference.x), one.reference.largest)
        assert {name: getattr(oracle, name) for name in COUNTED} == {name: effects[name] for name in COUNTED}


def test_an_edge_lives_for_its_time_and_not_longer() -> None:
    one = bench(10)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[100, None])
    one.run(("add_vertex", 5), ts=[110])
    assert edges_of(one) == {(0, 7), (7, 5)}
    one.run(("add_vertex", 5), ts=[111])
    assert edges_of(one) == {(7, 5)}, "without a ts it never expires"
    assert one.partitioner.vertices == 3, "vertices stay"


def test_edges_of_a_snapshot_expire_with_the_first_epoch_behind_it() -> None:
    """Epoch 0 has all of a snapshot, whatever its times are; the oracle says so, too."""
    rows, times = [("add_edge", 0, 7), ("add_edge", 7, 5)], [0, 100]
    one = Partitioner(1, Features(1), PartitionerConfig(edge_ttl_ms=10, ts_jump_ms=0))
    oracle = ReferenceGraph(Features(1), one.config.rules)
    for graph in (one.partition, oracle.apply):
        graph(events_of(rows, ts=times), snapshot=True)
    assert (one.edges, len(oracle.edge_types())) == (2, 2)
    for graph in (one.partition, oracle.apply):
        graph(events_of([("add_vertex", 5)]))
    assert (one.edges, len(oracle.edge_types())) == (1, 1)


def test_adding_again_renews_and_takes_away() -> None:
    one = bench(10)
    one.run(*[("add_edge", 0, 7), ("add_edge", 7, 5), ("add_edge", 5, 0)], ts=[100] * 3)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ("add_edge", 5, 0, 2.0), ts=[105, None, 95])
    one.run(("add_vertex", 5), ts=[110])
    assert edges_of(one) == {(0, 7), (7, 5)}, "the last add holds, if it is older, too"
    one.run(("add_vertex", 5), ts=[1_000_000])
    assert edges_of(one) == {(7, 5)}


def test_a_late_edge_does_not_outlive_its_epoch() -> None:
    one = bench(10)
    one.run(("add_vertex", 5), ts=[100])
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[89, 90])
    assert edges_of(one) == {(7, 5)}
    assert one.partitioner.vertices == 3
    one.run(("del_edge", 7, 5), ("add_edge", 7, 5), ("add_vertex", 5), ts=[0, 0, 20])
    assert edges_of(one) == set()


def test_a_deleted_edge_is_forgotten() -> None:
    one = bench(10)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[100, 100])
    one.run(("del_edge", 0, 7), ("del_vertex", 5), ts=[101, 102])
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[None, None])
    one.run(("add_vertex", 5), ts=[10_000])
    assert edges_of(one) == {(0, 7), (7, 5)}


def test_an_undirected_edge_expires_both_ways() -> None:
    one = bench(10, undirected=True)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 7), ts=[100, 100])
    one.run(("add_edge", 7, 0), ts=[105])  # the same edge, which carries the same
    one.run(("add_vertex", 5), ts=[111])
    assert edges_of(one) == {(0, 7), (7, 0)}
    one.run(("add_vertex", 5), ts=[116])
    assert edges_of(one) == set()


@pytest.mark.parametrize("parts", [1, 3])
def test_many_edges_expire_in_one_epoch_and_their_rows_are_reused(parts: int) -> None:
    rng = np.random.default_rng(parts)
    one, now = bench(400, 0, parts, hybrid_threshold=4), 0
    for epoch in range(60):
        rows: list[tuple[Any, ...]] = []
        ts: list[int | None] = []
        for _ in range(rng.integers(1, 60)):
            now += int(rng.integers(0, 3))
            src, dst = rng.integers(0, 40, 2).tolist()
            rows.append(("del_edge" if rng.random() < 0.1 else "add_edge", src, dst))
            ts.append(None if rng.random() < 0.05 else now - int(rng.integers(0, 300)) * int(rng.integers(0, 2)))
        now += 350 * (epoch % 13 == 12)
        one.run(*rows, ts=ts)
    assert one.partitioner.tables["edge_ts"].rows < 3 * 60 * 60


def test_a_large_graph_expires_at_once() -> None:
    """More rows than a block, a wide block and the log have."""
    n = 200_000
    config = PartitionerConfig(edge_ttl_ms=5, ts_jump_ms=0, strategy="hash")
    one = Partitioner(1, Features(1), config)
    rng = np.random.default_rng(0)
    ts = rng.integers(0, 10, n)
    one.partition(events_of([("add_edge", k, k + 1) for k in range(n)], ts=ts.tolist()))
    assert one.edges == int(np.count_nonzero(ts >= 4))
    for largest in (11, 12, 13, 100):
        one.partition(events_of([("add_vertex", 0)], ts=[largest]))
        assert one.edges == int(np.count_nonzero(ts >= largest - 5))
    assert one.vertices == n + 1


def test_a_restore_goes_on_equal() -> None:
    rng = np.random.default_rng(7)
    config = PartitionerConfig(edge_ttl_ms=50, ts_jump_ms=200)

    def epoch(k: int) -> Any:
        times = [10 * k + int(t) for t in rng.integers(-30, 10, 40)]
        times[3] += 10_000 * (k % 4 == 0)
        return events_of([("add_edge", *rng.integers(0, 60, 2).tolist()) for _ in times], ts=times)

    one = Partitioner(2, Features(1), config)
    epochs = [epoch(k) for k in range(30)]
    for events in epochs[:15]:
        one.partition(events)
    again = Partitioner(2, Features(1), config)
    for table in one.tables:
        again.tables[table.name].load_rows(table.data.copy(), table.rows)
    again.after_restore()
    for events in epochs[15:]:
        found, expected = again.partition(events), one.partition(events)
        assert found.rejected == expected.rejected
        assert again.edges == one.edges
    for table in one.tables:
        rows = min(len(table.data), len(again.tables[table.name].data))
        assert table.data[:rows].tobytes() == again.tables[table.name].data[:rows].tobytes(), table.name


def test_graphs_without_the_options_have_no_tables_of_times() -> None:
    plain = {table.name for table in Partitioner(2, Features(1)).tables}
    timed = {table.name for table in Partitioner(2, Features(1), PartitionerConfig(edge_ttl_ms=1)).tables}
    jumped = {table.name for table in Partitioner(2, Features(1), PartitionerConfig(ts_jump_ms=1)).tables}
    assert (timed - plain, jumped - plain, plain - timed) == ({"edge_ts", "clock"}, {"clock"}, set())


# -- times that are not believed --------------------------------------------------------------------------------------


def rejected(one: Bench, *ts: int | None) -> list[int]:
    before = one.reference.largest
    one.run(*(("add_vertex", 0) for _ in ts), ts=ts)
    largest = one.reference.largest
    return [k for k, t in enumerate(ts) if t is not None and largest is not None and t > largest and before != t]


def test_one_wrong_clock_does_not_move_the_time() -> None:
    one = bench(10, 100)
    assert rejected(one, 5, 10**12, 6) == [1], "also in the first epoch"
    assert rejected(one, 50, 60, 10**12, 10**12) == [2, 3]
    assert rejected(one, 10**12) == [0]
    assert rejected(one, 160, 161, 262, 10**12) == [2, 3], "only those within the jump of others"
    assert rejected(one, -(10**12), 170) == [], "an early time is believed"


def test_a_chain_of_times_leads_as_far_as_it_goes() -> None:
    one = bench(10, 100)
    assert rejected(one, 0, 100, 200, 301, 400) == [3, 4]
    assert rejected(one, 300) == []


def test_after_a_true_gap_the_time_goes_on_once_most_neighbours_agree() -> None:
    one = bench(10, 100)
    rejected(one, *range(20))
    assert [len(rejected(one, 10**6 + k)) for k in range(12)] == [1] * 8 + [0] * 4
    assert rejected(one, 10**9, *[10**9] * 20) == [], "an epoch alone may be enough"


def test_a_day_is_the_default_where_edges_expire() -> None:
    assert [GraphRules(edge_ttl_ms=ttl, ts_jump_ms=jump).jump_ms for ttl, jump in ((0, None), (1, None), (1, 0))] == [
        0,
        DAY_MS,
        0,
    ]
    one = Partitioner(1, Features(1), PartitionerConfig(edge_ttl_ms=1))
    one.partition(events_of([("add_vertex", 1)] * 2, ts=[0, DAY_MS]))
    (letter,) = one.partition(events_of([("add_vertex", 1)] * 2, ts=[0, 2 * DAY_MS + 1])).rejected
    assert letter == (
        1,
        "ts: more than --ts-jump 1d ahead of the largest so far and of its neighbours, got 172800001 after 86400000",
    )


def test_times_at_the_ends_of_int64() -> None:
    least, most = NO_TS + 1, 2**63 - 1
    one = bench(10, 1)
    assert rejected(one, least, least, most) == [2]
    one = bench(most, 0)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[least, most])
    assert edges_of(one) == {(7, 5)}
    one = bench(10, most)
    one.run(("add_edge", 0, 7), ("add_edge", 7, 5), ts=[least, most])
    assert edges_of(one) == {(0, 7)}, "the difference is more than any jump"


def test_durations_read_as_options_have_them() -> None:
    found = [duration_in_words(ms) for ms in (1, 1500, 2000, 120_000, 36 * 3_600_000, 30 * DAY_MS)]
    assert found == ["1ms", "1500ms", "2s", "2min", "36h", "30d"]


def test_the_reference_of_times_forgets_nothing_that_it_needs() -> None:
    times = ReferenceTimes(10, 0)
    times.advance(0)
    for k in range(5):
        times.added("edge", k)
    times.advance(14)
    assert times.expired() == []
    times.advance(15)
    assert times.expired() == ["edge"]
    assert times.expired() == []
