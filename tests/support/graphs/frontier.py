"""Who must be looked at in an epoch: counted from the graphs before and after alone, by the definition.

Active in layer l are the destinations of changed messages and of changed edges, those of changed degree where update
or message reads it, every vertex whose x_(l-1) changed where the update reads that, new vertices, and those that
changed between whole and split. Where a network makes messages of both ends, those of a changed target have changed,
too. Where a layer keeps extrema alone, a message counts if it changes its destination's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from freshet.gnn.block_pass import VertexBlock, aggregate
from freshet.gnn.oracles import whole_graph
from freshet.gnn.plan import Context, LayerPlan, Plan
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import MonotonicSynopsis
from freshet.kinds_graph import RelationEdges
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.settings import Settings
from freshet.partitioner.events import Events
from freshet.partitioner.reference.graph import Id, ReferenceGraph

EdgeKey = tuple[Id, Id, str]
Bits = dict[Id, bytes]
Key = TypeVar("Key")


@dataclass
class Moment:
    """The graph after an epoch, and what every layer holds of it: rows as bytes, to be compared bit by bit."""

    edges: dict[EdgeKey, float] = field(default_factory=dict)
    attributes: dict[EdgeKey, bytes] = field(default_factory=dict)
    x: list[Bits] = field(default_factory=list)  # of layers 0..L, by vertex
    message: list[Bits] = field(default_factory=list)  # what layers 1..L get of a source
    synopsis: list[Bits] = field(default_factory=list)  # what they keep of it all, and whether there is anything


def moments(events: Events, log: CutLog, settings: Settings, plan: Plan) -> list[Moment]:
    """Before the first epoch, and after each."""
    graph = ReferenceGraph(events.features, settings.partitioning.rules)
    found, begin = [_moment(graph, plan)], 0
    for cut in log.cuts.values():
        graph.apply(events.slice(begin, cut.end))
        begin = cut.end
        found.append(_moment(graph, plan))
    return found


def _moment(graph: ReferenceGraph, plan: Plan) -> Moment:
    arrays = graph.arrays()
    ids, src, dst, weight = arrays.ids, arrays.src, arrays.dst, arrays.values.weight
    now = Moment()
    for s, d, w, name in zip(src.tolist(), dst.tolist(), weight.tolist(), graph.edge_types(), strict=True):
        now.edges[ids[s], ids[d], name] = w
    attr = arrays.values.full_attr(plan.features.edge_width)
    now.attributes = {key: row.tobytes() for key, row in zip(now.edges, attr, strict=True)}
    ctx = whole_graph.contexts(arrays.graph)
    x = arrays.x
    now.x.append(_bits(ids, x))
    for layer in plan.layers:
        sent = layer.send(x, ctx)
        now.message.append(_bits(ids, sent[:, : layer.message_width]))
        synopses = aggregate(layer, [sent], VertexBlock([x], [len(x)], {None: RelationEdges(*arrays.graph[1:])}))
        messages = dst[src != dst] if layer.edge.skip_loops else dst
        is_there = np.bincount(messages, minlength=len(ids)) > 0
        marked = np.concatenate([synopses, is_there.astype(np.float32)[:, None]], axis=1)
        now.synopsis.append(_bits(ids, marked))
        x = _update(layer, sent, ctx, synopses)
        now.x.append(_bits(ids, x))
    return now


def _update(layer: LayerPlan, sent: np.ndarray, ctx: Context, synopses: np.ndarray) -> np.ndarray:
    own = sent if layer.self_is_message else sent[:, layer.message_width :]
    return layer.update(synopses, np.ascontiguousarray(own), ctx)


def _bits(ids: list[Id], rows: np.ndarray) -> Bits:
    return {vertex: row.tobytes() for vertex, row in zip(ids, np.ascontiguousarray(rows), strict=True)}


def prunes(plan: Plan) -> bool:
    """Whether any layer keeps extrema alone."""
    return any(_keeps_extrema(layer) for layer in plan.layers)


def _keeps_extrema(layer: LayerPlan) -> bool:
    synopsis = layer.synopsis.inner if isinstance(layer.synopsis, NetworkSynopsis) else layer.synopsis
    return isinstance(synopsis, MonotonicSynopsis)


def _turned(layer: LayerPlan, before: Bits, after: Bits) -> set[Id]:
    """The vertices that messages read something else of as their target."""
    if not isinstance(layer.synopsis, NetworkSynopsis) or not layer.synopsis.reads_targets:
        return set()
    network = layer.synopsis.network
    columns = slice(4 * network.target, 4 * (network.target + network.size))
    return _changed(*({vertex: row[columns] for vertex, row in rows.items()} for rows in (before, after)))


def frontier(plan: Plan, before: Moment, after: Moment, moved: set[Id], *, pruned: bool = True) -> list[set[Id]]:
    """The active vertices of layers 0..L; `moved` are those that became whole or split.

    Not `pruned`: all destinations of changed messages, whether extrema change or not.
    """
    live = set(after.x[0])
    born = live - set(before.x[0])
    keys = set(before.edges) | set(after.edges)
    changed_edges = {key for key in keys if before.edges.get(key) != after.edges.get(key)}
    other_attributes = _changed(before.attributes, after.attributes)
    found = [_changed(before.x[0], after.x[0]) | born]
    for number, layer in enumerate(plan.layers, 1):
        reached = set[Id]()
        sources = _changed(before.message[number - 1], after.message[number - 1])
        turned = _turned(layer, before.message[number - 1], after.message[number - 1])
        for key in keys:
            src, dst, _ = key
            if layer.edge.skip_loops and src == dst:
                continue
            come_or_gone = key not in before.edges or key not in after.edges
            reads = layer.edge
            other = (reads.weighted and key in changed_edges) or (reads.attributes and key in other_attributes)
            if come_or_gone or src in sources or dst in turned or other:
                reached.add(dst)
        if pruned and _keeps_extrema(layer):
            changed = _changed(before.synopsis[number - 1], after.synopsis[number - 1])
            assert changed <= reached | born
            reached = changed
        active = born | moved | reached
        if layer.reads_self:
            active |= _changed(before.x[number - 1], after.x[number - 1])
        if layer.reads_context:
            active |= {dst for _, dst, _ in changed_edges}
            if any(one.reads_out_degrees for one in plan.layers):  # one context goes to all that read any
                active |= {src for src, _, _ in changed_edges}
        found.append(active & live)
    return found


def _changed(before: Mapping[Key, bytes], after: Mapping[Key, bytes]) -> set[Key]:
    return {vertex for vertex, row in after.items() if before.get(vertex, row) != row}
