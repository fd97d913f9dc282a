"""The steps of a module: what runs on the rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gnn.pyg.errors import ExportError as ExportError
from gnn.pyg.functions import function_layer
from gnn.pyg.refusals import jumping_knowledge
from gnn.rows.layer import Layer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class Step(NamedTuple):
    """One operation on the rows: a leaf module or a function, with its name in the module.

    edge_weights: whether the module hands edge weights to it (convs only). weights: of a function. frozen: gives what
    a norm over all vertices has become, where there is a graph for it.
    """

    name: str
    op: Module | Layer
    edge_weights: bool = False
    weights: dict[str, np.ndarray] | None = None
    frozen: Callable[[Any], tuple[Layer, dict[str, np.ndarray]]] | None = None


class Traced(NamedTuple):
    """A module as steps, and how to run it on a graph: run(module, x, edge_index, edge_weight)."""

    steps: list[Step]
    run: Callable[[Module, Tensor, Tensor, Tensor], Any]


def class_name(value: Any) -> str:
    """Return the full name of the value's class; of a private module the public package's, e.g. torch.nn.ReLU."""
    kind = type(value)
    for package in ("torch.nn", "torch_geometric.nn"):
        if kind.__module__.startswith(package + "."):
            return f"{package}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def array_of(step: Step, tensor: Tensor) -> np.ndarray:
    """Return a tensor's values as float32.

    Raises: ExportError where a lazy module has not got it yet.
    """
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        msg = f"{step.name}: its size is not known yet (in_channels=-1); run the module once before exporting it"
        raise ExportError(msg)
    values: np.ndarray = tensor.detach().cpu().float().numpy()
    return np.array(values, np.float32)


def expand(name: str, module: Module, *, edge_weights: bool) -> Iterator[Step]:
    """Yield the leaf steps of a module, opening torch's Sequential and PyG's MLP and basic models."""
    from torch_geometric.nn import MLP
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    if class_name(module) == "torch.nn.Sequential":
        for child_name, child in module.named_children():
            yield from expand(f"{name}.{child_name}", child, edge_weights=edge_weights)
    elif type(module) is MLP:
        yield from _mlp(name, module)
    elif isinstance(module, BasicGNN) and type(module).forward is BasicGNN.forward:
        yield from _basic_gnn(name, module, edge_weights=edge_weights)
    else:
        yield Step(name.removeprefix("."), module, edge_weights)


def function_step(name: str, function: Any) -> Step:
    """Return the step of a function of rows without further arguments."""
    layer, weights = function_layer(name, function, (), {})
    return Step(name, layer, weights=weights)


def _mlp(name: str, module: Any) -> Iterator[Step]:
    plain = len(module.lins) - 1 if module.plain_last else len(module.lins)
    for i, lin in enumerate(module.lins):
        yield from expand(f"{name}.lins.{i}", lin, edge_weights=False)
        if i < plain:
            yield from _norm_and_act(name, module, i)


def _norm_and_act(name: str, module: Any, i: int) -> Iterator[Step]:
    norm = list(expand(f"{name}.norms.{i}", module.norms[i], edge_weights=False))
    act = [] if module.act is None else [_callable_step(f"{name}.act", module.act)]
    yield from act + norm if module.act_first else norm + act


def _basic_gnn(name: str, module: Any, *, edge_weights: bool) -> Iterator[Step]:
    where = f"{name.removeprefix('.') or type(module).__name__}"
    if module.jk_mode not in (None, "last"):
        raise ExportError(jumping_knowledge(where, module.jk_mode))
    last = len(module.convs) - 1
    for i, conv in enumerate(module.convs):
        yield Step(f"{name}.convs.{i}".removeprefix("."), conv, edge_weights and module.supports_edge_weight)
        if i < last or module.jk_mode is not None:
            yield from _norm_and_act(name, module, i)
    if hasattr(module, "lin"):
        yield from expand(f"{name}.lin", module.lin, edge_weights=False)


def _callable_step(name: str, function: Any) -> Step:
    from torch.nn import Module

    name = name.removeprefix(".")
    return Step(name, function) if isinstance(function, Module) else function_step(name, function)
