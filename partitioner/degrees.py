"""Weighted degrees, and what an epoch has changed for the masters: contexts, split or whole, features.

Invariant (tests/unit/partitioner checks it against a slow reference):
    degree = sum of the weights of the in-edges that are no self-loops, exactly 0 where there are none.
The same holds of the degrees in one relation, which are kept of those relations of which layers read them.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner
from freshet.partitioner.epoch_log import (
    E_OLD,
    E_ROW,
    LOGGED_EDGES,
    LOGGED_VERTICES,
    UNCHANGED,
    V_CONTEXT,
    V_ROW,
    V_WAS_LIVE,
    V_WAS_SPLIT,
    V_X,
    ZEROED,
    Log,
)
from freshet.partitioner.graph_tables import (
    AWAY,
    DST,
    IN_DEGREE,
    IN_HEAD,
    IN_NEXT,
    LIVE,
    LOOPS,
    MARK,
    MASTER,
    NEAR,
    NEAR_CHANGED,
    NEAR_PEAK,
    NEAR_SUM,
    OUT_DEGREE,
    OUT_HEAD,
    OUT_NEXT,
    PEAK,
    SRC,
    SUM,
    TYPE,
    TYPES,
    VALUE,
    GraphView,
)
from freshet.partitioner.hash_index import HashIndex, find_edge
from freshet.partitioner.net_change import (
    CONTEXTS,
    DEGREES,
    FEATURES,
    IN_EDGES,
    LOOP_WEIGHT,
    OUT_EDGES,
    SLOT,
    SPLIT,
    TO,
    WHOLE,
    X_ROW,
    Records,
)
from freshet.partitioner.slots import home_slot, section_of
from freshet.state.table import touch

WEIGHT = VALUE  # the first value of an edge
CANCELLED = 1e-6  # a sum this small against its peak has lost bits that count in float32


@inner
def note_context(g: GraphView, log: Log, k: int, of_sources: bool) -> None:
    """Note the changed context of the destination of a logged edge that came, went or changed its weight.

    `of_sources`: its source has another context, too.
    """
    row, old = log.edges[k, E_ROW], log.old[k, E_OLD]
    new = g.carried[row, WEIGHT]
    if old == new:
        return
    src, dst = g.edge.data[row, SRC], g.edge.data[row, DST]
    log.vertices[g.vertex.data[dst, MARK] - 1, V_CONTEXT] = 1
    if of_sources:
        log.vertices[g.vertex.data[src, MARK] - 1, V_CONTEXT] = 1
    if src != dst:
        _count_weight(g.real, dst, old, new)


@inner
def _count_weight(real: np.ndarray, row: int, old: float, new: float) -> None:
    """Count the weight of an in-edge (no self-loop) in its vertex's sum again; NaN stands for no edge."""
    total = real[row, SUM]
    if not np.isnan(old):
        total -= np.float64(old)
    if not np.isnan(new):
        total += np.float64(new)
        real[row, PEAK] = max(real[row, PEAK], abs(np.float64(new)))
    real[row, SUM] = total
    real[row, PEAK] = max(real[row, PEAK], abs(total))


@inner
def _settle_degree(vertex: np.ndarray, real: np.ndarray, edge: np.ndarray, weight: np.ndarray, row: int) -> np.float64:
    """Return the weighted in-degree, summed again if cancellation has lost too much of it."""
    if vertex[row, IN_DEGREE] == vertex[row, LOOPS]:
        real[row, SUM] = 0.0
        real[row, PEAK] = 0.0
    elif abs(real[row, SUM]) < CANCELLED * real[row, PEAK]:
        total = peak = np.float64(0)
        at = vertex[row, IN_HEAD]
        while at >= 0:
            if edge[at, SRC] != row:
                total += np.float64(weight[at, WEIGHT])
                peak = max(peak, abs(np.float64(weight[at, WEIGHT])))
            at = edge[at, IN_NEXT]
        real[row, SUM] = total
        real[row, PEAK] = peak
    return real[row, SUM]


@inner
def _out_degree(g: GraphView, row: int) -> np.float64:
    """Return the weighted out-degree without self-loops, summed over the out-edges: all of them are sent to anyway."""
    total, edge = np.float64(0), g.edge.data
    at = g.vertex.data[row, OUT_HEAD]
    while at >= 0:
        if edge[at, DST] != row:
            total += np.float64(g.carried[at, WEIGHT])
        at = edge[at, OUT_NEXT]
    return total


@inner
def _loop_weight(
    index: HashIndex, vertex: np.ndarray, edge: np.ndarray, weight: np.ndarray, row: int, types: int
) -> np.float32:
    """The weight of the self-loops of all types, added in the order of these; NaN where there are none."""
    left = vertex[row, LOOPS]
    if not left:
        return np.float32(np.nan)
    total = np.float64(0)
    if left > 1 or types <= vertex[row, IN_DEGREE]:
        for etype in range(types):
            loop = find_edge(index, edge, row, row, etype)
            if loop >= 0 and not np.isnan(weight[loop, WEIGHT]):
                total += np.float64(weight[loop, WEIGHT])
    else:  # of many types, of which most have no edge here
        at = vertex[row, IN_HEAD]
        while at >= 0:
            if edge[at, SRC] == row:
                total += np.float64(weight[at, WEIGHT])
            at = edge[at, IN_NEXT]
    return np.float32(total)


