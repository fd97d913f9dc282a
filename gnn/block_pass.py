"""One layer for some vertices, from the rows of the layer before of these and of the sources of their in-edges.

A whole graph is a block, too. The functions are those that a job uses; what they leave out is anything incremental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, RelationPlan
from freshet.gnn.kind_layers.typed_sums import TypedSums
from freshet.gnn.layers.base import Context, LayerPlan, OnlyKind
from freshet.gnn.numerics.dense import Rows

if TYPE_CHECKING:
    from freshet.kinds_graph import RelationEdges

DegreesOf = Callable[[int, int | None], Context]
"""Degrees of all vertices of a kind in the block, by the kind's number: in a relation, or over all edges (None)."""


class VertexBlock(NamedTuple):
    """Vertices by kind, those that the layer is computed for first, and the in-edges of these by relation.

    Without kinds there is one kind, and one relation, whose number is None. Shapes: x, for each kind (n, width of the
    layer before) float32; targets, how many of each kind come first; edges count vertices within their kinds.
    """

    x: Sequence[Rows]
    targets: Sequence[int]
    edges: Mapping[int | None, RelationEdges]


def inner_widths(layers: Sequence[LayerPlan | KindsLayer]) -> list[int]:
    """Return, by kind, the widths of the rows of all layers but the last one together."""
    by_layer = [[0 if one is None else one.out_width for one in layer.kinds] for layer in layers[:-1]]
    return [sum(widths) for widths in zip(*by_layer, strict=True)] or [0] * len(layers[0].kinds)


def rows_of_block(layer: LayerPlan | KindsLayer, block: VertexBlock, degrees_of: DegreesOf) -> list[Rows]:
    """Return the layer's rows of the targets by kind, behind each what is carried with it; (n, 0) of a kind with none.

    Shapes: results (targets, width of the layer for the kind) float32
    """
    sent = [_sent(one, block.x[kind], kind, degrees_of) for kind, one in enumerate(layer.kinds)]
    return [_updated(layer, one, sent, kind, block, degrees_of) for kind, one in enumerate(layer.kinds)]


def _sent(plan: KindPlan | OnlyKind | None, x: Rows, kind: int, degrees_of: DegreesOf) -> Rows:
    if plan is None or not plan.sends:
        return np.empty((len(x), 0), np.float32)
    return plan.send(x, {number: degrees_of(kind, number) for number in plan.sent_degrees})


def _updated(
    layer: LayerPlan | KindsLayer, plan: KindPlan | OnlyKind | None, sent: Sequence[Rows], kind: int,
    block: VertexBlock, degrees_of: DegreesOf,
) -> Rows:  # fmt: skip
    count = block.targets[kind]
    if plan is None or not plan.updates or not count:
        return np.empty((count, 0 if plan is None else plan.out_width), np.float32)
    rows = sent[kind][:count]
    own = rows[:, : plan.message_width] if plan.self_is_message else rows[:, plan.message_width :]
    into = [layer.relations[place] for place in plan.relations]
    aggregates = [aggregate(one, sent, block) for one in into]
    counts: list[Any] = [
        degrees_of(kind, one.number).at(slice(0, count))
        if one.number is None or one.number in plan.read_degrees
        else np.bincount(block.edges[one.number].dst, minlength=count).astype(np.int32)
        for one in into
    ]
    return plan.update(aggregates, np.ascontiguousarray(own), counts)


def aggregate(plan: LayerPlan | RelationPlan, sent: Sequence[Rows], block: VertexBlock) -> Rows:
    """Return what update reads of every target's messages, (targets, state_width) float32."""
    if not plan.has_pairs:
        return _synopses(plan, plan.number, sent, block)
    assert isinstance(plan, RelationPlan) and isinstance(plan.conv, TypedSums)
    targets, states = block.targets[plan.target], [_synopses(plan, one, sent, block) for one in plan.numbers]
    counts = [np.bincount(block.edges[number].dst, minlength=targets) for number in plan.numbers]
    relations, places = np.nonzero(counts)  # of the pairs that have edges
    found = np.stack(states)[relations, places], np.stack(counts)[relations, places].astype(np.int32)
    return plan.conv.folded(targets, places, relations, *found)


def _synopses(plan: LayerPlan | RelationPlan, number: int | None, sent: Sequence[Rows], block: VertexBlock) -> Rows:
    """Return the synopsis of every target's messages of one relation, (targets, synopsis_width) float32."""
    src, dst, values = plan.edge.kept(*block.edges[number])
    sources = sent[plan.source][:, plan.source_columns]
    columns = plan.source_columns if plan.target_width is None else plan.target_columns
    targets = sent[plan.target][: block.targets[plan.target], columns]
    return plan.synopsis.whole(plan.edge.messages(sources[src], values), dst, targets)
