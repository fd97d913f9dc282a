"""The full pass in float64, and for every value the scale at which its error is judged.

An error relative to a value itself says nothing where large terms cancel, and one relative to the largest value of the
graph hides what happens to the small ones. So the scale of a value is the magnitude of what was summed to get it: the
sum of the absolute terms, with the actual values of the step before, and what the step makes of the scales of those
values. Scales add up as independent errors do: by the root of the sum of their squares.

A value that may leave float32's range on the way has an infinite scale: infinity or NaN there is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from freshet.gnn.declarations import (
    AttentionConv,
    BatchNorm,
    CGConv,
    Conv,
    DegreeScaledConv,
    EdgeConv,
    FiLMConv,
    GENConv,
    GINConv,
    GINEConv,
    GMMConv,
    Identity,
    Laplacian,
    Layer,
    Linear,
    MessageConv,
    NNConv,
    OwnLayer,
    PinSAGEConv,
    PNAConv,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
)
from freshet.gnn.link_head import LEFT, RIGHT, LinkHead
from freshet.gnn.model import Model, WeightedModel
from freshet.gnn.oracles.attention import attention_conv
from freshet.gnn.oracles.attributed import attributed_conv
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.factors import (
    degree_factors,
    gcn_factors,
    importances,
    laplacian_factors,
    tower_rows,
    weights_of,
)
from freshet.gnn.oracles.messages import arithmetic, evaluator, message_conv, own_layer
from freshet.gnn.oracles.scaled import (
    Scaled,
    activated,
    added,
    aggregated,
    by_pieces,
    by_rows,
    exact,
    gathered,
    known,
    linear,
    multiplied,
    normalized,
    past_range,
    plus,
    rows_at,
    side_by_side,
    stacked,
    wide,
    with_bias,
)
from freshet.gnn.rows import full_pass, scales
from freshet.gnn.rows.jumps import Join, Keep
from freshet.schema import Graph

Array = np.ndarray
Weights = dict[str, Array]

_TOLERANCE_MIN = 1e-7


def forward(
    model: Model,
    graph: Graph,
    *,
    tolerance: float = 1e-4,
    report: Callable[[str], None] = lambda where: None,
    after: Callable[[Layer, Scaled], None] = lambda layer, at: None,
) -> Scaled:
    """Return the embeddings of a graph, and the scale of each of their values.

    `tolerance` is the allowed error: the scale of an activation is the change of its output for such an error of its
    input. `report` gets the progress, `after` the rows after each layer, which are valid until it returns.

    Invariant: inputs within the tolerance of their scales lead to outputs within it, save for the rounding of sums.
    """
    x, src, dst, values = graph
    edges = SortedEdges(len(x), np.asarray(src, np.int32), np.asarray(dst, np.int32), values)
    at, step = exact(x), step_of(tolerance)
    kept: dict[str, Scaled] = {}
    with np.errstate(all="ignore"):
        for i, layer in enumerate(model.layers):
            where = f"layer {i + 1} of {len(model.layers)}"
            report(where)
            edges.passed = partial(report_share, report, where, edges.vertices)
            weights = {name: w.astype(np.float64) for name, w in model.weights_of(f"layers.{i}").items()}
            if isinstance(layer, Conv):
                at = conv(layer, weights, at, at, edges, step)
            elif isinstance(layer, Keep):
                kept[layer.name] = at
            elif isinstance(layer, Join):
                at = join_by_rows(layer, layer.picked(at, kept), step)
            else:
                needed = any(at.rows is rows for rows in (x, *(one.rows for one in kept.values())))
                at = dense_by_rows(layer, weights, at, step, None if needed else at)
            after(layer, at)
    return wide(at)


def logits(model: Model, embedding: Scaled, *, tolerance: float = 1e-4) -> Scaled:
    """Return what the model's head makes of embeddings, and the scale of each value."""
    return head_logits(model, model.head, "head", embedding, tolerance=tolerance)


def head_logits(
    model: WeightedModel, head: Sequence[Layer], prefix: str, embedding: Scaled, *, tolerance: float
) -> Scaled:
    """Return what a head makes of embeddings, and the scale of each value; `prefix` is that of its weights' names."""
    weights: Weights = {}
    for i in range(len(head)):
        of_layer = model.weights_of(f"{prefix}.{i}").items()
        weights |= {f"{i}.{name}": values.astype(np.float64) for name, values in of_layer}
    with np.errstate(all="ignore"):
        return _chain(head, weights, "", embedding, step_of(tolerance))


