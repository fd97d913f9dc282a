"""HypergraphConv, whose hyperedges are vertices of a kind of their own: means along a relation, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from torch_geometric.nn import HypergraphConv

from freshet.gnn.declarations import SAGEConv
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.convs.hyper_attention import (
    HYPEREDGE,
    VERTEX,
    DividedBy,
    HeadsAndBias,
    LargestScore,
    ScoreSum,
    SharedBySources,
    SharedByTargets,
    WholeScore,
)
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import ConvCall, Step, Weights, array_of, check_conv


def is_hypergraph(module: Any) -> bool:
    """Return whether a module is PyG's HypergraphConv."""
    return type(module) is HypergraphConv


class HyperedgeRows(NamedTuple):
    """The rows that a HypergraphConv reads, by name, and its relations: to hyperedges, and back.

    rows: of vertices; attributes and weights: of hyperedges, None where it is given none.
    """

    rows: str
    attributes: str | None
    weights: str | None
    there: int
    back: int


def hypergraph_conv(
    ops: KindsOperations,
    place: str,
    step: Step,
    rows: str,
    relation: int,
    kinds: Metadata,
    given: Mapping[str, str],
) -> str:
    """Note the means of a HypergraphConv; returns the name of its rows.

    `relation`: from vertices to the hyperedges that they are in. `given`: the rows of its further parameters, by name.

    Raises: ExportError for another aggregator, and without a mirror of the relation, or attributes for attention.
    """
    conv: Any = step.op
    check_conv(step)
    if conv.aggr != "add":
        refuse(f"{place}: HypergraphConv with aggr={conv.aggr!r} is not supported; expected 'add'")
    source, target = kinds.ends(relation)
    back = next((j for j, one in enumerate(kinds.mirrors) if one == relation), kinds.mirrors[relation])
    if source == target or back is None:
        msg = f"{place}: HypergraphConv goes along {kinds.named(relation)} and back: expected a relation from "
        refuse(msg + "vertices to hyperedges, which are of two kinds, and its mirror, as rev_in of in")
    pairs = HyperedgeRows(rows, given.get("hyperedge_attr"), given.get("hyperedge_weight"), relation, back)
    of = _Opened(ops, place, step, pairs)
    if conv.use_attention and pairs.attributes is None:
        refuse(f"{place}: HypergraphConv with use_attention=True is called without hyperedge_attr, which it scores by")
    return of.attended() if conv.use_attention else of.plain()


class _Opened:
    """A HypergraphConv that is being opened."""

    def __init__(self, ops: KindsOperations, place: str, step: Step, pairs: HyperedgeRows) -> None:
        self._ops, self._place, self._step, self._pairs = ops, place, step, pairs
        self._aggr = "mean" if pairs.weights is None else "sum"  # of the way back

    def plain(self) -> str:
        """Note means along the relation and back."""
        step, conv = self._step, cast("Any", self._step.op)
        weight, own = array_of(step, conv.lin.weight), None if conv.bias is None else array_of(step, conv.bias)
        identity = np.eye(len(weight), dtype=np.float32)
        edges = self._sums("hyperedges", self._pairs.there, self._pairs.rows, _sums(weight, None, "mean"))
        if self._pairs.weights is None:
            return self._sums("", self._pairs.back, edges, _sums(identity, own, "mean"))
        return self._finished(self._sums("vertices", self._pairs.back, edges, _sums(identity, None, "sum")))

    def attended(self) -> str:
        """Note scores of pairs, and weighed means along the relation and back."""
        conv, pairs = cast("Any", self._step.op), self._pairs
        assert pairs.attributes is not None  # by the caller
        ends = (pairs.rows, pairs.attributes)
        if conv.attention_mode == "node":
            whole = self._whole(VERTEX, pairs.there, *ends)
            scored = self._beside("scored", [pairs.attributes, whole])
            edges = self._conv("hyperedges", pairs.there, pairs.rows, scored, SharedBySources(conv, VERTEX, "mean"))
            sent = self._beside("sent", [pairs.attributes, edges, whole])
            last: Any = SharedByTargets(conv, HYPEREDGE, self._aggr)
            return self._finished(self._conv("vertices", pairs.back, sent, pairs.rows, last))
        scored = self._beside("scored", [pairs.rows, self._whole(HYPEREDGE, pairs.back, *ends[::-1])])
        edges = self._conv("hyperedges", pairs.there, scored, ends[1], SharedByTargets(conv, VERTEX, "mean"))
        sent, last = self._beside("sent", [pairs.attributes, edges]), SharedBySources(conv, HYPEREDGE, self._aggr)
        return self._finished(self._conv("vertices", pairs.back, sent, scored, last))

    def _whole(self, source: int, relation: int, rows: str, targets: str) -> str:
        """Note the logarithms of sums of exponentials of all scores of each target."""
        conv = cast("Any", self._step.op)
        most = self._conv("most", relation, rows, targets, LargestScore(conv, source, "max"))
        beside = self._beside("targets", [targets, most])
        total = self._conv("total", relation, rows, beside, ScoreSum(conv, source, "sum"))
        return self._ops.function(f"{self._step.name}.whole", WholeScore(), [most, total])

    def _finished(self, rows: str) -> str:
        """Note quotients by the weights of hyperedges, where there are any, and what is made of the heads."""
        if self._pairs.weights is not None:
            identity = _sums(np.eye(1, dtype=np.float32), None, "sum")
            weight = self._sums("weights", self._pairs.back, self._pairs.weights, identity)
            rows = self._ops.function(f"{self._step.name}.divided", DividedBy(), [rows, weight])
        conv = cast("Any", self._step.op)
        if conv.bias is None and conv.concat:
            return rows
        return self._ops.function(f"{self._step.name}.heads", HeadsAndBias(conv), [rows])

    def _beside(self, label: str, rows: list[str]) -> str:
        return self._ops.join(f"{self._step.name}.{label}", "cat", rows)

    def _conv(self, label: str, relation: int, rows: str, targets: str, conv: Any) -> str:
        given = ConvCall("x", "edge_index", pair=True, two_kinds=True)
        step = Step(f"{self._step.name}.{label}", conv, given=given)
        return self._ops.conv(self._place, OnRelation(relation, rows, targets, step))

    def _sums(self, label: str, relation: int, rows: str, layer: tuple[SAGEConv, Weights]) -> str:
        name = f"{self._step.name}.{label}" if label else self._step.name
        step = self._step._replace(name=name, op=layer[0], weights=layer[1])
        return self._ops.conv(self._place, OnRelation(relation, rows, None, step))


def _sums(weight: np.ndarray, bias: np.ndarray | None, aggr: Any) -> tuple[SAGEConv, Weights]:
    out, into = weight.shape
    weights = {"lin_l.weight": weight} | ({} if bias is None else {"lin_l.bias": bias})
    layer = SAGEConv(in_channels=into, out_channels=out, aggr=aggr, root_weight=False, bias=bias is not None)
    return layer, weights