@inner
def emit_masters(g: GraphView, log: Log, out: Records, index: HashIndex) -> None:
    """Contexts that changed, transitions between split and whole, and features, of the live logged vertices."""
    vertex, counts = g.vertex.data, out.counts
    loop_weights = out.contexts.view(np.float32)
    for k in range(log.counts[LOGGED_VERTICES]):
        row = log.vertices[k, V_ROW]
        if not vertex[row, LIVE]:
            continue
        was_live, was_split, x = log.vertices[k, V_WAS_LIVE], log.vertices[k, V_WAS_SPLIT], log.vertices[k, V_X]
        section = section_of(g, row, vertex[row, MASTER])
        slot = home_slot(g, row)
        if log.vertices[k, V_CONTEXT] or not was_live:
            at = counts[CONTEXTS]
            counts[CONTEXTS] += 1
            out.contexts[TO, at], out.contexts[SLOT, at] = section, slot
            out.contexts[IN_EDGES, at] = vertex[row, IN_DEGREE]
            if len(out.out_degrees):
                out.contexts[OUT_EDGES, at] = vertex[row, OUT_DEGREE] - vertex[row, LOOPS]
                out.out_degrees[at] = _out_degree(g, row)
            out.degrees[at] = _settle_degree(vertex, g.real, g.edge.data, g.carried, row)
            loop_weights[LOOP_WEIGHT, at] = _loop_weight(index, vertex, g.edge.data, g.carried, row, g.scalars[TYPES])
        is_split = vertex[row, AWAY] > 0
        if is_split and not was_split:
            out.split[TO, counts[SPLIT]], out.split[SLOT, counts[SPLIT]] = section, slot
            counts[SPLIT] += 1
        elif was_split and not is_split:
            out.whole[TO, counts[WHOLE]], out.whole[SLOT, counts[WHOLE]] = section, slot
            counts[WHOLE] += 1
        if x >= 0 or (x == ZEROED and was_live):
            at = counts[FEATURES]
            counts[FEATURES] += 1
            out.features[TO, at], out.features[SLOT, at] = section, slot
            out.features[X_ROW, at] = x if x >= 0 else UNCHANGED


@inner
def note_degree(g: GraphView, log: Log, k: int) -> None:
    """Count a logged edge that came, went or changed its weight at its destination, if its relation has degrees."""
    row = log.edges[k, E_ROW]
    place = np.int32(-1) if not len(g.degree_place) else g.degree_place[g.edge.data[row, TYPE]]
    old, new = log.old[k, E_OLD], g.carried[row, WEIGHT]
    if place < 0 or old == new:
        return
    src, dst = g.edge.data[row, SRC], g.edge.data[row, DST]
    touch(g.degrees, dst)
    degrees = g.degrees.data
    degrees[dst, place + NEAR_CHANGED] = 1
    if src == dst:
        return
    total, peak = degrees[dst, place + NEAR_SUM], degrees[dst, place + NEAR_PEAK]
    if not np.isnan(old):
        degrees[dst, place + NEAR] -= 1
        total -= np.float64(old)
    if not np.isnan(new):
        degrees[dst, place + NEAR] += 1
        total += np.float64(new)
        peak = max(peak, abs(np.float64(new)))
    is_last = degrees[dst, place + NEAR] == 0
    degrees[dst, place + NEAR_SUM] = 0.0 if is_last else total
    degrees[dst, place + NEAR_PEAK] = 0.0 if is_last else max(peak, abs(total))


@inner
def _settle_in(g: GraphView, row: int, place: int, relation: int) -> np.float64:
    """Return the weights of a vertex's in-edges together, summed again if cancellation has lost too much of them."""
    degrees, edge = g.degrees.data, g.edge.data
    if abs(degrees[row, place + NEAR_SUM]) < CANCELLED * degrees[row, place + NEAR_PEAK]:
        total = peak = np.float64(0)
        at = g.vertex.data[row, IN_HEAD]
        while at >= 0:
            if edge[at, TYPE] == relation and edge[at, SRC] != row:
                total += np.float64(g.carried[at, WEIGHT])
                peak = max(peak, abs(np.float64(g.carried[at, WEIGHT])))
            at = edge[at, IN_NEXT]
        degrees[row, place + NEAR_SUM], degrees[row, place + NEAR_PEAK] = total, peak
    return degrees[row, place + NEAR_SUM]


@inner
def emit_degrees(g: GraphView, log: Log, out: Records, index: HashIndex) -> None:
    """Emit the changed degrees of live vertices, each once, in the order of the logged edges."""
    if not len(g.degree_place):
        return
    loops = out.degrees_in.view(np.float32)
    for k in range(log.counts[LOGGED_EDGES]):
        edge = log.edges[k, E_ROW]
        relation, row = g.edge.data[edge, TYPE], np.int64(g.edge.data[edge, DST])
        place = g.degree_place[relation]
        if place < 0 or not g.degrees.data[row, place + NEAR_CHANGED]:
            continue
        g.degrees.data[row, place + NEAR_CHANGED] = 0  # `note_degree` has touched it
        if not g.vertex.data[row, LIVE]:
            continue
        at = out.counts[DEGREES]
        out.counts[DEGREES] += 1
        loop = find_edge(index, g.edge.data, row, row, relation)
        is_there = loop >= 0 and not np.isnan(g.carried[loop, WEIGHT])
        out.degrees_in[TO, at] = g.vertex.data[row, MASTER] + relation * len(g.parts)
        out.degrees_in[SLOT, at] = home_slot(g, row)
        out.degrees_in[IN_EDGES, at] = np.int32(g.degrees.data[row, place + NEAR]) + is_there
        out.sums_in[at] = _settle_in(g, row, place, relation)
        loops[LOOP_WEIGHT, at] = g.carried[loop, WEIGHT] if is_there else np.float32(np.nan)
