"""Weighted degrees, and what an epoch has changed for the masters: contexts, split or whole, features.

Invariant (tests/unit/partitioner checks it against a slow reference):
    degree = sum of the weights of the in-edges that are no self-loops, exactly 0 where there are none.
The same holds of the degrees in one relation, which are kept of those relations of which layers read them, and of the
self-loops, which may be many where edges have keys.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner import epoch_log as e
from freshet.partitioner import graph_tables as t
from freshet.partitioner import net_change as net
from freshet.partitioner.edge_keys import EdgeIndex
from freshet.partitioner.epoch_log import Log
from freshet.partitioner.graph_tables import GraphView
from freshet.partitioner.hash_index import find_edge
from freshet.partitioner.net_change import Records
from freshet.partitioner.slots import home_slot, section_of
from freshet.state.table import touch

WEIGHT = t.VALUE  # the first value of an edge
CANCELLED = 1e-6  # a sum this small against its peak has lost bits that count in float32


@inner
def note_context(g: GraphView, log: Log, k: int, of_sources: bool) -> None:
    """Note the changed context of the destination of a logged edge that came, went or changed its weight.

    `of_sources`: its source has another context, too.
    """
    row, old = log.edges[k, e.E_ROW], log.old[k, e.E_OLD]
    new = g.carried[row, WEIGHT]
    if old == new:
        return
    src, dst = g.edge.data[row, t.SRC], g.edge.data[row, t.DST]
    log.vertices[g.vertex.data[dst, t.MARK] - 1, e.V_CONTEXT] = 1
    if of_sources:
        log.vertices[g.vertex.data[src, t.MARK] - 1, e.V_CONTEXT] = 1
    if src != dst:
        _count_weight(g.real, dst, old, new)
    elif g.key_kind:
        touch(g.loops, dst)
        _count_edge(g.loops.data, dst, 0, old, new)


@inner
def _count_weight(real: np.ndarray, row: int, old: float, new: float) -> None:
    """Count the weight of an in-edge (no self-loop) in its vertex's sum again; NaN stands for no edge."""
    total = real[row, t.SUM]
    if not np.isnan(old):
        total -= np.float64(old)
    if not np.isnan(new):
        total += np.float64(new)
        real[row, t.PEAK] = max(real[row, t.PEAK], abs(np.float64(new)))
    real[row, t.SUM] = total
    real[row, t.PEAK] = max(real[row, t.PEAK], abs(total))


@inner
def _count_edge(sums: np.ndarray, row: int, place: int, old: float, new: float) -> None:
    """Count an in-edge and its weight in columns of `degrees` or `loops` again; NaN stands for no edge."""
    total, peak = sums[row, place + t.NEAR_SUM], sums[row, place + t.NEAR_PEAK]
    if not np.isnan(old):
        sums[row, place + t.NEAR] -= 1
        total -= np.float64(old)
    if not np.isnan(new):
        sums[row, place + t.NEAR] += 1
        total += np.float64(new)
        peak = max(peak, abs(np.float64(new)))
    is_last = sums[row, place + t.NEAR] == 0
    sums[row, place + t.NEAR_SUM] = 0.0 if is_last else total
    sums[row, place + t.NEAR_PEAK] = 0.0 if is_last else max(peak, abs(total))


@inner
def _settle_degree(vertex: np.ndarray, real: np.ndarray, edge: np.ndarray, weight: np.ndarray, row: int) -> np.float64:
    """Return the weighted in-degree, summed again if cancellation has lost too much of it."""
    if vertex[row, t.IN_DEGREE] == vertex[row, t.LOOPS]:
        real[row, t.SUM] = 0.0
        real[row, t.PEAK] = 0.0
    elif abs(real[row, t.SUM]) < CANCELLED * real[row, t.PEAK]:
        total = peak = np.float64(0)
        at = vertex[row, t.IN_HEAD]
        while at >= 0:
            if edge[at, t.SRC] != row:
                total += np.float64(weight[at, WEIGHT])
                peak = max(peak, abs(np.float64(weight[at, WEIGHT])))
            at = edge[at, t.IN_NEXT]
        real[row, t.SUM] = total
        real[row, t.PEAK] = peak
    return real[row, t.SUM]


@inner
def _out_degree(g: GraphView, row: int) -> np.float64:
    """Return the weighted out-degree without self-loops, summed over the out-edges: all of them are sent to anyway."""
    total, edge = np.float64(0), g.edge.data
    at = g.vertex.data[row, t.OUT_HEAD]
    while at >= 0:
        if edge[at, t.DST] != row:
            total += np.float64(g.carried[at, WEIGHT])
        at = edge[at, t.OUT_NEXT]
    return total


