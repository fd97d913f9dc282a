"""HGTConv and HANConv as convs of attention on relations, and layers of rows behind.

Behind an HGTConv's convs is one softmax over all of them. PyG's HANConv weighs the relations into a kind by one softmax
of scores, each a mean over all vertices of the kind: every event would change the rows of all. So the weights are those
of the graph of `stats_from`. Of one relation the weight is 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import GATConv, Gelu, Linear, Relu, TransformerConv
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.kinds.metadata import Relation
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import Step, array_of, check_conv, class_name
from freshet.gnn.rows.functions import Scale
from freshet.gnn.rows.norms import FrozenNorm

Attention = dict[str, dict[Relation, float]]
"""The weights of the relations into each kind."""


def is_han(module: Any) -> bool:
    """Return whether a module is PyG's HANConv."""
    return class_name(module) == "torch_geometric.nn.HANConv"


def reached(x: Mapping[str, Any], edges: Mapping[Relation, Any]) -> list[str]:
    """Return the kinds of which a HANConv makes rows; of the others it returns None."""
    return [kind for kind in x if any(ends[2] == kind for ends in edges)]


def attention_of(name: str, module: Any, args: Any, kwargs: Any) -> Attention:
    """Return the weights of relations in a call of a HANConv.

    Raises: ExportError for a kind without vertices.
    """
    x, edges = _given(module, args, kwargs)
    weights, found = module.forward(x, edges, True)[1], Attention()
    for kind in reached(x, edges):
        if weights[kind] is None:
            msg = f"{name}: stats_from has no vertices of kind {kind!r}, whose mean the weights of relations come from"
            raise ExportError(msg)
        into = [ends for ends in edges if ends[2] == kind]
        found[kind] = dict(zip(into, weights[kind].tolist(), strict=True))
    return found


