"""Samples of in-edges: as many as they must be, distinct, each set equally likely, and whole without a fanout."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest

from freshet.operators.sampling import hops
from freshet.operators.sampling.hops import Neighbourhood, SampledRelation, SortedInEdges, places_of, sample

CHI_SQUARE_999 = {9: 27.88, 14: 36.12, 19: 43.82}  # by degrees of freedom: past it once in a thousand seeds


def random_edges(seed: int, vertices: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of which some are parallel, some are loops, and a third go into vertex 0."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, vertices, (2, edges))
    dst[rng.random(edges) < 1 / 3] = 0
    return src, dst


def sampled(
    src: np.ndarray, dst: np.ndarray, vertices: int, seeds: list[int], fanouts: list[int], seed: int
) -> Neighbourhood:
    relation = SampledRelation(0, 0, SortedInEdges.of(src, dst, vertices, vertices), fanouts)
    places = [places_of(vertices)]
    found = sample([relation], [np.array(seeds, np.int64)], np.array([seed], np.uint64), places)
    assert (places[0] == -1).all(), "ready for the next batch"
    return found


def by_hops(src: np.ndarray, dst: np.ndarray, seeds: list[int], hops: int) -> tuple[list[set[int]], list[set[int]]]:
    """Vertices and edges that each hop adds, in plain Python."""
    vertices, edges = [set(seeds)], list[set[int]]()
    for _ in range(hops):
        edges.append({e for e in range(len(src)) if dst[e] in vertices[-1]})
        vertices.append({int(src[e]) for e in edges[-1]} - set().union(*vertices))
    return vertices, edges


def test_in_edges_are_sorted() -> None:
    src, dst = np.array([5, 4, 3, 2, 5]), np.array([1, 0, 1, 1, 3])
    found = SortedInEdges.of(src, dst, 6, 5)
    assert found.ends.tolist() == [0, 1, 4, 4, 5, 5] and found.degree_max == 3
    assert found.sources.tolist() == [4, 5, 3, 2, 5] and found.edges.tolist() == [1, 0, 2, 3, 4]
    assert found.sources.dtype == found.edges.dtype == np.int32


def test_numbers_past_int32_take_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    src, dst = random_edges(0, 50, 400)
    expected = sampled(src, dst, 50, [0, 3], [4, 2], 1)
    monkeypatch.setattr(hops, "NARROW_MAX", 49)
    assert SortedInEdges.of(src, dst, 50, 50).sources.dtype == np.int64 and places_of(50).dtype == np.int64
    found = sampled(src, dst, 50, [0, 3], [4, 2], 1)
    assert all(
        np.array_equal(a, b) for a, b in zip(found.edges + found.nodes, expected.edges + expected.nodes, strict=True)
    )


@pytest.mark.parametrize("seed", range(5))
def test_without_a_fanout_it_is_the_whole_neighbourhood(seed: int) -> None:
    src, dst = random_edges(seed, 60, 90)
    seeds = [7, 0, 59, 31]
    found = sampled(src, dst, 60, seeds, [-1, -1, -1], 0)
    vertices, edges = by_hops(src, dst, seeds, 3)
    nodes, (row, col, edge) = found.nodes[0], found.edges[0]
    assert nodes[:4].tolist() == seeds and len(set(nodes.tolist())) == len(nodes)
    assert np.array_equal(src[edge], nodes[row]) and np.array_equal(dst[edge], nodes[col])
    ends = np.cumsum([0, *found.node_counts[0]])
    assert [set(nodes[a:b].tolist()) for a, b in pairwise(ends)] == vertices
    ends = np.cumsum([0, *found.edge_counts[0]])
    assert [set(edge[a:b].tolist()) for a, b in pairwise(ends)] == edges
    assert len(edge) == len(set(edge.tolist())) > 0


@pytest.mark.parametrize("fanouts", [[1, 1], [3, 2], [5, 0], [0, 5], [1000, 4], [4, -1]])
@pytest.mark.parametrize("seed", range(3))
def test_each_vertex_has_as_many_distinct_in_edges_as_it_must(fanouts: list[int], seed: int) -> None:
    src, dst = random_edges(seed, 40, 300)
    found = sampled(src, dst, 40, [0, 1, 2, 39], fanouts, seed)
    nodes, (row, col, edge) = found.nodes[0], found.edges[0]
    assert len(set(edge.tolist())) == len(edge)
    assert np.array_equal(src[edge], nodes[row]) and np.array_equal(dst[edge], nodes[col])
    degrees = np.bincount(dst, minlength=40)
    begin, taken = 0, np.bincount(col, minlength=len(nodes))
    for fanout, added in zip([*fanouts, 0], found.node_counts[0], strict=True):
        of = degrees[nodes[begin : begin + added]]
        assert taken[begin : begin + added].tolist() == (of if fanout < 0 else np.minimum(of, fanout)).tolist()
        begin += added
    assert begin == len(nodes)


@pytest.mark.parametrize(("degree", "fanout"), [(6, 2), (5, 3), (20, 1), (20, 19)])
def test_each_set_of_in_edges_is_equally_likely(degree: int, fanout: int) -> None:
    src, dst = np.arange(1, degree + 1), np.zeros(degree, np.int64)
    relation = SampledRelation(0, 0, SortedInEdges.of(src, dst, degree + 1, degree + 1), [fanout])
    random, places, tries = np.array([3], np.uint64), [places_of(degree + 1)], 6000
    counts = dict.fromkeys(combinations(range(degree), fanout), 0)
    for _ in range(tries):
        edge = sample([relation], [np.array([0])], random, places).edges[0][2]
        counts[tuple(sorted(edge.tolist()))] += 1
    expected = tries / comb(degree, fanout)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < CHI_SQUARE_999[len(counts) - 1]


def test_a_hub_gives_each_in_edge_alike() -> None:
    """The same on a hub of 100,000 in-edges, by tenths and twentieths of them."""
    degree, fanout, tries = 100_000, 25, 800
    src, dst = np.arange(1, degree + 1), np.zeros(degree, np.int64)
    relation = SampledRelation(0, 0, SortedInEdges.of(src, dst, degree + 1, degree + 1), [fanout])
    random, places = np.array([4], np.uint64), [places_of(degree + 1)]
    found = [sample([relation], [np.array([0])], random, places).edges[0][2] for _ in range(tries)]
    assert all(len(set(one.tolist())) == fanout for one in found)
    counts = np.bincount(np.concatenate(found) * 20 // degree, minlength=20)
    assert ((counts - tries * fanout / 20) ** 2 / (tries * fanout / 20)).sum() < CHI_SQUARE_999[19]


def test_a_seed_that_is_there_twice_has_two_rows() -> None:
    src, dst = np.array([1, 2, 3, 0]), np.array([0, 0, 0, 1])
    found = sampled(src, dst, 4, [0, 1, 0], [2, 1], 0)
    nodes, (row, col, _) = found.nodes[0], found.edges[0]
    assert nodes[:3].tolist() == [0, 1, 0] and found.node_counts[0][0] == 3
    assert np.bincount(col, minlength=3)[:3].tolist() == [2, 1, 2]
    assert row[col == 1].tolist() == [0], "as a source it is the first"


def test_seeds_without_in_edges_and_no_seeds() -> None:
    src, dst = np.array([1]), np.array([0])
    found = sampled(src, dst, 4, [3, 2], [5, 5], 0)
    assert found.nodes[0].tolist() == [3, 2] and found.edges[0].shape == (3, 0)
    assert (found.node_counts, found.edge_counts) == ([[2, 0, 0]], [[0, 0]])
    found = sampled(src, dst, 4, [], [5], 0)
    assert len(found.nodes[0]) == 0 and found.edges[0].shape == (3, 0)


def test_relations_have_fanouts_of_their_own() -> None:
    """Users 0.., items 0..: each relation takes in-edges of its targets alone, and numbers those of its sources."""
    rng = np.random.default_rng(5)
    users, items, m = 30, 20, 200
    ends = {(0, 1): (users, items), (1, 0): (items, users), (0, 0): (users, users)}
    edges = {key: (rng.integers(0, ends[key][0], m), rng.integers(0, ends[key][1], m)) for key in ends}
    fanouts = {(0, 1): [3, 2], (1, 0): [-1, 1], (0, 0): [0, 4]}
    relations = [SampledRelation(*key, SortedInEdges.of(*edges[key], *ends[key]), fanouts[key]) for key in ends]
    places = [places_of(users), places_of(items)]
    found = sample(relations, [np.array([4, 9]), np.array([1])], np.array([1], np.uint64), places)
    assert all((one == -1).all() for one in places)
    for key, of in zip(ends, found.edges, strict=True):
        row, col, edge = of
        src, dst = edges[key]
        sources, targets = found.nodes[key[0]], found.nodes[key[1]]
        assert np.array_equal(src[edge], sources[row]) and np.array_equal(dst[edge], targets[col])
        degrees, taken, begin = np.bincount(dst, minlength=ends[key][1]), np.bincount(col, minlength=len(targets)), 0
        for fanout, added in zip([*fanouts[key], 0], found.node_counts[key[1]], strict=True):
            of_hop = degrees[targets[begin : begin + added]]
            expected = of_hop if fanout < 0 else np.minimum(of_hop, fanout)
            assert taken[begin : begin + added].tolist() == expected.tolist()
            begin += added
    assert sum(found.edge_counts[0]) > 0 and found.edge_counts[2][0] == 0 and found.edge_counts[2][1] > 0
