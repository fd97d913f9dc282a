"""Where edges and vertices go, and the corners of netting that random streams seldom reach."""

from collections import defaultdict

import numpy as np
import pytest

from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from tests.unit.partitioner.test_partitioner import Bench


def ring(n: int, step: int = 1) -> list[tuple]:
    return [("add_edge", v, (v + step) % n) for v in range(n)]


def star(leaves: int, hub: int = 0) -> list[tuple]:
    return [("add_edge", leaf, hub) for leaf in range(1, leaves + 1)]


def places(bench: Bench) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    graph = bench.partitioner.live_graph()
    ids = graph.ids.to_list()
    masters = dict(zip(ids, graph.master.tolist(), strict=True))
    ends = zip(graph.src.tolist(), graph.dst.tolist(), graph.part.tolist(), strict=True)
    return masters, {(ids[src], ids[dst]): part for src, dst, part in ends}


@pytest.mark.parametrize("strategy", ["hybrid", "locality", "hash"])
def test_edges_live_with_their_destination_below_the_threshold(strategy):
    bench = Bench(4, strategy=strategy, hybrid_threshold=1000)
    bench.run(*ring(40), *star(30))
    masters, parts = places(bench)
    assert len(set(masters.values())) == 4
    assert all(part == masters[dst] for (_, dst), part in parts.items())
    assert bench.partitioner.stats().split_share == 0


def test_hybrid_spreads_what_comes_past_the_threshold_and_a_vertex_becomes_whole_again():
    bench = Bench(4, strategy="hybrid", hybrid_threshold=5)
    bench.run(*star(5))
    assert bench.partitioner.stats().split_share == 0
    bench.run(*[("add_edge", leaf, 0) for leaf in range(6, 40)])
    masters, parts = places(bench)
    away = [edge for edge, part in parts.items() if part != masters[0]]
    assert len(away) > 10
    assert sum(len(receiver.split) for receiver in bench.receivers) == 1
    bench.run(*[("del_edge", *edge) for edge in away])
    assert sum(len(receiver.split) for receiver in bench.receivers) == 0
    bench.run(("del_vertex", 0))


def test_hybrid_puts_a_new_vertex_beside_its_neighbour_while_that_part_has_room():
    bench = Bench(2, strategy="hybrid")
    bench.run(*[("add_vertex", v) for v in range(100, 140)])
    bench.run(("add_edge", 1, 100), ("add_edge", 101, 2))
    masters, _ = places(bench)
    assert masters[1] == masters[100] and masters[2] == masters[101]
    bench.run(*[("add_edge", 1000 + k, 100) for k in range(200)])
    masters, _ = places(bench)
    loads = np.bincount(list(masters.values()))
    assert loads.max() <= 1.1 * loads.mean() + 1


def test_locality_is_algorithm_1():
    bench = Bench(2, strategy="locality")
    bench.run(("add_edge", 1, 2))  # both unknown: the least loaded part takes both
    masters, _ = places(bench)
    assert masters == {1: 0, 2: 0}
    bench.run(("add_edge", 1, 3))  # source known, destination new: least loaded
    assert places(bench)[0][3] == 1
    bench.run(("add_vertex", 4), ("add_vertex", 5), ("add_vertex", 6))
    assert [places(bench)[0][v] for v in (4, 5, 6)] == [1, 0, 1]
    bench.run(("add_edge", 1, 6), ("add_edge", 2, 6), ("add_edge", 4, 6))
    bench.run(("add_vertex", 7))  # evens out: the lowest part is next
    bench.run(("add_edge", 8, 6))  # 6 has a high in-degree: the new source joins it
    assert places(bench)[0][8] == places(bench)[0][6] == 1
    bench.run(("del_edge", 77, 78))
    assert 77 not in places(bench)[0]