def pair_scores(
    model: WeightedModel, head: LinkHead, where: str, left: Scaled, right: Scaled, *, tolerance: float
) -> Scaled:
    """Return the score of each pair of rows, (n, 1), and its scale; `where` begins the names of the head's weights."""
    weights, step = {name: of.astype(np.float64) for name, of in model.weights_of(where).items()}, step_of(tolerance)
    with np.errstate(all="ignore"):
        run = evaluator(head.program, weights, "", step, lambda layer, of, at: _dense(layer, of, at, step))
        (scores,) = run.of({LEFT: left, RIGHT: right}, len(left.rows))
    return scores


def step_of(tolerance: float) -> float:
    """Return the error of an input for which the change of an output is looked at."""
    return max(tolerance, _TOLERANCE_MIN)


def report_share(report: Callable[[str], None], where: str, vertices: int, passed: int) -> None:
    """Report the progress of a layer."""
    report(f"{where}, {passed / max(1, vertices):.0%}")


def conv(layer: Conv, weights: Weights, x: Scaled, own: Scaled, edges: SortedEdges, step: float) -> Scaled:
    """Return the rows after a conv: `x` are the rows of sources, `own` those of targets, in one kind the same.

    The sources of `edges` are counted in `x`, its vertices are those of `own`.
    """
    if isinstance(layer, RootedConv):
        return _graph_conv(layer, weights, x, own, edges, step)
    if isinstance(layer, SAGEConv):
        return _sage_conv(layer, weights, x, own, edges, step)
    same = own is x
    x = wide(x)
    own = x if same else wide(own)
    if isinstance(layer, PinSAGEConv):
        return _pin_sage_conv(layer, weights, x, edges, step)
    if isinstance(layer, DegreeScaledConv):
        return _gcn_conv(layer, weights, x, edges, step)
    if isinstance(layer, Laplacian):
        return gathered(x, *laplacian_factors(layer, edges))
    if isinstance(layer, GINConv):
        return _gin_conv(layer, weights, x, own, edges, step)
    if isinstance(layer, GINEConv):
        return _gine_conv(layer, weights, x, own, edges, step)
    if isinstance(layer, PNAConv):
        return _pna_conv(layer, weights, x, edges, step)
    if isinstance(layer, EdgeConv):
        return _edge_conv(layer, weights, x, own, edges, step)
    if isinstance(layer, FiLMConv):
        return _film_conv(layer, weights, x, edges, step)
    if isinstance(layer, ResGatedGraphConv):
        return _gated_conv(layer, weights, x, edges, step)
    if isinstance(layer, CGConv | GENConv | GMMConv | NNConv):
        nn = getattr(layer, "nn", [])
        return attributed_conv(layer, weights, x, edges, step, lambda name, at: _chain(nn, weights, name, at, step))
    if isinstance(layer, AttentionConv):
        return attention_conv(layer, weights, x, own, edges, step)
    if isinstance(layer, MessageConv):
        return message_conv(layer, weights, x, own, edges, step, lambda one, of_it, at: _dense(one, of_it, at, step))
    if isinstance(layer, OwnLayer):
        return own_layer(layer, weights, x, own, edges, step)
    msg = f"the oracle knows no {type(layer).__name__}"
    raise TypeError(msg)


def _graph_conv(
    layer: RootedConv, weights: Weights, x: Scaled, target: Scaled, edges: SortedEdges, step: float
) -> Scaled:
    def made(mine: Scaled, part: SortedEdges) -> Scaled:
        sums = aggregated(layer.aggr, x, part, weights_of(part) if layer.edge_weights else None, step)
        own = linear(mine, weights["lin_root.weight"])
        return plus(linear(sums, weights["lin_rel.weight"], weights.get("lin_rel.bias")), own)

    return by_pieces(target, edges, made)