@inner
def _settle(g: GraphView, sums: np.ndarray, row: int, place: int, relation: int, of_loops: bool) -> np.float64:
    """Return a sum of weights of in-edges, of one relation or of all (-1), summed again if cancellation cost too much.

    `of_loops`: of self-loops alone, else of the other ones. The row of `sums` was touched.
    """
    edge = g.edge.data
    if abs(sums[row, place + t.NEAR_SUM]) < CANCELLED * sums[row, place + t.NEAR_PEAK]:
        total = peak = np.float64(0)
        at = g.vertex.data[row, t.IN_HEAD]
        while at >= 0:
            if (relation < 0 or edge[at, t.TYPE] == relation) and (edge[at, t.SRC] == row) == of_loops:
                total += np.float64(g.carried[at, WEIGHT])
                peak = max(peak, abs(np.float64(g.carried[at, WEIGHT])))
            at = edge[at, t.IN_NEXT]
        sums[row, place + t.NEAR_SUM], sums[row, place + t.NEAR_PEAK] = total, peak
    return sums[row, place + t.NEAR_SUM]


@inner
def _loops_of(index: EdgeIndex, g: GraphView, row: int, etype: int) -> tuple[np.int32, np.float64]:
    """Return how many self-loops of a type a vertex has, and their weights together."""
    loops, total = np.int32(0), np.float64(0)
    if g.key_kind:
        touch(g.loops, row)
        place = t.DEGREE_WIDTH + g.degree_place[etype]
        return np.int32(g.loops.data[row, place + t.NEAR]), _settle(g, g.loops.data, row, place, etype, True)
    loop = find_edge(index.rows, g.edge.data, row, row, etype)
    if loop >= 0 and not np.isnan(g.carried[loop, WEIGHT]):
        loops, total = np.int32(1), np.float64(g.carried[loop, WEIGHT])
    return loops, total


@inner
def _loop_weight(index: EdgeIndex, g: GraphView, row: int) -> np.float32:
    """The weight of the self-loops of all types, added in the order of these; NaN where there are none."""
    vertex, edge, weight, types = g.vertex.data, g.edge.data, g.carried, g.scalars[t.TYPES]
    left = vertex[row, t.LOOPS]
    if not left:
        return np.float32(np.nan)
    total = np.float64(0)
    if g.key_kind:
        touch(g.loops, row)
        total = _settle(g, g.loops.data, row, 0, -1, True)
    elif left > 1 or types <= vertex[row, t.IN_DEGREE]:
        for etype in range(types):
            total += _loops_of(index, g, row, etype)[1]
    else:  # of many types, of which most have no edge here
        at = vertex[row, t.IN_HEAD]
        while at >= 0:
            if edge[at, t.SRC] == row:
                total += np.float64(weight[at, WEIGHT])
            at = edge[at, t.IN_NEXT]
    return np.float32(total)


@inner
def emit_masters(g: GraphView, log: Log, out: Records, index: EdgeIndex) -> None:
    """Contexts that changed, transitions between split and whole, and features, of the live logged vertices."""
    vertex, counts = g.vertex.data, out.counts
    loop_weights = out.contexts.view(np.float32)
    for k in range(log.counts[e.LOGGED_VERTICES]):
        row = log.vertices[k, e.V_ROW]
        if not vertex[row, t.LIVE]:
            continue
        was_live, was_split, x = log.vertices[k, e.V_WAS_LIVE], log.vertices[k, e.V_WAS_SPLIT], log.vertices[k, e.V_X]
        section = section_of(g, row, vertex[row, t.MASTER])
        slot = home_slot(g, row)
        if log.vertices[k, e.V_CONTEXT] or not was_live:
            at = counts[net.CONTEXTS]
            counts[net.CONTEXTS] += 1
            out.contexts[net.TO, at], out.contexts[net.SLOT, at] = section, slot
            out.contexts[net.IN_EDGES, at] = vertex[row, t.IN_DEGREE]
            if len(out.out_degrees):
                out.contexts[net.OUT_EDGES, at] = vertex[row, t.OUT_DEGREE] - vertex[row, t.LOOPS]
                out.out_degrees[at] = _out_degree(g, row)
            out.degrees[at] = _settle_degree(vertex, g.real, g.edge.data, g.carried, row)
            loop_weights[net.LOOP_WEIGHT, at] = _loop_weight(index, g, row)
        is_split = vertex[row, t.AWAY] > 0
        if is_split and not was_split:
            out.split[net.TO, counts[net.SPLIT]], out.split[net.SLOT, counts[net.SPLIT]] = section, slot
            counts[net.SPLIT] += 1
        elif was_split and not is_split:
            out.whole[net.TO, counts[net.WHOLE]], out.whole[net.SLOT, counts[net.WHOLE]] = section, slot
            counts[net.WHOLE] += 1
        if x >= 0 or (x == e.ZEROED and was_live):
            at = counts[net.FEATURES]
            counts[net.FEATURES] += 1
            out.features[net.TO, at], out.features[net.SLOT, at] = section, slot
            out.features[net.X_ROW, at] = x if x >= 0 else e.UNCHANGED


