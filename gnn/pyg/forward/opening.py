"""Opens modules that hold others, down to layers: torch's Sequential, PyG's MLP and basic models, DeepGCNLayer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from torch.nn import Module
from torch_geometric.nn import MLP, AntiSymmetricConv, DeepGCNLayer, FiLMConv, MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.again import Encoding
from freshet.gnn.pyg.forward.hops import opened_hops
from freshet.gnn.pyg.forward.joins import jumped
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.opened_conv import OpenedConv
from freshet.gnn.pyg.forward.untouched import is_plain
from freshet.gnn.pyg.functions import callable_step
from freshet.gnn.pyg.refusals import TYPED, several_rows, why_not_module
from freshet.gnn.pyg.steps import (
    ConvCall,
    Step,
    adds_attributes,
    array_of,
    class_name,
    parts_of,
    takes_attributes,
    written_class,
)
from freshet.gnn.rows.functions import Normalize, Scale

_SEQUENTIALS = {"torch.nn.Sequential", "torch_geometric.nn.conv.gen_conv.MLP"}
Other = Callable[[str, Any, str], str]
"""Notes the operations of a module that is neither torch's nor PyG's: (name, module, rows) -> rows."""


def opened(
    ops: Operations,
    name: str,
    module: Module,
    rows: str,
    *,
    edge_weights: bool,
    attributes: bool = False,
    other: Other | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    given: ConvCall | None = None,
    encoding: Encoding | None = None,
) -> str:
    """Note the operations of a module that is called with these rows; returns the name of the rows that it makes.

    `edge_weights` and `attributes`: whether it is called with those of edges. `other` opens modules that are neither
    torch's nor PyG's; without it they stay whole. `options`: constants that the module is called with. `given`: how
    it is called, where that is known. `encoding`: what its conv is called with, where that are functions.
    """
    if encoding is not None and isinstance(module, MessagePassing):
        return ops.add(rows, encoding.step(name.removeprefix("."), module))
    if written_class(module) is not None:  # a written layer stands in its place
        attributes = attributes and takes_attributes(module)
        return ops.add(rows, Step(name.removeprefix("."), module, edge_weights, attributes=attributes, given=given))
    if class_name(module) in _SEQUENTIALS:
        for child_name, child in parts_of(module):
            rows = opened(ops, f"{name}.{child_name}", child, rows, edge_weights=edge_weights, other=other)
        return rows
    if type(module) is MLP:
        return _mlp(ops, name, module, rows)
    if type(module) is DeepGCNLayer:
        how = {"edge_weights": edge_weights, "attributes": attributes, "encoding": encoding}
        return _deep_gcn_layer(ops, name, module, rows, how)
    if type(module) is AntiSymmetricConv:
        name = name.removeprefix(".")
        return _anti_symmetric_conv(ops, name, module, rows, edge_weights=edge_weights, attributes=attributes)
    if type(module) is FiLMConv:
        return _film_conv(ops, name.removeprefix("."), module, rows)
    if is_plain(module, BasicGNN):
        return _basic_gnn(ops, name, module, rows, edge_weights=edge_weights, attributes=attributes)
    name = name.removeprefix(".")
    hops = opened_hops(ops, name, module, [rows], edge_weights=edge_weights, options=options)
    if hops is not None:
        return hops
    if other is not None and not class_name(module).startswith(("torch.nn.", "torch_geometric.nn.")):
        return other(name, module, rows)
    attributes = attributes and (takes_attributes(module) or adds_attributes(module))
    return ops.add(rows, Step(name, module, edge_weights, attributes=attributes, given=given))


def opened_with(
    ops: Operations, where: str, name: str, module: Module, rows: Sequence[str], *, edge_weights: bool
) -> str:
    """Note the operations of a module that is called with the rows of several layers; `where` is for the message.

    Raises: ExportError for one that cannot be taken over.
    """
    kind = class_name(module)
    if kind == "torch_geometric.nn.JumpingKnowledge":
        return jumped(ops, where, name, module, list(rows))
    if kind == "torch_geometric.nn.MessageNorm" and len(rows) == 2:
        return _message_norm(ops, name, module, *rows)
    hops = opened_hops(ops, name, module, list(rows), edge_weights=edge_weights)
    if hops is not None:
        return hops
    hint = why_not_module(kind)
    if hint is not None:
        refuse(f"{where}: {kind} {hint}")
    raise ExportError(several_rows(where, kind, list(rows)))


def _mlp(ops: Operations, name: str, module: Any, rows: str) -> str:
    plain = len(module.lins) - 1 if module.plain_last else len(module.lins)
    for i, lin in enumerate(module.lins):
        rows = opened(ops, f"{name}.lins.{i}", lin, rows, edge_weights=False)
        if i < plain:
            rows = _norm_and_act(ops, name, module, i, rows)
    return rows


def _norm_and_act(ops: Operations, name: str, module: Any, i: int, rows: str) -> str:
    def act(rows: str) -> str:
        return rows if module.act is None else ops.add(rows, callable_step(f"{name}.act", module.act))

    if module.act_first:
        rows = act(rows)
    rows = opened(ops, f"{name}.norms.{i}", module.norms[i], rows, edge_weights=False)
    return rows if module.act_first else act(rows)


def _basic_gnn(ops: Operations, name: str, module: Any, rows: str, *, edge_weights: bool, attributes: bool) -> str:
    where = name.removeprefix(".") or type(module).__name__
    last, made = len(module.convs) - 1, list[str]()
    for i, conv in enumerate(module.convs):
        weighted = edge_weights and module.supports_edge_weight
        rows = opened(ops, f"{name}.convs.{i}", conv, rows, edge_weights=weighted, attributes=attributes)
        if i < last or module.jk_mode is not None:
            rows = _norm_and_act(ops, name, module, i, rows)
        made.append(rows)
    if module.jk_mode not in (None, "last"):
        if class_name(module.jk) != "torch_geometric.nn.JumpingKnowledge" or module.jk.mode != module.jk_mode:
            refuse(f"{where}: its jk is {module.jk}, expected JumpingKnowledge({module.jk_mode!r})")
        rows = jumped(ops, where, f"{name}.jk".removeprefix("."), module.jk, made)
    if hasattr(module, "lin"):
        rows = opened(ops, f"{name}.lin", module.lin, rows, edge_weights=False)
    return rows


def _deep_gcn_layer(ops: Operations, name: str, module: Any, rows: str, how: Mapping[str, Any]) -> str:
    """Note a DeepGCNLayer; `how` its conv is called, as `opened` has it."""

    def norm_and_act(rows: str) -> str:
        if module.norm is not None:
            rows = opened(ops, f"{name}.norm", module.norm, rows, edge_weights=False)
        return rows if module.act is None else ops.add(rows, callable_step(f"{name}.act", module.act))

    before = rows
    if module.block == "res+":
        rows = norm_and_act(rows)
    rows = opened(ops, f"{name}.conv", module.conv, rows, **how)
    if module.block != "res+":
        rows = norm_and_act(rows)
    if module.block == "plain":
        return rows
    return ops.join(name.removeprefix("."), "cat" if module.block == "dense" else "sum", [before, rows])


def _anti_symmetric_conv(
    ops: Operations, name: str, module: Any, rows: str, *, edge_weights: bool, attributes: bool
) -> str:
    """Note x + epsilon act((W - W^T - gamma I) x + phi(x) + b), as often as it is iterated."""
    conv = OpenedConv(ops, name, module, edge_weights, "sum")
    given = array_of(Step(name, module), module.W).astype(np.float64)
    weight = given - given.T - module.gamma * np.eye(len(given))
    bias = None if module.bias is None else array_of(Step(name, module), module.bias)
    for i in range(1, module.num_iters + 1):
        made = opened(ops, f"{name}.phi", module.phi, rows, edge_weights=edge_weights, attributes=attributes)
        made = conv.added(conv.linear(rows, weight, f"W{i}", bias), made, f"sum{i}")
        if module.act is not None:
            made = ops.add(made, callable_step(f"{name}.act{i}", module.act))
        rows = conv.added(rows, conv.scaled(made, module.epsilon, f"epsilon{i}"), f"x{i}")
    return rows


def _film_conv(ops: Operations, name: str, module: Any, rows: str) -> str:
    """Note act(gamma W_skip x + beta) and [W x | beta | gamma], of which the conv itself then makes messages.

    Raises: ExportError for several relations.
    """
    if module.num_relations > 1:
        refuse(f"{name}: FiLMConv with num_relations={module.num_relations} {TYPED}")
    conv = OpenedConv(ops, name, module, weighted=False, aggr="sum")
    skip = opened(ops, f"{name}.film_skip", module.film_skip, rows, edge_weights=False)
    beta, gamma = np.split(np.eye(2 * module.out_channels), 2)
    own = [conv.linear(skip, gamma, "gamma"), conv.lin(rows, "lin_skip", module.lin_skip)]
    skip = conv.added(conv.joined("product", own, "scaled"), conv.linear(skip, beta, "beta"), "shifted")
    if module.act is not None:
        skip = ops.add(skip, callable_step(f"{name}.act_skip", module.act))
    film = opened(ops, f"{name}.films.0", module.films[0], rows, edge_weights=False)
    terms = conv.joined("cat", [conv.lin(rows, "lins.0", module.lins[0]), film], "terms")
    return conv.added(ops.add(terms, Step(name, module)), skip, "sum")


def _message_norm(ops: Operations, name: str, module: Any, rows: str, messages: str) -> str:
    messages = ops.add(messages, Step(f"{name}.normalize", Normalize()))
    scaled = ops.join(name, "times_length", [messages, rows])
    return ops.add(scaled, Step(f"{name}.scale", Scale(factor=float(module.scale))))
