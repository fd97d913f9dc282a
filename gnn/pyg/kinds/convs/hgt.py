"""HGTConv as convs of attention on relations with one softmax over all of them, and layers of rows behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from freshet.gnn.declarations import Gelu, TransformerConv
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.metadata import Relation
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import Step, array_of, check_conv, class_name
from freshet.gnn.rows.functions import Scale

_PARTS = {"lin_key": (0, "k_rel"), "lin_query": (1, None), "lin_value": (2, "v_rel")}
"""The weights of a conv: which third of a kind's matrix they are, and what they are multiplied by in a relation."""


def is_hgt(module: Any) -> bool:
    """Return whether a module is PyG's HGTConv."""
    return class_name(module) == "torch_geometric.nn.HGTConv"


def hgt_conv(
    ops: KindsOperations, place: str, name: str, module: Any, x: Mapping[str, str], relations: Mapping[Relation, int]
) -> dict[str, str]:
    """Note the operations of an HGTConv on rows by kind and edges by relation; returns the rows that it makes, by kind.

    Raises: ExportError for an option that cannot be taken over.
    """
    check_conv(Step(name, module))
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