@inner
def note_degree(g: GraphView, log: Log, k: int) -> None:
    """Count a logged edge that came, went or changed its weight at its destination, if its relation has degrees."""
    row = log.edges[k, e.E_ROW]
    place = np.int32(-1) if not len(g.degree_place) else g.degree_place[g.edge.data[row, t.TYPE]]
    old, new = log.old[k, e.E_OLD], g.carried[row, WEIGHT]
    if place < 0 or old == new:
        return
    src, dst = g.edge.data[row, t.SRC], g.edge.data[row, t.DST]
    touch(g.degrees, dst)
    g.degrees.data[dst, place + t.NEAR_CHANGED] = 1
    if src != dst:
        _count_edge(g.degrees.data, dst, place, old, new)
    elif g.key_kind:
        touch(g.loops, dst)
        _count_edge(g.loops.data, dst, t.DEGREE_WIDTH + place, old, new)


@inner
def emit_degrees(g: GraphView, log: Log, out: Records, index: EdgeIndex) -> None:
    """Emit the changed degrees of live vertices, each once, in the order of the logged edges."""
    if not len(g.degree_place):
        return
    loops = out.degrees_in.view(np.float32)
    for k in range(log.counts[e.LOGGED_EDGES]):
        edge = log.edges[k, e.E_ROW]
        relation, row = g.edge.data[edge, t.TYPE], np.int64(g.edge.data[edge, t.DST])
        place = g.degree_place[relation]
        if place < 0 or not g.degrees.data[row, place + t.NEAR_CHANGED]:
            continue
        g.degrees.data[row, place + t.NEAR_CHANGED] = 0  # `note_degree` has touched it
        if not g.vertex.data[row, t.LIVE]:
            continue
        at = out.counts[net.DEGREES]
        out.counts[net.DEGREES] += 1
        count, weight = _loops_of(index, g, row, relation)
        out.degrees_in[net.TO, at] = g.vertex.data[row, t.MASTER] + relation * len(g.parts)
        out.degrees_in[net.SLOT, at] = home_slot(g, row)
        out.degrees_in[net.IN_EDGES, at] = np.int32(g.degrees.data[row, place + t.NEAR]) + count
        out.sums_in[at] = _settle(g, g.degrees.data, row, place, relation, False)
        loops[net.LOOP_WEIGHT, at] = np.float32(weight) if count else np.float32(np.nan)


@kernel
def list_degrees(
    g: GraphView, index: EdgeIndex, rows: np.ndarray, relation: int, count: np.ndarray, degree: np.ndarray,
    loop: np.ndarray, out_count: np.ndarray, out_degree: np.ndarray,
) -> None:  # fmt: skip
    """Write the degrees of live vertices, as masters get them: of all edges (-1), or in one relation that has some."""
    vertex = g.vertex.data
    for i in range(len(rows)):
        row = rows[i]
        if relation >= 0:
            place = g.degree_place[relation]
            loops, weight = _loops_of(index, g, row, relation)
            count[i] = np.int32(g.degrees.data[row, place + t.NEAR]) + loops
            degree[i] = _settle(g, g.degrees.data, row, place, relation, False)
            loop[i] = np.float32(weight) if loops else np.float32(np.nan)
            continue
        count[i] = vertex[row, t.IN_DEGREE]
        degree[i] = _settle_degree(vertex, g.real, g.edge.data, g.carried, row)
        loop[i] = _loop_weight(index, g, row)
        if len(out_count):
            out_count[i] = vertex[row, t.OUT_DEGREE] - vertex[row, t.LOOPS]
            out_degree[i] = _out_degree(g, row)