def replay(calls: Sequence[Attention]) -> Callable[..., Any]:
    """Return a hook by which a HANConv weighs relations as in these calls, one after the other."""
    number = -1

    def hook(module: Any, args: Any, kwargs: Any, result: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        (x, edges), weights = _given(module, args, kwargs), calls[number % len(calls)]
        made = dict.fromkeys(x)
        for kind in reached(x, edges):
            parts = [  # by itself, a relation has the weight 1
                module.forward(x, {ends: one})[kind] * weights[kind][ends]
                for ends, one in edges.items()
                if ends[2] == kind
            ]
            made[kind] = sum(parts[1:], parts[0])
        return made

    return hook


def _given(module: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[Relation, Any]]:
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return given["x_dict"], given["edge_index_dict"]


def han_conv(
    ops: KindsOperations,
    place: str,
    name: str,
    module: Any,
    x: Mapping[str, str],
    relations: Mapping[Relation, int],
    attention: Attention | None,
) -> dict[str, str]:
    """Note the operations of a HANConv on rows by kind and edges by relation; returns the rows that it makes, by kind.

    Several relations into a kind are refused without weights, where a result depends on it.
    Raises: ExportError for an option that cannot be taken over.
    """
    check_conv(Step(name, module))
    rows = {kind: ops.add(one, Step(f"{name}.proj.{kind}", module.proj[kind])) for kind, one in x.items()}
    made = dict[str, str]()
    for kind in reached(x, relations):
        into = [ends for ends in relations if ends[2] == kind]
        convs = [
            ops.conv(place, OnRelation(relations[ends], rows[ends[0]], rows[kind], _attention_on(name, module, ends)))
            for ends in into
        ]
        found = convs[0] if len(convs) == 1 else ops.join(f"{name}.{kind}.cat", "cat", convs)
        found = ops.add(found, Step(f"{name}.{kind}.relu", Relu()))
        if len(convs) > 1:
            weights = [attention[kind][ends] if attention is not None else 0.0 for ends in into]
            for step in _weighed(f"{name}.{kind}", weights, module.out_channels):
                found = ops.add(found, step)
            if attention is None:
                ops.refused[found] = _needs_weights(place, kind, len(convs))
        made[kind] = found
    return made


def _attention_on(name: str, module: Any, ends: Relation) -> Step:
    """The attention of one relation over rows that are multiplied already."""
    step, key, width = Step(name, module), "__".join(ends), module.out_channels
    weights = {
        "lin.weight": np.eye(width, dtype=np.float32),
        "att_src": array_of(step, module.lin_src[key])[0],
        "att_dst": array_of(step, module.lin_dst[key])[0],
    }
    layer = GATConv(
        in_channels=width,
        out_channels=width,
        heads=module.heads,
        add_self_loops=False,
        negative_slope=module.negative_slope,
        bias=False,
    )
    return Step(f"{name}.{key}", layer, weights=weights)


def _weighed(name: str, weights: Sequence[float], width: int) -> list[Step]:
    """The sum of rows side by side, each times its weight."""
    scale = np.repeat(np.array(weights, np.float32), width)
    frozen = FrozenNorm(of="semantic_attention", channels=len(scale), eps=0.0)
    added = Linear(in_channels=len(scale), out_channels=width, bias=False)
    return [
        Step(f"{name}.attention", frozen, weights={"scale": scale, "shift": np.zeros_like(scale)}),
        Step(f"{name}.sum", added, weights={"weight": np.tile(np.eye(width, dtype=np.float32), len(weights))}),
    ]


def _needs_weights(place: str, kind: str, many: int) -> str:
    return (
        f"{place}: HANConv weighs the {many} relations into {kind!r} by means over all its vertices: every event would "
        "change the row of every vertex. Give export_model the graph that the weights are to be frozen at: "
        "stats_from=data, a HeteroData, best the one the model was trained on; the model is then marked as "
        "approximate. Exact instead: HGTConv, or HeteroConv of GATConv"
    )


_PARTS = {"lin_key": (0, "k_rel"), "lin_query": (1, None), "lin_value": (2, "v_rel")}
"""The weights of a conv: which third of a kind's matrix they are, and what they are multiplied by in a relation."""


def is_hgt(module: Any) -> bool:
    """Return whether a module is PyG's HGTConv."""
    return class_name(module) == "torch_geometric.nn.HGTConv"


def hgt_conv(
    ops: KindsOperations, place: str, name: str, module: Any, x: Mapping[str, str], relations: Mapping[Relation, int]
) -> dict[str, str]:
    """Note the operations of an HGTConv on rows by kind and edges by relation; returns the rows that it makes, by kind.

    Raises: ExportError for an option that cannot be taken over, or for relations in another order than its own.
    """
    check_conv(Step(name, module))
    own = [ends for ends in module.edge_types if ends in relations]
    if own != list(relations):
        refuse(
            f"{place}: HGTConv was made for the relations in the order {own}, and gets them in the order "
            f"{list(relations)}. PyTorch Geometric multiplies rows by the matrix of another relation then. Give the "
            "graph and metadata the order of its constructor"
        )
    made = dict[str, str]()
    for kind in x:
        if kind not in module.dst_node_types:
            continue
        into = [(ends, number) for ends, number in relations.items() if ends[2] == kind]
        if not into:
            refuse(f"{place}: HGTConv gets no edges into {kind!r}, of which it makes rows all the same")
        convs = [
            ops.conv(place, OnRelation(number, x[ends[0]], x[kind], _on_relation(name, module, ends)))
            for ends, number in into
        ]
        rows = ops.attended(f"{name}.{kind}", convs)
        rows = ops.add(rows, Step(f"{name}.{kind}.gelu", Gelu()))
        rows = ops.add(rows, Step(f"{name}.out_lin.{kind}", module.out_lin.lins[kind]))
        if module.kqv_lin.lins[kind].weight.shape[1] == module.out_channels:
            share = float(module.skip[kind].detach().sigmoid())
            rows = ops.add(rows, Step(f"{name}.{kind}.share", Scale(factor=share)))
            before = ops.add(x[kind], Step(f"{name}.{kind}.rest", Scale(factor=1 - share)))
            rows = ops.join(f"{name}.{kind}.sum", "sum", [rows, before])
        made[kind] = rows
    return made


def _on_relation(name: str, module: Any, ends: Relation) -> Step:
    """The conv of attention of one relation, its matrices multiplied out."""
    step, heads = Step(name, module), module.heads
    weights = dict[str, np.ndarray]()
    for lin, (third, by_relation) in _PARTS.items():
        kind = ends[2] if by_relation is None else ends[0]
        for part in ("weight", "bias"):
            whole = array_of(step, getattr(module.kqv_lin.lins[kind], part)).astype(np.float64)
            rows = np.split(whole, 3)[third]
            if by_relation is not None:
                rows = np.concatenate(list(_turned(step, by_relation, rows, ends)))
            if lin == "lin_key":
                share = array_of(step, module.p_rel["__".join(ends)])[0].astype(np.float64)
                rows = rows * np.repeat(share, len(rows) // heads).reshape(-1, *[1] * (rows.ndim - 1))
            weights[f"{lin}.{part}"] = rows.astype(np.float32)
    layer = TransformerConv(
        in_channels=weights["lin_key.weight"].shape[1],
        target_channels=_other(weights["lin_query.weight"], weights["lin_key.weight"]),
        out_channels=module.out_channels,
        heads=heads,
        root_weight=False,
    )
    return Step(f"{name}.{'__'.join(ends)}", layer, weights=weights)


def _turned(step: Step, by_relation: str, rows: np.ndarray, ends: Relation) -> Iterator[np.ndarray]:
    """Yield the rows of each head times what the relation multiplies them by."""
    module: Any = step.op
    number, many = module.edge_types_map[ends], len(module.edge_types)
    matrices = array_of(step, getattr(module, by_relation).weight).astype(np.float64)
    for head, of_head in enumerate(np.split(rows, module.heads)):
        yield matrices[head * many + number].T @ of_head


def _other(query: np.ndarray, key: np.ndarray) -> int | None:
    return None if query.shape[1] == key.shape[1] else int(query.shape[1])
