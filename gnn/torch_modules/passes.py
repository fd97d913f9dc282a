"""The pass of a model over a whole graph, layer by layer, on rows of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor
from torch.nn import Module

from freshet.gnn.declarations import AttentionConv, Conv
from freshet.gnn.kinds.declarations import ByKind, HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.rows import dense, grouped, join
from freshet.gnn.rows.jumps import Join, Keep
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


def pass_over(model: Model, weights: Module, x: Tensor, edges: MessageEdges) -> Tensor:
    """Return the embeddings of a graph by a model without kinds, whose weights a module has."""
    kept = dict[str, Tensor]()
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Conv):
            x = conv_of(layer, f"layers.{i}")(layer, under(weights, f"layers.{i}"), edges.at_sources(x), x, edges)
        elif isinstance(layer, Keep):
            kept[layer.name] = x
        elif isinstance(layer, Join):
            x = join(layer, layer.picked(x, kept))
        else:
            x = dense(layer, under(weights, f"layers.{i}"), x)
    return x


def pass_over_kinds(model: KindsModel, weights: Module, graph: GraphOfKinds) -> dict[str, Tensor]:
    """Return the embeddings of the kinds that a model returns; a module has its weights."""
    own_rows, kept = dict(graph.rows), {kind: dict(graph.learned.get(kind, {})) for kind in model.kinds}
    for i, layer in enumerate(model.layers):
        if isinstance(layer, ByKind):
            _by_kind(layer, f"layers.{i}", weights, own_rows, kept)
        else:
            own_rows = _hetero_conv(model, layer, f"layers.{i}", weights, graph, own_rows)
    return {kind: own_rows[kind] for kind in model.out}


def _by_kind(
    layer: ByKind, where: str, weights: Module, rows: dict[str, Tensor], kept: dict[str, dict[str, Tensor]]
) -> None:
    """Apply the layers of each kind to its rows, which are replaced."""
    for kind, layers in layer.layers.items():
        for n, one in enumerate(layers):
            if isinstance(one, Keep):
                kept[kind][one.name] = rows[kind]
            elif isinstance(one, Join):
                rows[kind] = join(one, [rows[kind] if name == "." else kept[kind][name] for name in one.of])
            else:
                rows[kind] = dense(one, under(weights, f"{where}.layers.{kind}.{n}"), rows[kind])


def _hetero_conv(
    model: KindsModel, layer: HeteroConv, where: str, weights: Module, graph: GraphOfKinds, rows: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return the rows of the kinds that one of the relations reaches."""

    def own(kind: str) -> Tensor:  # a kind that is not there any more has no columns, and convs do not read it
        return rows[kind] if kind in rows else graph.rows[kind][:, :0]

    made, attended = dict[str, list[Tensor]](), dict[str, list[AttendingConv]]()
    for c, one in enumerate(layer.convs):
        relation, edges = model.relations[one.relation], graph.edges[one.relation]
        place, source = f"{where}.convs.{c}", edges.at_sources(rows[relation.source])
        if layer.aggr == "softmax":
            assert isinstance(one.conv, AttentionConv)  # KindsModel has checked it
            part = AttendingConv(one.conv, under(weights, place), source, edges)
            attended.setdefault(relation.target, []).append(part)
            continue
        run = conv_of(one.conv, place)
        found = run(one.conv, under(weights, place), source, own(relation.target), edges)
        made.setdefault(relation.target, []).append(found)
    over = {kind: attention_over(parts, own(kind)) for kind, parts in attended.items()}
    return over | {kind: grouped(layer.aggr, parts) for kind, parts in made.items()}


def convs_by_place(model: Model | KindsModel) -> Iterator[tuple[str, Conv]]:
    """Yield the convs of a model by what their weights' names begin with."""
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Conv):
            yield f"layers.{i}", layer
        elif isinstance(layer, HeteroConv):
            yield from ((f"layers.{i}.convs.{c}", one.conv) for c, one in enumerate(layer.convs))
