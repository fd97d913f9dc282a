"""The steps of a module: what runs on the rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gnn.declarations import Elu, Gelu, Identity, Layer, LeakyRelu, Relu, Selu, Sigmoid, Silu, Tanh
from gnn.model import ModelError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class ExportError(ModelError):
    """A module that Freshet cannot take over as it is; the message names the part and says why."""


class Step(NamedTuple):
    """One operation on the rows: a leaf module or an activation, with its name in the module.

    edge_weights: whether the module hands edge weights to it (convs only).
    """

    name: str
    op: Module | Layer
    edge_weights: bool = False


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
        msg = f"{where}: jumping knowledge (jk={module.jk_mode!r}) is not supported; use jk=None or jk='last'"
        raise ExportError(msg)
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
    if isinstance(function, Module):
        return Step(name, function)
    return Step(name, function_layer(name, function, (), {}))


def function_layer(name: str, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Layer:
    """Return the layer that a function of rows is; args and options are those after the rows.

    Raises: ExportError naming a function that is no layer.
    """
    label = function if isinstance(function, str) else getattr(function, "__name__", repr(function))
    home = "torch" if isinstance(function, str) else str(getattr(function, "__module__", None) or "torch")
    make = _FUNCTIONS.get(label.rstrip("_").lower()) if home.startswith(("torch", "_")) else None
    if make is None:
        msg = f"{name}: function {label} is not supported; supported are {', '.join(_FUNCTIONS)}"
        raise ExportError(msg)
    try:
        return make(*args, **options)
    except TypeError as error:
        msg = f"{name}: {label} is called with arguments that Freshet cannot read: {error}"
        raise ExportError(msg) from None


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> Layer:
    if training and p > 0:
        msg = f"dropout with p={p} and training=True is random at inference too; pass training=self.training"
        raise ExportError(msg)
    return Identity()


_FUNCTIONS: dict[str, Callable[..., Layer]] = {
    "relu": lambda inplace=False: Relu(),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: LeakyRelu(slope=negative_slope),
    "elu": lambda alpha=1.0, inplace=False: Elu(alpha=alpha),
    "selu": lambda inplace=False: Selu(),
    "gelu": lambda approximate="none": Gelu(approximate=approximate),
    "tanh": lambda: Tanh(),
    "sigmoid": lambda: Sigmoid(),
    "silu": lambda inplace=False: Silu(),
    "swish": lambda: Silu(),
    "dropout": _dropout,
    "contiguous": lambda: Identity(),
}