def test_hdrf_balances_with_lambda_and_keeps_together_without():
    spread, together = (Bench(4, strategy="hdrf", hdrf_lambda=value) for value in (8.0, 0.0))
    for bench in (spread, together):
        bench.run(*ring(60))
    assert spread.partitioner.stats().edge_balance <= 1.1
    # without the balance term every edge follows the neighbour that it meets
    assert together.partitioner.stats().replication_factor <= spread.partitioner.stats().replication_factor
    masters, parts = places(spread)
    assert masters[0] == parts[0, 1]


def hdrf_by_every_part(edges: list[tuple[int, int]], parts: int, balance: float) -> list[int]:
    """Give each edge the part with the highest score of all (D3-GNN section 4.3.1), in plain Python."""
    loads, ends, rows, found = [0] * parts, defaultdict(int), defaultdict(set), []
    for src, dst in edges:
        share = (ends[src] + 1) / (ends[src] + ends[dst] + 2)
        most, least = max(loads), min(loads)

        def score(part: int, ends: tuple = (src, dst, share), bounds: tuple = (most, least)) -> float:
            src, dst, share = ends
            even = balance * (bounds[0] - loads[part]) / (1.0 + (bounds[0] - bounds[1]))
            if part in rows[src]:
                even += 2.0 - share
            return even + (1.0 + share) if part in rows[dst] else even

        best = max(range(parts), key=lambda part: (score(part), -loads[part], -part))
        loads[best] += 1
        for end in (src, dst):
            ends[end] += 1
            rows[end].add(best)
        found.append(best)
    return found


@pytest.mark.parametrize("parts", [1, 4, 16, 20])  # past 16 places are lists
@pytest.mark.parametrize("balance", [0.0, 0.3, 2.0])
def test_hdrf_finds_the_best_part_without_looking_at_all(parts, balance):
    rng = np.random.default_rng(parts)
    drawn = (150 * rng.random((3000, 2)) ** 2).astype(int)
    edges = list(dict.fromkeys((src, dst) for src, dst in drawn.tolist() if src != dst))
    bench = Bench(parts, strategy="hdrf", hdrf_lambda=balance)
    for k in range(0, len(edges), 700):
        bench.run(*[("add_edge", *edge) for edge in edges[k : k + 700]])
    expected = hdrf_by_every_part(edges, parts, balance)
    assert len(set(expected)) == parts or balance < 1
    assert places(bench)[1] == dict(zip(edges, expected, strict=True))


