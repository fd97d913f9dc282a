"""Placement of new edges and masters: the four strategies.

Every edge is placed once, in the order of the epoch's first touches, with the loads and degrees of edges placed before;
ties go to the part with the lowest load, then to the lowest part. No randomness, so a replay places alike.

- hybrid: in-edges join the master of their destination until it has `threshold` of them, then HDRF spreads new ones;
  a new vertex is mastered beside the neighbour that it arrives with, while that part has at most 1.1 times the mean.
- hdrf: D3-GNN's vertex cut; a vertex is mastered in the part of its first edge.
- locality: RIPPLE++'s Algorithm 1 for masters; edges live with their destination.
- hash: masters by salted hash of the key; edges live with their destination.

Source: D3-GNN section 4.3.1 (HDRF as in its code), RIPPLE++ section 4.4 (Algorithm 1; its load counts vertices).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner
from freshet.kernels.prefetch import prefetch_row
from freshet.partitioner import graph_tables as t
from freshet.partitioner.config import HASH, HDRF, HYBRID, LOCALITY
from freshet.partitioner.epoch_log import LOGGED_VERTICES, V_ROW, Log
from freshet.partitioner.graph_tables import GraphView
from freshet.partitioner.slots import count_end, home_in_edges, next_row, placed_ends, prefetch_places
from freshet.state.salt import Salt, mix

LOAD_SLACK = 1.1
AHEAD = 8  # edges whose rows are asked for before they are looked at


class Rule(NamedTuple):
    """A strategy and its numbers, as kernels get them."""

    strategy: int
    balance: float  # HDRF's lambda
    epsilon: float
    threshold: int
    salt: Salt


@inner
def count_edge(g: GraphView, row: int, more: int) -> None:
    """Count a placed edge (`more` 1) or one that goes (-1) in its ends and in its part's load."""
    vertex, edge = g.vertex.data, g.edge.data
    src, dst, part = np.int64(edge[row, t.SRC]), np.int64(edge[row, t.DST]), np.int64(edge[row, t.PART])
    count_end(g, dst, part, 0, more)
    count_end(g, src, part, 1, more)
    g.parts[part, t.PART_EDGES] += more
    if vertex[dst, t.MASTER] != part:
        vertex[dst, t.AWAY] += more


@inner
def _least_loaded(parts: np.ndarray) -> int:
    """The part with the fewest masters; ties: with the fewest edges, then the lowest."""
    best = 0
    for p in range(1, len(parts)):
        if parts[p, t.MASTERS] < parts[best, t.MASTERS] or (
            parts[p, t.MASTERS] == parts[best, t.MASTERS] and parts[p, t.PART_EDGES] < parts[best, t.PART_EDGES]
        ):
            best = p
    return best


@inner
def _set_master(parts: np.ndarray, vertex: np.ndarray, row: int, part: int) -> None:
    vertex[row, t.MASTER] = part
    parts[part, t.MASTERS] += 1


@inner
def _placed_in_edges(g: GraphView, row: int) -> int:
    """Return the number of in-edges, of a vertex with a master, that have a part."""
    return home_in_edges(g, row) + g.vertex.data[row, t.AWAY]


@inner
def _unless_full(parts: np.ndarray, part: int) -> int:
    """The part, while its load is within the slack of the mean; else the least loaded one."""
    total = 0
    for p in range(len(parts)):
        total += parts[p, t.MASTERS]
    if parts[part, t.MASTERS] * len(parts) <= LOAD_SLACK * total:
        return part
    return _least_loaded(parts)


@inner
def _master_hybrid(parts: np.ndarray, vertex: np.ndarray, src: int, dst: int) -> None:
    if vertex[src, t.MASTER] < 0 and vertex[dst, t.MASTER] < 0:
        _set_master(parts, vertex, dst, _least_loaded(parts))
    if vertex[dst, t.MASTER] < 0:
        _set_master(parts, vertex, dst, _unless_full(parts, vertex[src, t.MASTER]))
    if vertex[src, t.MASTER] < 0:
        _set_master(parts, vertex, src, _unless_full(parts, vertex[dst, t.MASTER]))


@inner
def _master_locality(g: GraphView, src: int, dst: int) -> None:
    """Algorithm 1: a new source joins a destination of high in-degree, else it goes to the least loaded part."""
    parts, vertex = g.parts, g.vertex.data
    if vertex[src, t.MASTER] >= 0 and vertex[dst, t.MASTER] >= 0:
        return
    part = _least_loaded(parts)
    if vertex[dst, t.MASTER] >= 0:
        edges = masters = 0
        for p in range(len(parts)):
            edges += parts[p, t.PART_EDGES]
            masters += parts[p, t.MASTERS]
        if _placed_in_edges(g, dst) * masters > 2 * edges:
            part = vertex[dst, t.MASTER]
    else:
        _set_master(parts, vertex, dst, part)
    if vertex[src, t.MASTER] < 0:
        _set_master(parts, vertex, src, part)


