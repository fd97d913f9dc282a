"""The pass of a model over a whole graph, layer by layer, on rows of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from freshet.gnn.declarations import AttentionConv, Conv
from freshet.gnn.kinds.declarations import ByKind, HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.rows import dense, grouped, join
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.attention import AttendingConv, attention_over
from freshet.gnn.torch_modules.registry import conv_of
from freshet.gnn.torch_modules.weights import under


class GraphOfKinds(NamedTuple):
    """Input of a pass: rows of each kind, learned rows of each kind by name, and edges of each relation.

    Shapes: rows (n, features of the kind), without columns where it has none
    """

    rows: dict[str, Tensor]
    learned: dict[str, dict[str, Tensor]]
    edges: list[MessageEdges]


class LayerInput(NamedTuple):
    """Input of the convs of a layer, of the relations that are there; a model without kinds has one, number 0.

    `own` has the targets by kind, `sources` those of each relation, as its edges count them.
    """

    own: Mapping[str, Tensor]
    sources: Mapping[int, Tensor]
    edges: Mapping[int, MessageEdges]


def pass_over(model: Model, weights: Module, x: Tensor, edges: MessageEdges) -> Tensor:
    """Return the embeddings of a graph by a model without kinds, whose weights a module has."""
    rows, kept = {"": x}, dict[str, Tensor]()
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Conv):
            rows = conv_layer(model, i, weights, LayerInput(rows, {0: edges.at_sources(rows[""])}, {0: edges}))
        else:
            row_layer(model, i, weights, "", rows, kept)
    return rows[""]


def pass_over_kinds(model: KindsModel, weights: Module, graph: GraphOfKinds) -> dict[str, Tensor]:
    """Return the embeddings of the kinds that a model returns; a module has its weights."""
    rows, kept = dict(graph.rows), {kind: dict(graph.learned.get(kind, {})) for kind in model.kinds}
    for i, layer in enumerate(model.layers):
        if isinstance(layer, ByKind):
            for kind in layer.layers:
                row_layer(model, i, weights, kind, rows, kept[kind])
        else:
            sources = {n: graph.edges[n].at_sources(rows[model.relations[n].source]) for n in relations_of(layer)}
            # a kind that is not there any more has no columns, and convs do not read it
            own = {kind: rows[kind] if kind in rows else graph.rows[kind][:, :0] for kind in model.kinds}
            rows = conv_layer(model, i, weights, LayerInput(own, sources, dict(enumerate(graph.edges))))
    return {kind: rows[kind] for kind in model.out}


def relations_of(layer: Conv | HeteroConv) -> list[int]:
    """Return the relations that a layer reads."""
    return [one.relation for one in layer.convs] if isinstance(layer, HeteroConv) else [0]


def row_layer(
    model: Model | KindsModel, number: int, weights: Module, kind: str, rows: dict[str, Tensor], kept: dict[str, Tensor]
) -> None:
    """Apply what a layer does to the rows of one kind, which are replaced; `kept` are those that were kept."""
    layer, where = model.layers[number], f"layers.{number}"
    places: dict[str, Any] = {where: layer}
    if isinstance(layer, ByKind):
        places = {f"{where}.layers.{kind}.{n}": one for n, one in enumerate(layer.layers.get(kind, ()))}
    for place, one in places.items():
        if isinstance(one, Keep):
            kept[one.name] = rows[kind]
        elif isinstance(one, Join):
            rows[kind] = join(one, [rows[kind] if name == CURRENT else kept[name] for name in one.of])
        else:
            rows[kind] = dense(one, under(weights, place), rows[kind])


def conv_layer(model: Model | KindsModel, number: int, weights: Module, given: LayerInput) -> dict[str, Tensor]:
    """Return the rows of the kinds that one of the layer's relations with edges in `given` reaches."""
    layer, where = model.layers[number], f"layers.{number}"
    if isinstance(layer, Conv):
        run = conv_of(layer, where)
        return {"": run(layer, under(weights, where), given.sources[0], given.own[""], given.edges[0])}
    assert isinstance(model, KindsModel) and isinstance(layer, HeteroConv)
    made, attended = dict[str, list[Tensor]](), dict[str, list[AttendingConv]]()
    for c, one in enumerate(layer.convs):
        if one.relation not in given.edges:
            continue
        target, edges = model.relations[one.relation].target, given.edges[one.relation]
        place, source = f"{where}.convs.{c}", given.sources[one.relation]
        if layer.aggr == "softmax":
            assert isinstance(one.conv, AttentionConv)  # KindsModel has checked it
            attended.setdefault(target, []).append(AttendingConv(one.conv, under(weights, place), source, edges))
            continue
        run = conv_of(one.conv, place)
        made.setdefault(target, []).append(run(one.conv, under(weights, place), source, given.own[target], edges))
    over = {kind: attention_over(parts, given.own[kind]) for kind, parts in attended.items()}
    return over | {kind: grouped(layer.aggr, parts) for kind, parts in made.items()}


def convs_by_place(model: Model | KindsModel) -> Iterator[tuple[str, Conv]]:
    """Yield the convs of a model by what their weights' names begin with."""
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Conv):
            yield f"layers.{i}", layer
        elif isinstance(layer, HeteroConv):
            yield from ((f"layers.{i}.convs.{c}", one.conv) for c, one in enumerate(layer.convs))
