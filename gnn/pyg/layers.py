"""Turns one torch or PyG module into a layer declaration and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import (
    EdgeConv,
    FiLMConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    Identity,
    Layer,
    Linear,
    PNAConv,
    PRelu,
    Propagation,
    SAGEConv,
)
from freshet.gnn.pyg import by_edge
from freshet.gnn.pyg.aggregations import AGGREGATORS
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.aggregators import aggr_of, kinds_of
from freshet.gnn.pyg.forward.fx import dense_steps
from freshet.gnn.pyg.functions import MODULES, callable_step, columns_layer
from freshet.gnn.pyg.norms import NORMS
from freshet.gnn.pyg.own.conv import convert_written, opened_own
from freshet.gnn.pyg.own.rows import opened_function
from freshet.gnn.pyg.refusals import HOW_WIDE, why_not_module
from freshet.gnn.pyg.steps import (
    ChosenColumns,
    Converted,
    Hop,
    RowsFunction,
    Step,
    Weights,
    array_of,
    check_attributes,
    check_conv,
    class_name,
    is_read,
    naming,
    refuse_no_act,
    refuse_other,
    tensors,
    written_class,
)
from freshet.gnn.rows.chains import chain_width
from freshet.gnn.rows.jumps import CURRENT, Join, Keep


def convert_chain(
    steps: Sequence[Step], width: int | None, prefix: str, before: Mapping[str, int] | None = None
) -> tuple[list[Layer], Weights]:
    """Return the layers of these steps, what does nothing left out, and their weights as `prefix.index.name`.

    `width` is that of the rows that the first step reads, where it is known; `before` those of rows that are kept.

    Raises: ExportError naming the first step that has no layer here, or an option of it.
    """
    layers: list[Layer] = []
    weights: Weights = {}
    kept: dict[str, int | None] = dict(before or {})
    waiting = list(steps)
    while waiting:
        step = waiting.pop(0)
        with naming(step):
            if isinstance(step.op, RowsFunction):
                begins = all(layer.out_width is None for layer in layers)
                waiting = [*opened_function(step, {**kept, CURRENT: width}, begins=begins), *waiting]
                continue
            if is_read(step.op):
                waiting = [*opened_own(step, width), *waiting]
                continue
            layer, tensors = convert(step, width)
        if isinstance(layer, Identity):
            continue
        if isinstance(layer, Keep):
            kept[layer.name] = width
        elif isinstance(layer, Join):
            widths = {name: known for name, known in {**kept, CURRENT: width}.items() if known is not None}
            width = _joined_width(step, layer, widths)
        else:
            width = layer.out_width or width or layer.in_width
        weights |= {f"{prefix}.{len(layers)}.{name}": value for name, value in tensors.items()}
        layers.append(layer)
    return layers, weights


def _joined_width(step: Step, layer: Join, widths: dict[str, int]) -> int | None:
    """The width of joined rows, where those of all of them are known."""
    if not set(layer.of) <= widths.keys():
        return None
    with naming(step):
        return layer.width_of(widths)


def convert(step: Step, width: int | None) -> Converted:
    """Return a step's layer and weights; `width` is that of the rows it reads, where known."""
    if isinstance(step.op, Layer):
        return step.op, step.weights or {}
    if isinstance(step.op, Hop):
        return _hop(step, step.op, width), {}
    if isinstance(step.op, ChosenColumns):
        return columns_layer(step.op, width)
    if (code := written_class(step.op)) is not None:
        return convert_written(step, code, width)
    name = class_name(step.op)
    if name in _CONVS:
        check_conv(step)
        return _CONVS[name](step, width)
    if name in _DENSE:
        return _DENSE[name](step)
    if name in MODULES:
        return MODULES[name](step.op), {}
    reason = why_not_module(name)
    if reason is not None:
        refuse(f"{step.name}: {name} {reason}")
    supported = ", ".join(sorted({key.rsplit(".", 1)[1] for key in (*_CONVS, *_DENSE, *MODULES)}))
    later = " yet" if name.startswith("torch_geometric.nn.") else ""
    refuse(f"{step.name}: {name} is not supported{later}; supported layers are {supported}")