@inner
def _hdrf(g: GraphView, src: int, dst: int, rule: Rule) -> np.int64:
    """The part with the highest score.

    Of the parts where neither end has a row, only the one with the lowest load can have it.
    """
    parts, masters = g.parts, g.vertex.data[:, t.MASTER]
    n, src_degree, dst_degree = len(parts), 1 + placed_ends(g, src), 1 + placed_ends(g, dst)
    emptiest, most, least = np.int64(0), parts[0, t.PART_EDGES], parts[0, t.PART_EDGES]
    for p in range(1, n):
        size = parts[p, t.PART_EDGES]
        most = max(most, size)
        if size < least:
            emptiest, least = np.int64(p), size
    share = src_degree / (src_degree + dst_degree)
    best, best_score = np.int64(0), -1.0
    src_rows = dst_rows = np.int64(0)  # beside the masters'
    src_part, dst_part = next_row(g, src, 0, src_rows), next_row(g, dst, 0, dst_rows)
    p = min(min(src_part, dst_part), emptiest)
    while p < n:
        size = parts[p, t.PART_EDGES]
        score = rule.balance * (most - size) / (rule.epsilon + (most - least))
        if p == src_part:
            score += 2.0 - share
            src_rows += masters[src] != p
            src_part = next_row(g, src, p + 1, src_rows)
        if p == dst_part:
            score += 1.0 + share
            dst_rows += masters[dst] != p
            dst_part = next_row(g, dst, p + 1, dst_rows)
        if score > best_score or (score == best_score and size < parts[best, t.PART_EDGES]):
            best, best_score = p, score
        p = min(min(src_part, dst_part), np.int64(n) if p >= emptiest else emptiest)
    return best


@inner
def give_masters(g: GraphView, src: int, dst: int, rule: Rule) -> None:
    """Give the ends of a new edge masters where they have none, unless the edge's part decides (HDRF)."""
    parts, vertex = g.parts, g.vertex.data
    if rule.strategy == HASH:
        for end in (src, dst):
            if vertex[end, t.MASTER] < 0:
                _set_master(parts, vertex, end, hash_part(rule.salt, g.wide[end, t.KEY], len(parts)))
    elif rule.strategy == HYBRID:
        _master_hybrid(parts, vertex, src, dst)
    elif rule.strategy == LOCALITY:
        _master_locality(g, src, dst)


@inner
def needs_hdrf(g: GraphView, dst: int, rule: Rule) -> bool:
    """Return whether HDRF decides where a new edge goes whose destination has a master; else it goes there."""
    return rule.strategy == HYBRID and _placed_in_edges(g, dst) >= rule.threshold


@inner
def _choose(g: GraphView, src: int, dst: int, rule: Rule) -> np.int64:
    """The part of a new edge; masters its ends where they have none."""
    parts, vertex = g.parts, g.vertex.data
    if rule.strategy == HDRF:
        part = _hdrf(g, src, dst, rule)
        for end in (src, dst):
            if vertex[end, t.MASTER] < 0:
                _set_master(parts, vertex, end, part)
        return part
    give_masters(g, src, dst, rule)
    return _hdrf(g, src, dst, rule) if needs_hdrf(g, dst, rule) else np.int64(vertex[dst, t.MASTER])


@inner
def hash_part(salt: Salt, key: int, parts: int) -> np.int64:
    """The part that `hash` gives a key."""
    return np.int64(mix(salt, key) % np.uint64(parts))


@inner
def prefetch_ends(g: GraphView, row: int) -> None:
    """Ask for the rows of an edge's ends."""
    prefetch_row(g.vertex.data, np.int64(g.edge.data[row, t.SRC]))
    prefetch_row(g.vertex.data, np.int64(g.edge.data[row, t.DST]))


@inner
def place_edges(g: GraphView, added: np.ndarray, start: int, rule: Rule) -> int:
    """Give each of the added edges from `start` on a part, and their ends masters. All rows are logged.

    Returns where it stopped for want of room for lists of parts, or how many there are.
    """
    edge = g.edge.data
    for i in range(start, len(added)):
        if g.is_sparse and g.scalars[t.LIST_TAIL] + g.list_room > len(g.replicas.data):
            return i
        if i + 2 * AHEAD < len(added):
            prefetch_ends(g, np.int64(added[i + 2 * AHEAD]))
        if g.is_sparse and i + AHEAD < len(added):
            prefetch_places(g, np.int64(edge[added[i + AHEAD], t.SRC]))
            prefetch_places(g, np.int64(edge[added[i + AHEAD], t.DST]))
        row = np.int64(added[i])
        edge[row, t.PART] = _choose(g, np.int64(edge[row, t.SRC]), np.int64(edge[row, t.DST]), rule)
        count_edge(g, row, 1)
    return len(added)


@inner
def place_isolated(g: GraphView, log: Log, rule: Rule) -> None:
    """Give a master to the logged vertices that live without any edge so far."""
    parts, vertex = g.parts, g.vertex.data
    for k in range(log.counts[LOGGED_VERTICES]):
        row = log.vertices[k, V_ROW]
        if vertex[row, t.LIVE] and vertex[row, t.MASTER] < 0:
            by_hash = rule.strategy == HASH
            part = hash_part(rule.salt, g.wide[row, t.KEY], len(parts)) if by_hash else _least_loaded(parts)
            _set_master(parts, vertex, row, part)