def test_vertices_without_edges_go_to_the_least_loaded_part():
    bench = Bench(3, strategy="hdrf")
    bench.run(*[("add_vertex", v) for v in range(9)])
    assert sorted(places(bench)[0].values()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("strategy", ["hybrid", "hdrf", "locality", "hash"])
def test_cuts_of_an_epoch_do_not_change_the_graph_but_net_what_cancels(strategy):
    bench = Bench(3, strategy=strategy)
    bench.run(*ring(12))
    before = places(bench)
    blocks = bench.run(
        ("del_edge", 3, 4), ("add_edge", 3, 4), ("add_edge", 50, 51), ("del_vertex", 50), ("del_vertex", 51)
    )
    assert all(set(block.columns) == {"ctl"} for block in blocks)
    assert places(bench) == before
    bench.run(("del_vertex", 5), ("add_edge", 4, 5, 9.0), ("set_features", 5, [3.0]))  # keeps its slots
    bench.run(("del_vertex", 5), ("add_vertex", 5))  # features are zeros again
    assert places(bench)[0][5] == before[0][5]


def test_a_hub_that_outgrows_all_scratch_memory_can_be_deleted():
    bench = Bench(2, strategy="hybrid", hybrid_threshold=8)
    bench.run(*star(3000))
    bench.run(("add_edge", 1, 2), ("del_vertex", 0), ("add_edge", 2, 3), ("del_edge", 1, 2))
    assert bench.partitioner.edges == 1
    bench.run(*star(3000))


def test_a_freed_slot_waits_for_the_next_epoch():
    partitioner = Partitioner(1, Features(1), PartitionerConfig())

    def slots(*rows):
        change = partitioner.partition(events_of(rows, Features(1)))
        return partitioner.split(change, np.zeros(8, np.int64), 1)[0].get("m_slot").tolist()

    assert slots(("add_vertex", 1), ("add_vertex", 2)) == [0, 1]
    assert slots(("del_vertex", 1), ("add_vertex", 3)) == [2]
    assert slots(("add_vertex", 4)) == [0]


def degree_of(partitioner: Partitioner, *rows: tuple) -> list[float]:
    change = partitioner.partition(events_of(rows, Features(1)))
    return partitioner.split(change, np.zeros(8, np.int64), 1)[0].get("c_degree").tolist()


def test_a_degree_that_cancelled_is_summed_afresh():
    partitioner = Partitioner(1, Features(1), PartitionerConfig())
    small = float(np.float32(0.1))
    degree_of(partitioner, ("add_edge", 1, 0, small), ("add_edge", 2, 0, 1e17))
    assert degree_of(partitioner, ("del_edge", 2, 0)) == [small]
    assert degree_of(partitioner, ("add_edge", 3, 0, 3e30)) == [0.0, float(np.float32(3e30))]
    assert degree_of(partitioner, ("add_edge", 3, 0, 0.0)) == [small]
    assert degree_of(partitioner, ("del_edge", 3, 0), ("del_edge", 1, 0)) == [0.0]


def test_a_weight_of_minus_zero_is_zero():
    bench = Bench(1)
    bench.run(("add_edge", 1, 2, 0.0))
    blocks = bench.run(("add_edge", 1, 2, -0.0))
    assert set(blocks[0].columns) == {"ctl"}


def test_a_typed_loop_is_rejected_with_a_reason_and_changes_nothing():
    partitioner = Partitioner(1, Features(1), PartitionerConfig(forbid_typed_loops=True))
    change = partitioner.partition(events_of([("add_edge", 1, 1, 2.0, "a"), ("add_edge", 1, 1, 2.0, "b")], Features(1)))
    ((event, reason),) = change.rejected
    assert event == 1 and "self-loop" in reason
    change = partitioner.partition(events_of([("del_edge", 1, 1, "a"), ("add_edge", 1, 1, 2.0, "b")], Features(1)))
    assert change.rejected == [] and partitioner.edges == 1


def test_typed_models_keep_the_models_order_of_types():
    config = PartitionerConfig(edge_types=("cites", "writes"))
    partitioner = Partitioner(1, Features(1), config)
    rows = [("add_edge", 1, 2, 1.0, "writes"), ("add_edge", 1, 2, 1.0)]
    partitioner.partition(events_of(rows, Features(1), edge_types=("cites", "writes")))
    graph = partitioner.live_graph()
    assert graph.types == ("cites", "writes") and sorted(graph.etype.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "metis"),
        ("hdrf_lambda", -1.0),
        ("hdrf_epsilon", 0.0),
        ("hybrid_threshold", -1),
        ("id_kind", "uuid"),
        ("key_bits", 65),
    ],
)
def test_config_names_the_bad_field(field, value):
    with pytest.raises(ValueError, match=f"^{field}: expected .*, got {value!r}$"):
        PartitionerConfig(**{field: value})


def test_ids_and_features_of_the_wrong_kind_are_refused():
    partitioner = Partitioner(1, Features(2), PartitionerConfig())
    with pytest.raises(ValueError, match="expected int ids, got string ids"):
        partitioner.partition(events_of([("add_vertex", "a")], Features(2), "string"))
    with pytest.raises(ValueError, match="expected features of width 2, got 1"):
        partitioner.partition(events_of([("add_vertex", 1, [1.0])], Features(1)))
    with pytest.raises(ValueError, match="parts: expected 1 to 32767, got 0"):
        Partitioner(0, Features(1))