def _sage_conv(layer: SAGEConv, weights: Weights, x: Scaled, target: Scaled, edges: SortedEdges, step: float) -> Scaled:
    source = x
    if layer.project:
        source = activated(
            linear(wide(x), weights["lin.weight"], weights["lin.bias"]), lambda rows: np.maximum(rows, 0), step
        )
    kinds = (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr

    def made(mine: Scaled, part: SortedEdges) -> Scaled:
        beside = side_by_side([aggregated(kind, source, part, None, step) for kind in kinds])
        at = linear(beside, weights["lin_l.weight"], weights.get("lin_l.bias"))
        if layer.root_weight:
            at = plus(at, linear(mine, weights["lin_r.weight"]))
        return normalized(at) if layer.normalize else at

    return by_pieces(target, edges, made)


def _gin_conv(layer: GINConv, weights: Weights, x: Scaled, target: Scaled, edges: SortedEdges, step: float) -> Scaled:
    def made(mine: Scaled, part: SortedEdges) -> Scaled:
        at = plus(multiplied(mine, np.array(1 + layer.eps)), aggregated(layer.aggr, x, part, None, step))
        return _chain(layer.nn, weights, "nn.", at, step)

    return by_pieces(target, edges, made)


def _gine_conv(layer: GINEConv, weights: Weights, x: Scaled, target: Scaled, edges: SortedEdges, step: float) -> Scaled:
    found = []
    for vertices, _, part in edges.pieces():
        at = exact(part.values.full_attr(layer.edge_channels).astype(np.float64))
        at = linear(at, weights["lin.weight"], weights["lin.bias"]) if layer.edge_linear else at
        opened = added(rows_at(x, part.src), at)
        messages = activated(opened, lambda rows: np.maximum(rows, 0), step)
        sums = gathered(messages, part.of_messages(), None)
        mine = multiplied(rows_at(target, vertices), np.array(1 + layer.eps))
        found.append(_chain(layer.nn, weights, "nn.", plus(mine, sums), step))
    return stacked(found)


def _pin_sage_conv(layer: PinSAGEConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float) -> Scaled:
    source = linear(x, weights["lin_neighbour.weight"], weights["lin_neighbour.bias"])
    factor, total = importances(layer, edges)
    sums = gathered(activated(source, lambda rows: np.maximum(rows, 0), step), edges, factor)
    mean = Scaled(sums.rows / total[:, None], sums.scale / np.abs(total)[:, None])
    return linear(side_by_side([x, mean]), weights["lin.weight"], weights["lin.bias"])


def _pna_conv(layer: PNAConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float) -> Scaled:
    made, factors = [], degree_factors(layer, weights, edges)
    towers = (tower_rows(layer, values) for values in x)
    for t, mine in enumerate(map(Scaled, *towers)):
        halves = np.split(weights[f"pre.{t}.weight"], 3 if layer.edge_channels else 2, axis=1)
        target, source = linear(mine, halves[0], weights[f"pre.{t}.bias"]), linear(mine, halves[1])
        found = []
        for vertices, _, part in edges.pieces():
            ends, by_edge = (
                (rows_at(rows_at(target, vertices), part.dst), rows_at(source, part.src)),
                part.of_messages(),
            )
            opened = plus(*ends)
            if layer.edge_channels:
                attr = exact(part.values.full_attr(layer.edge_channels).astype(np.float64))
                coded = linear(attr, weights["edge_encoder.weight"], weights["edge_encoder.bias"])
                opened = plus(opened, linear(coded, halves[2]))
            messages = _chain(layer.pre, weights, f"pre.{t}.", opened, step)
            sums = side_by_side([aggregated(kind, messages, by_edge, None, step) for kind in layer.aggregators])
            scaled = [multiplied(sums, factor[vertices]) for factor in factors]
            at = side_by_side([rows_at(mine, vertices), *scaled])
            at = linear(at, weights[f"post.{t}.first.weight"], weights[f"post.{t}.first.bias"])
            found.append(_chain(layer.post, weights, f"post.{t}.", at, step))
        made.append(stacked(found))
    return linear(side_by_side(made), weights["lin.weight"], weights["lin.bias"])


def _edge_conv(layer: EdgeConv, weights: Weights, x: Scaled, own: Scaled, edges: SortedEdges, step: float) -> Scaled:
    """The difference of both ends may be taken of their terms, which are as large as the ends."""
    found, kinds = [], (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
    for vertices, _, part in edges.pieces():
        target, source = rows_at(rows_at(own, vertices), part.dst), rows_at(x, part.src)
        apart = plus(source, Scaled(-target.rows, target.scale))
        apart = Scaled(apart.rows, apart.scale + np.abs(source.rows) + np.abs(target.rows))
        messages = _chain(layer.nn, weights, "nn.", side_by_side([target, apart]), step)
        found.append(side_by_side([aggregated(kind, messages, part.of_messages(), None, step) for kind in kinds]))
    return stacked(found)


def _film_conv(layer: FiLMConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float) -> Scaled:
    ends = [first * layer.out_channels for first in range(4)]
    value, beta, gamma = (Scaled(*(of[:, a:b] for of in x)) for a, b in pairwise(ends))
    product, added, found = Join(operation="product", of=("a", "b")), Join(operation="sum", of=("a", "b")), []
    for vertices, _, part in edges.pieces():
        shift, scale = (rows_at(rows_at(of, vertices), part.dst) for of in (beta, gamma))
        messages = _join(added, [_join(product, [rows_at(value, part.src), scale], step), shift], step)
        messages = _chain(layer.act, weights, "act.", messages, step)
        found.append(aggregated(layer.aggr, messages, part.of_messages(), None, step))
    return stacked(found)


def _gated_conv(layer: ResGatedGraphConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float) -> Scaled:
    names = ("lin_key", "lin_query", "lin_value")
    read, of_edges = layer.in_channels, [weights[f"{name}.weight"][:, layer.in_channels :] for name in names]
    key, query, value = (linear(x, weights[f"{name}.weight"][:, :read], weights[f"{name}.bias"]) for name in names)
    found = []
    for vertices, _, part in edges.pieces():
        opened = plus(rows_at(rows_at(key, vertices), part.dst), rows_at(query, part.src))
        values = rows_at(value, part.src)
        if layer.edge_channels:
            attr = exact(part.values.full_attr(layer.edge_channels).astype(np.float64))
            for weight in of_edges[:2]:
                opened = plus(opened, linear(attr, weight))
            values = plus(values, linear(attr, of_edges[2]))
        gates = activated(opened, lambda rows: 1 / (1 + np.exp(-rows)), step)
        rows, off = gates.rows * values.rows, np.hypot(gates.rows * values.scale, gates.scale * values.rows)
        found.append(gathered(Scaled(rows, known(np.abs(rows) + off)), part.of_messages(), None))
    out = stacked(found)
    if layer.root_weight:
        out = plus(out, linear(x, weights["lin_skip.weight"]))
    return with_bias(out, weights["bias"]) if layer.bias else out


def _gcn_conv(layer: DegreeScaledConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float) -> Scaled:
    edges, factor = gcn_factors(layer, edges)
    kind: str = layer.aggr
    if kind == "weighted_mean":
        total = np.bincount(edges.dst, factor, minlength=edges.vertices)
        kind, factor = "sum", factor / np.where(total == 0, np.inf, total)[edges.dst]
    at = aggregated(kind, linear(x, weights["lin.weight"]) if "lin.weight" in weights else x, edges, factor, step)
    return with_bias(at, weights["bias"]) if "bias" in weights else at


def _chain(layers: Sequence[Layer], weights: Weights, prefix: str, x: Scaled, step: float) -> Scaled:
    for i, layer in enumerate(layers):
        start = f"{prefix}{i}."
        x = _dense(layer, {name[len(start) :]: w for name, w in weights.items() if name.startswith(start)}, x, step)
    return x


def _dense(layer: Layer, weights: Weights, x: Scaled, step: float) -> Scaled:
    if isinstance(layer, Linear):
        return linear(x, weights["weight"], weights.get("bias"))
    if isinstance(layer, BatchNorm):
        return with_bias(multiplied(x, weights["scale"]), weights["shift"])
    if isinstance(layer, Identity):
        return x
    behind = scales.apply(layer, weights, *x, step)
    at = activated(x, lambda rows: full_pass.apply(layer, weights, rows), step) if behind is None else Scaled(*behind)
    return Scaled(at.rows, known(at.scale + scales.cancelled(layer, x.rows, step)))


def dense_by_rows(layer: Layer, weights: Weights, x: Scaled, step: float, into: Scaled | None) -> Scaled:
    """Return the rows after a layer of rows; they may replace `into`."""
    return by_rows(len(x.rows), lambda run: _dense(layer, weights, rows_at(x, run), step), into)


def join_by_rows(layer: Join, parts: list[Scaled], step: float) -> Scaled:
    """Return the rows that a join makes of these."""
    return by_rows(len(parts[0].rows), lambda run: _join(layer, [rows_at(one, run) for one in parts], step))


def _join(layer: Join, parts: list[Scaled], step: float) -> Scaled:
    if layer.operation == "cat":
        return side_by_side(parts)
    at = parts[0]
    for other in parts[1:]:
        if layer.operation == "times_length":  # a length is off by no more than the length of what its row is off by
            other = Scaled(*(np.linalg.norm(of, axis=1, keepdims=True) for of in other))
        if layer.operation == "quotient":
            at = arithmetic("div", at, other, step)
        elif layer.operation == "sum":
            added, size = plus(at, other), np.abs(at.rows) + np.abs(other.rows)
            at = Scaled(added.rows, known(past_range(size) + added.scale))
        elif layer.operation in ("product", "times_length"):
            through = np.abs(at.rows) * other.scale + np.abs(other.rows) * at.scale + step * at.scale * other.scale
            rows = at.rows * other.rows
            at = Scaled(rows, known(past_range(np.abs(rows)) + through))
        else:  # an extremum moves by no more than the value that moves most
            of = np.maximum if layer.operation == "max" else np.minimum
            at = Scaled(of(at.rows, other.rows), np.maximum(at.scale, other.scale))
    return at