def _hop(step: Step, hop: Hop, width: int | None) -> Propagation:
    channels = hop.channels or width
    if channels is None:
        refuse(f"{step.name}: the width of its rows is unknown, since no layer says it; {HOW_WIDE}")
    options = {name: value for name, value in hop._asdict().items() if name != "channels"}
    return Propagation(in_channels=channels, out_channels=channels, edge_weights=step.edge_weights, **options)


def _graph_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    weights = tensors(step, rel=conv.lin_rel, root=conv.lin_root)
    sizes = _sizes(step, weights["rel.weight"], weights["root.weight"])
    layer = GraphConv(
        **sizes, aggr=aggr_of(step, AGGREGATORS), bias="rel.bias" in weights, edge_weights=step.edge_weights
    )
    return layer, {f"lin_{name}": value for name, value in weights.items()}


def _sage_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    aggr = aggr_of(step, AGGREGATORS, several=True)
    modules = {"lin_l": conv.lin_l}
    if conv.root_weight:
        modules["lin_r"] = conv.lin_r
    if conv.project:
        modules["lin"] = conv.lin
    weights = tensors(step, **modules)
    out_channels, read = weights["lin_l.weight"].shape
    aggregate = np.empty((out_channels, read // (1 if isinstance(aggr, str) else len(aggr))), np.float32)
    layer = SAGEConv(
        **_sizes(step, aggregate, weights.get("lin_r.weight")),
        aggr=aggr,
        normalize=bool(conv.normalize),
        root_weight=bool(conv.root_weight),
        project=bool(conv.project),
        bias="lin_l.bias" in weights,
    )
    return layer, weights


def _gcn_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    weights = tensors(step, lin=conv.lin)
    if conv.bias is not None:
        weights["bias"] = array_of(step, conv.bias)
    layer = GCNConv(
        **_sizes(step, weights["lin.weight"], None),
        aggr=aggr_of(step, AGGREGATORS),
        improved=bool(conv.improved),
        add_self_loops=bool(conv.add_self_loops),
        normalize=bool(conv.normalize),
        bias=conv.bias is not None,
        edge_weights=step.edge_weights,
    )
    return layer, weights


def _gin_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    aggr = aggr_of(step, AGGREGATORS)
    layers, weights, width = _nn(step, width)
    eps = float(conv.eps.detach().cpu().float().item())
    out = chain_width(layers, width, f"{step.name}.nn")
    return GINConv(in_channels=width, out_channels=out, aggr=aggr, eps=eps, nn=layers), weights  # type: ignore[arg-type]


def _gine_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    check_attributes(step)
    aggr_of(step, ("sum",))
    layers, weights, width = _nn(step, width)
    edge = {} if conv.lin is None else tensors(step, lin=conv.lin)
    layer = GINEConv(
        in_channels=width,
        out_channels=chain_width(layers, width, f"{step.name}.nn"),
        edge_channels=width if conv.lin is None else edge["lin.weight"].shape[1],
        edge_linear=conv.lin is not None,
        eps=float(conv.eps.detach().cpu().float().item()),
        nn=layers,  # type: ignore[arg-type]
    )
    return layer, weights | edge


def _edge_conv(step: Step, width: int | None) -> Converted:
    aggr = aggr_of(step, AGGREGATORS, several=True)
    layers, weights, read = _nn(step, None if width is None else 2 * width)
    if read % 2:
        refuse(f"{step.name}: EdgeConv's nn reads rows of width {read}, expected an even one: [x_v, x_u - x_v]")
    layer = EdgeConv(
        in_channels=read // 2,
        out_channels=chain_width(layers, read, f"{step.name}.nn") * (1 if isinstance(aggr, str) else len(aggr)),
        aggr=aggr,
        nn=layers,  # type: ignore[arg-type]
    )
    return layer, weights


def _film_conv(step: Step, width: int | None) -> Converted:
    """Return what makes messages; all rows that it reads were noted where the conv was opened."""
    conv: Any = step.op
    inside = [] if conv.act is None else [callable_step(f"{step.name}.act", conv.act)]
    act, weights = convert_chain(inside, conv.out_channels, "act")
    sizes = {"in_channels": 3 * conv.out_channels, "out_channels": conv.out_channels}
    return FiLMConv(**sizes, aggr=aggr_of(step, AGGREGATORS), act=act), weights  # type: ignore[arg-type]


def _nn(step: Step, width: int | None) -> tuple[list[Layer], Weights, int]:
    """Convert the chain inside a conv that reads rows of that width, if it is known; returns the width as well."""
    conv: Any = step.op
    inside = [inner._replace(frozen=step.frozen) for inner in dense_steps(f"{step.name}.nn", conv.nn)]
    layers, weights = convert_chain(inside, width, "nn")
    read = next((layer.in_width for layer in layers if layer.in_width is not None), width)
    if read is None:
        kind = class_name(conv).rsplit(".", 1)[1]
        refuse(f"{step.name}: the width of {kind}'s nn is unknown, since no layer says it; {HOW_WIDE}")
    return layers, weights, read


def _nn_conv(step: Step, width: int | None) -> Converted:
    check_attributes(step)
    layers, weights, read = _nn(step, None)
    return by_edge.nn_conv(step, aggr_of(step, AGGREGATORS), layers, weights, read)


def _gmm_conv(step: Step, width: int | None) -> Converted:
    made = by_edge.gmm_conv(step, aggr_of(step, AGGREGATORS))
    check_attributes(step)  # options that nobody can take come first
    return made


def _cg_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    if conv.dim:
        check_attributes(step)
    return by_edge.cg_conv(step, aggr_of(step, AGGREGATORS))


def _gen_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    if hasattr(conv, "lin_edge"):
        check_attributes(step)
    aggr = aggr_of(step, (*AGGREGATORS, "softmax"))
    inside = [one._replace(frozen=step.frozen) for one in dense_steps(f"{step.name}.mlp", conv.mlp)]
    layers, weights = convert_chain(inside, conv.out_channels, "nn")
    return by_edge.gen_conv(step, aggr, layers, weights)


def _pna_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    edge = {}
    if conv.edge_dim is not None:
        check_attributes(step)
        edge = tensors(step, edge_encoder=conv.edge_encoder)
    aggr = conv.aggr_module
    refuse_other(step, "aggr_module", aggr, "torch_geometric.nn.DegreeScalerAggregation")
    weights = {
        "average_degree": array_of(step, aggr.avg_deg_lin),
        "average_log_degree": array_of(step, aggr.avg_deg_log),
        **tensors(step, lin=conv.lin),
    }
    rest: dict[str, list[Layer]] = {}
    for t, of_tower in enumerate(zip(conv.pre_nns, conv.post_nns, strict=True)):
        for kind, width, (first, *more) in zip(("pre", "post"), (conv.F_in, conv.F_out), of_tower, strict=True):
            refuse_no_act(step, more)
            inside = [one for i, op in enumerate(more, 1) for one in dense_steps(f"{step.name}.{kind}_nns.{t}.{i}", op)]
            inside = [one._replace(frozen=step.frozen) for one in inside]
            rest[kind], of_rest = convert_chain(inside, width, f"{kind}.{t}")
            weights |= tensors(step, **{f"{kind}.{t}" if kind == "pre" else f"{kind}.{t}.first": first}) | of_rest
    layer = PNAConv(
        in_channels=conv.in_channels,
        out_channels=conv.out_channels,
        aggregators=kinds_of(step, aggr.aggr, AGGREGATORS, several=True),
        scalers=tuple(aggr.scaler),
        towers=conv.towers,
        divide_input=bool(conv.divide_input),
        pre=rest["pre"],  # type: ignore[arg-type]
        post=rest["post"],  # type: ignore[arg-type]
        edge_channels=conv.edge_dim or 0,
    )
    return layer, weights | edge


def _gated_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    aggr_of(step, ("sum",))
    if conv.edge_dim is not None:
        check_attributes(step)
    return by_edge.gated_conv(step)


def _attention(convert: Callable[[Step, int | None], Converted]) -> Callable[[Step, int | None], Converted]:
    def checked(step: Step, width: int | None) -> Converted:
        aggr_of(step, ("sum",))
        if getattr(step.op, "lin_edge", None) is not None:
            check_attributes(step)
        return convert(step, width)

    return checked


def _linear(step: Step) -> Converted:
    weights = tensors(step, only=step.op)
    out_channels, in_channels = weights["only.weight"].shape
    layer = Linear(in_channels=in_channels, out_channels=out_channels, bias="only.bias" in weights)
    return layer, {name.removeprefix("only."): value for name, value in weights.items()}


def _prelu(step: Step) -> Converted:
    op: Any = step.op
    slopes = array_of(step, op.weight)
    return PRelu(channels=len(slopes)), {"weight": slopes}


def _sizes(step: Step, neighbour: np.ndarray, own: np.ndarray | None) -> dict[str, Any]:
    out_channels, in_channels = neighbour.shape
    sizes = {"in_channels": in_channels, "out_channels": out_channels}
    if own is not None and own.shape != neighbour.shape:
        if step.relation:
            return sizes | {"target_channels": own.shape[1]}
        refuse(f"{step.name}: bipartite layers are not supported, in_channels is {(in_channels, own.shape[1])}")
    return sizes


_CONVS: dict[str, Callable[[Step, int | None], Converted]] = {
    "torch_geometric.nn.GraphConv": _graph_conv,
    "torch_geometric.nn.SAGEConv": _sage_conv,
    "torch_geometric.nn.PNAConv": _pna_conv,
    "torch_geometric.nn.ResGatedGraphConv": _gated_conv,
    "torch_geometric.nn.AGNNConv": _attention(by_edge.agnn_conv),
    "torch_geometric.nn.GATConv": _attention(lambda step, width: by_edge.gat_conv(step)),
    "torch_geometric.nn.GATv2Conv": _attention(lambda step, width: by_edge.gatv2_conv(step)),
    "torch_geometric.nn.SuperGATConv": _attention(lambda step, width: by_edge.super_gat_conv(step)),
    "torch_geometric.nn.TransformerConv": _attention(lambda step, width: by_edge.transformer_conv(step)),
    "torch_geometric.nn.GCNConv": _gcn_conv,
    "torch_geometric.nn.GINConv": _gin_conv,
    "torch_geometric.nn.GINEConv": _gine_conv,
    "torch_geometric.nn.NNConv": _nn_conv,
    "torch_geometric.nn.GMMConv": _gmm_conv,
    "torch_geometric.nn.CGConv": _cg_conv,
    "torch_geometric.nn.GENConv": _gen_conv,
    "torch_geometric.nn.EdgeConv": _edge_conv,
    "torch_geometric.nn.FiLMConv": _film_conv,
}
_DENSE: dict[str, Callable[[Step], Converted]] = {
    "torch.nn.Linear": _linear,
    "torch_geometric.nn.Linear": _linear,
    "torch.nn.PReLU": _prelu,
    **NORMS,
}
# What says how wide the rows are that it reads, whatever is around it.
SIZED = {*_CONVS, "torch.nn.Linear", "torch_geometric.nn.Linear"} - {"torch_geometric.nn.AGNNConv"}
