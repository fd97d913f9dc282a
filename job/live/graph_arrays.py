"""The graph of a job's state as arrays in an order that depends on the graph alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.gnn.any_plan import AnyPlan
from freshet.kinds import NO_MIRROR
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.operators.live_attributes import attribute_keepers
from freshet.operators.live_graph import LiveState
from freshet.partitioner.ids import INT, Ids
from freshet.partitioner.live_graph import PlacedGraph
from freshet.schema import EdgeValues, FeatureRows
from freshet.type_columns import without_types


class OrderedGraph(NamedTuple):
    """A graph by kind and relation; one of each where vertices have no kinds.

    Vertices are in the order of their ids, strings by their bytes. Edges are in the order of their types (or
    relations), targets, sources and keys.

    Shapes: ids, by kind n int64 or n strings (object); etype (e,) int64, None without types; attr, by relation, whether
    the job keeps attributes of its edges
    """

    ids: list[np.ndarray]
    graph: KindsGraph
    etype: np.ndarray | None
    attr: list[bool]


def arrays_of(live: LiveState, plan: AnyPlan) -> OrderedGraph:
    """Return the graph of a state as arrays."""
    graph = live.graph()
    kind = np.zeros(len(graph.ids), np.int64) if graph.kind is None else graph.kind.astype(np.int64)
    order = np.lexsort((_ranks(graph.ids), kind))
    counts = np.bincount(kind, minlength=len(plan.features.widths))
    begins = np.cumsum(counts) - counts
    places = np.empty(len(order), np.int64)  # of each vertex, among all in this order
    places[order] = np.arange(len(order))
    rows = live.features(graph)
    spans = [(begin, begin + n) for begin, n in zip(begins.tolist(), counts.tolist(), strict=True)]
    x = [_features(rows, order[slice(*span)], code) for code, span in enumerate(spans)]
    ids = graph.ids.take(order)
    named = [_listed(ids.slice(*span)) for span in spans]
    edges = _edge_order(graph, places)
    src, dst = places[graph.src[edges]], places[graph.dst[edges]]
    etype, values = graph.etype[edges].astype(np.int64), graph.values[edges]
    kinds = plan.features.kinds
    keepers = attribute_keepers(plan)
    if kinds is None:
        types, given = etype if plan.edge_types else None, without_types(values, plan.features)
        attributed = bool(keepers) and plan.features.given_edge_width > 0
        return OrderedGraph(named, KindsGraph(x, [RelationEdges(src, dst, given)]), types, [attributed])
    ends = np.searchsorted(etype, np.arange(len(kinds.relations) + 1))
    relations = []
    for number, one in enumerate(kinds.relations):
        some = slice(*ends[number : number + 2].tolist())
        own = src[some] - begins[one.source], dst[some] - begins[one.target]
        carried = values[some]
        attr = carried.full_attr(plan.features.edge_width)[:, : one.edge_width] if one.edge_width else None
        relations.append(RelationEdges(*own, EdgeValues(len(own[0]), carried.given, attr)))
    kept = {one.relation for one in keepers}
    kept |= {one.mirrors for number, one in enumerate(kinds.relations) if number in kept and one.mirrors != NO_MIRROR}
    return OrderedGraph(named, KindsGraph(x, relations), None, [number in kept for number in range(len(relations))])


def _ranks(ids: Ids) -> np.ndarray:
    """Return numbers that compare as the ids do."""
    if ids.kind == INT:
        return ids.ints
    packed = ids.compact()
    buffers = [None, pa.py_buffer(np.ascontiguousarray(packed.offsets)), pa.py_buffer(packed.data)]
    texts = pa.Array.from_buffers(pa.large_binary(), len(packed), buffers)
    ranks = np.empty(len(packed), np.int64)
    ranks[pc.sort_indices(texts).to_numpy()] = np.arange(len(packed))
    return ranks


def _listed(ids: Ids) -> np.ndarray:
    return ids.ints.copy() if ids.kind == INT else np.array(ids.compact().to_list(), object)


def _features(rows: FeatureRows, which: np.ndarray, kind: int) -> np.ndarray:
    if rows.several is None:
        return np.ascontiguousarray(rows.matrix[which])
    return rows.several.of_kind(kind, which)


def _edge_order(graph: PlacedGraph, places: np.ndarray) -> np.ndarray:
    """Return the rows of the edges by type, target, source and key."""
    n, types = len(places), len(graph.types)
    src, dst = places[graph.src], places[graph.dst]
    if graph.edge_keys is None and types * n * n < 2**62:
        return np.argsort((graph.etype * np.int64(n) + dst) * n + src, kind="stable")
    keys = np.zeros(len(src), np.int64) if graph.edge_keys is None else _ranks(graph.edge_keys)
    return np.lexsort((keys, src, dst, graph.etype))
