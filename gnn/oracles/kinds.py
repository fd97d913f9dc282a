"""The full pass of a model with kinds in float64, with the scales at which errors are judged, as own_scale without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from freshet.gnn.declarations import AttentionConv
from freshet.gnn.kinds.declarations import ByKind, Grouping, HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.kinds.names import head_name
from freshet.gnn.oracles.attention import Attended, attention_over
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.own_scale import conv, dense_by_rows, head_logits, join_by_rows, report_share, step_of
from freshet.gnn.oracles.scaled import Scaled, exact, multiplied, wide
from freshet.gnn.rows.jumps import Join, Keep, Operation
from freshet.kinds_graph import KindsGraph

Rows = dict[str, Scaled]
"""Of each kind that is there."""

_JOINED: dict[Grouping, Operation] = {"sum": "sum", "mean": "sum", "min": "min", "max": "max", "mul": "product"}


def forward(
    model: KindsModel, graph: KindsGraph, *, tolerance: float = 1e-4, report: Callable[[str], None] = lambda where: None
) -> Rows:
    """Return the embeddings of the kinds that the model returns, and the scale of each of their values.

    `tolerance` and `report` are those of own_scale.forward, and so is what the scales promise.
    """
    pass_ = _FullPass(model, graph, step_of(tolerance), report)
    with np.errstate(all="ignore"):
        for i, layer in enumerate(model.layers):
            where = f"layer {i + 1} of {len(model.layers)}"
            report(where)
            if isinstance(layer, ByKind):
                pass_.by_kind(layer, i)
            else:
                pass_.hetero_conv(layer, i, where)
    return {kind: wide(pass_.rows[kind]) for kind in model.out}


def logits(model: KindsModel, rows: Rows, *, tolerance: float = 1e-4) -> list[Scaled]:
    """Return what heads make of embeddings, and the scale of each value, for the returned kinds that have a head."""
    return [
        head_logits(model, model.heads[kind], head_name(kind), rows[kind], tolerance=tolerance)
        for kind in model.out
        if kind in model.heads
    ]


class _FullPass:
    """The rows of all kinds, from layer to layer."""

    def __init__(self, model: KindsModel, graph: KindsGraph, step: float, report: Callable[[str], None]) -> None:
        self._model, self._step, self._report = model, step, report
        self._sizes = {kind: len(x) for kind, x in zip(model.kinds, graph.x, strict=True)}
        self.rows, self._kept = dict[str, Scaled](), dict[str, dict[str, Scaled]]()
        for (kind, width), x in zip(model.kinds.items(), graph.x, strict=True):
            self.rows[kind], self._kept[kind], end = exact(x[:, :width]), {}, width
            for name, more in model.learned[kind].rows.items() if kind in model.learned else ():
                self._kept[kind][name], end = exact(x[:, end : end + more]), end + more
        self._edges = [
            SortedEdges(
                self._sizes[relation.target], np.asarray(one.src, np.int32), np.asarray(one.dst, np.int32), one.values
            )
            for relation, one in zip(model.relations, graph.edges, strict=True)
        ]

    def by_kind(self, layer: ByKind, index: int) -> None:
        for kind, layers in layer.layers.items():
            kept = self._kept[kind]
            for n, one in enumerate(layers):
                if isinstance(one, Keep):
                    kept[one.name] = self.rows[kind]
                elif isinstance(one, Join):
                    parts = [self.rows[kind] if name == "." else kept[name] for name in one.of]
                    self.rows[kind] = join_by_rows(one, parts, self._step)
                else:
                    weights = self._weights(f"layers.{index}.layers.{kind}.{n}")
                    self.rows[kind] = dense_by_rows(one, weights, self.rows[kind], self._step, None)

    def hetero_conv(self, layer: HeteroConv, index: int, where: str) -> None:
        made: dict[str, list[Scaled]] = {}
        attended: dict[str, list[Attended]] = {}
        for c, one in enumerate(layer.convs):
            relation, edges = self._model.relations[one.relation], self._edges[one.relation]
            here = f"{where}, {relation}"
            self._report(here)
            edges.passed = partial(report_share, self._report, here, edges.vertices)
            weights = self._weights(f"layers.{index}.convs.{c}")
            source = self.rows[relation.source]
            target = source if relation.source == relation.target else self._own(relation.target)
            if layer.aggr == "softmax":
                assert isinstance(one.conv, AttentionConv)  # KindsModel has checked it
                attended.setdefault(relation.target, []).append(Attended(one.conv, weights, wide(source), edges))
                continue
            made.setdefault(relation.target, []).append(conv(one.conv, weights, source, target, edges, self._step))
        over = {kind: attention_over(parts, wide(self._own(kind)), self._step) for kind, parts in attended.items()}
        self.rows = over | {kind: self._grouped(layer.aggr, parts) for kind, parts in made.items()}

    def _own(self, kind: str) -> Scaled:
        """The rows of targets; none where the kind is not there, since convs do not read it then."""
        return self.rows[kind] if kind in self.rows else exact(np.empty((self._sizes[kind], 0)))

    def _grouped(self, aggr: Grouping, parts: list[Scaled]) -> Scaled:
        names = tuple(map(str, range(len(parts))))
        at = join_by_rows(Join(operation="cat" if aggr == "cat" else _JOINED[aggr], of=names), parts, self._step)
        return multiplied(at, np.array(1 / len(parts))) if aggr == "mean" else at

    def _weights(self, prefix: str) -> dict[str, np.ndarray]:
        return {name: w.astype(np.float64) for name, w in self._model.weights_of(prefix).items()}
