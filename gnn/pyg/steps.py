"""The steps of a module, what runs on the rows one after the other, and what its parts say."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch_geometric.nn import MessagePassing

from freshet.gnn.convs.base import ExistingLoops
from freshet.gnn.model import explain
from freshet.gnn.own.loading import classes_of, layer_class
from freshet.gnn.pyg.encoded_conv import EncodedConv
from freshet.gnn.pyg.errors import INSIDE, refuse
from freshet.gnn.pyg.errors import ExportError as ExportError
from freshet.gnn.pyg.read_convs import reads_as_it_runs
from freshet.gnn.rows.layer import Layer
from freshet.kinds_graph import KindsGraph


class Hop(NamedTuple):
    """One hop of a conv: an aggregate of the in-edges, scaled by the degrees at both ends if `normalize`.

    channels: the width of its rows, where the conv knows it. self_weight: of self-loops that it adds;
    existing_loops: what becomes of those that are there. degrees: in; out, or both for those of sources alone.
    """

    normalize: bool
    add_self_loops: bool
    channels: int | None = None
    aggr: str = "sum"
    self_weight: float = 1.0
    existing_loops: ExistingLoops = "keep"
    degrees: Literal["in", "out", "both"] = "in"


class ConvCall(NamedTuple):
    """The parameters of a conv that take rows, edges, weights and attributes, and constants that others take.

    pair: rows are given as a pair, those of sources and those of targets; two_kinds: these are of two kinds.
    joined: names and widths of the rows that a function of rows reads, or a conv that is called with those of several
    layers; 0 for a width to be tried. parameters: those of a conv that take them; a function of rows gets no edges.
    part: which of its results is read, where it returns several; None for the only one. categories: as Step has them.
    """

    rows: str
    edges: str
    weights: str | None = None
    attributes: str | None = None
    constants: Mapping[str, Any] = MappingProxyType({})
    pair: bool = False
    two_kinds: bool = False
    joined: tuple[tuple[str, int], ...] = ()
    parameters: tuple[str, ...] = ()
    part: int | str | None = None
    categories: tuple[int, ...] = ()

    def result(self, made: Any) -> Any:
        """Return the result that is read of what a conv has returned.

        Raises: TypeError where that is one tensor, and another of several is read.
        """
        if self.part is None:
            return made
        if isinstance(made, Tensor):
            msg = f"it returns one tensor, of which [{self.part!r}] keeps some of the rows; columns are h[:, 0]"
            raise TypeError(msg)
        return made[self.part]


class Step(NamedTuple):
    """One operation on the rows: a leaf module, a hop or a function, with its name in the module.

    edge_weights: whether the module hands edge weights to it (convs only). weights: of a function. frozen: gives what
    a norm over all vertices has become, where there is a graph for it. attributes: whether the module hands attributes
    of edges to it. relation: whether it is a conv on a relation, whose ends may have rows of two widths. given: how a
    conv that is read is called. edge_width: how wide attributes of edges are, where export_model is given it.
    categories: of each of these, how many categories it numbers, 0 where it is any number; none: all are.
    """

    name: str
    op: Module | Hop | Layer
    edge_weights: bool = False
    weights: dict[str, np.ndarray] | None = None
    frozen: Callable[[Any], tuple[Layer, dict[str, np.ndarray]]] | None = None
    attributes: bool = False
    relation: bool = False
    given: ConvCall | None = None
    edge_width: int | None = None
    categories: tuple[int, ...] = ()


class RowsFunction(NamedTuple):
    """A function of the rows of these names, read as it runs: module(rows0=..., rows1=...) in their order.

    Or a conv that is called with them, as its step's `given` says it.
    """

    module: Module
    of: tuple[str, ...]


class ChosenColumns(NamedTuple):
    """Some columns of rows: a place, a slice or a list of places."""

    places: int | slice | list[int]


@contextmanager
def naming(step: Step) -> Iterator[None]:
    """Have a declaration that does not hold together be an ExportError with the step's name."""
    try:
        yield
    except ExportError:
        raise
    except ValueError as error:
        msg = f"{step.name}: {explain(error)}"
        raise ExportError(msg) from None


class Traced(NamedTuple):
    """A module as steps, and how to run it on a graph: run(module, x, edge_index, edge_weight, edge_attr).

    own: of one that reads a Data which it is not given, its run on that as it is, by the width of attributes. types:
    the number of types where all that it reads of edges' attributes are their types; else 0.
    """

    steps: list[Step]
    run: Callable[[Module, Tensor, Tensor, Tensor, Tensor], Any]
    own: Callable[[int], OwnRun] | None = None
    types: int = 0


class OwnRun(NamedTuple):
    """A run of a module on its own Data: the name of that, its graph, and run as that of a `Traced`."""

    name: str
    graph: KindsGraph
    run: Callable[[Module, Tensor, Tensor, Tensor, Tensor], Any]


def takes_attributes(module: Any) -> bool:
    """Return whether a module is a conv whose edge_attr are attributes of edges; of others it is a weight.

    So are a basic model, a DeepGCNLayer and an AntiSymmetricConv of such convs, which hand it on.
    """
    if written := classes_of(type(module)):
        return "attr" in layer_class(written[0], None).reads_of("message")
    if is_read(module):
        return attributes_of(module) is not None
    kind = class_name(module)
    inside = [getattr(module, _HAND_ON[kind])] if kind in _HAND_ON else getattr(module, "convs", ())
    if isinstance(inside, Iterable) and any(takes_attributes(conv) for conv in inside):
        return True
    if kind == "torch_geometric.nn.CGConv":
        return bool(module.dim)
    if kind == "torch_geometric.nn.GENConv":
        return hasattr(module, "lin_edge")
    return kind in _ATTRIBUTED or (kind in _WITH_EDGE_DIM and module.edge_dim is not None)


def takes_both(module: Any, weigh: Collection[str]) -> bool:
    """Return whether a conv that takes attributes takes the weights of edges beside them, as these parameters."""
    if written := classes_of(type(module)):
        return "weight" in layer_class(written[0], None).reads_of("message")
    return is_read(module) and attributes_of(module) not in weigh


def is_read(module: Any) -> bool:
    """Return whether a module is a conv that is read as it runs: one of the user's own, or of PyG's without a layer."""
    home = type(module).__module__
    if isinstance(module, EncodedConv):
        return True
    if classes_of(type(module)):  # a written layer stands in its place
        return False
    return isinstance(module, MessagePassing) and (
        not home.startswith("torch_geometric.") or reads_as_it_runs(class_name(module), module)
    )


WIDTHS_OF_EDGES = ("edge_dim", "edge_channels", "edge_in_channels", "in_edge_channels")
ATTRIBUTE_NAMES = ("edge_attr", "edge_attrs", "edge_features", "edge_feats", "edge_feat")


def attributes_of(module: Any) -> str | None:
    """Return the parameter of a conv that is read which takes attributes of edges, by its name.

    None where there is none, or the conv was made for none (edge_dim=None).
    """
    if any(getattr(module, name, 0) is None for name in WIDTHS_OF_EDGES):
        return None
    return next((name for name in inspect.signature(module.forward).parameters if name in ATTRIBUTE_NAMES), None)


def adds_attributes(module: Any) -> bool:
    """Return whether a module is a GENConv that adds edge_attr to its rows as they are, where it is handed any.

    Nothing in it says whether it is: PyG keeps edge_dim only where it is another width. A DeepGCNLayer hands it on.
    """
    kind = class_name(module)
    if kind in _HAND_ON:
        return adds_attributes(getattr(module, _HAND_ON[kind]))
    return kind == "torch_geometric.nn.GENConv" and not hasattr(module, "lin_edge")


_HAND_ON = {"torch_geometric.nn.DeepGCNLayer": "conv", "torch_geometric.nn.AntiSymmetricConv": "phi"}
_ATTRIBUTED = {f"torch_geometric.nn.{name}" for name in ("GINEConv", "GMMConv", "NNConv")}
_WITH_EDGE_DIM = {
    f"torch_geometric.nn.{name}" for name in ("GATConv", "GATv2Conv", "PNAConv", "ResGatedGraphConv", "TransformerConv")
}


def edge_width_of(module: Any) -> int | None:
    """Return how wide the attributes are that a conv reads, where it keeps that."""
    width = getattr(module, "edge_dim", None) or (None if is_read(module) else getattr(module, "dim", None))
    if width is None and class_name(module) == "torch_geometric.nn.GINEConv":
        width = getattr(module.lin, "in_channels", None)
    return width


def refuse_weights(where: str, module: Any) -> None:
    """Refuse a weight of edges that is handed to a conv as its edge_attr, where it reads none.

    Raises: ExportError naming the conv.
    """
    kind = class_name(module)
    if kind in _HAND_ON:
        refuse_weights(where, getattr(module, _HAND_ON[kind]))
    if kind not in _WITH_EDGE_DIM - {"torch_geometric.nn.GATConv"} and kind not in _BY_WIDTH:  # GATConv ignores them
        return
    name = kind.rsplit(".", 1)[1]
    msg = f"{where}: {name} is given weights of edges as edge_attr, and reads attributes, with edge_dim: leave them out"
    raise ExportError(msg.replace("edge_dim", "dim" if name == "CGConv" else "edge_dim"))


_BY_WIDTH = {"torch_geometric.nn.CGConv", "torch_geometric.nn.GENConv"}


def class_name(value: Any) -> str:
    """Return the full name of the value's class; of a private module the public package's, e.g. torch.nn.ReLU."""
    kind = type(value)
    for package in ("torch.nn", "torch_geometric.nn"):
        is_in = kind.__module__.startswith(package + ".")
        if is_in and getattr(sys.modules.get(package), kind.__name__, None) is kind:
            return f"{package}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def parts_of(module: Module) -> list[tuple[str, Module]]:
    """Return the names and parts of a list or Sequential in order: one that stands in two places twice.

    `named_children` has it once.
    """
    return [(name, part) for name, part in module._modules.items() if part is not None]


def head_of(module: Module, name: str) -> Module:
    """Return the submodule that `head=` names.

    Raises: ExportError where there is none.
    """
    try:
        return module.get_submodule(name)
    except AttributeError:
        names = ", ".join(name for name, _ in module.named_children())
        msg = f"head={name!r} is no submodule; there are {names}"
        raise ExportError(msg) from None


def refuse_other(step: Step, name: str, part: Any, *expected: str) -> None:
    """Refuse a part that was put in the place of the one that a class makes: it may do anything.

    Raises: ExportError naming it, where it is of none of the expected classes.
    """
    if class_name(part) not in expected:
        refuse(f"{step.name}: its {name} is a {class_name(part)}, expected {expected[0]}")


def refuse_no_act(step: Step, parts: Sequence[Any]) -> None:
    """Refuse a network of a PNAConv that calls None between its layers.

    Raises: ExportError
    """
    if None in parts:
        msg = f"{step.name}: PNAConv with act=None and more than one layer is not supported: "
        raise ExportError(msg + "PyTorch Geometric cannot run it either")


def is_against(module: Any) -> bool:
    """Return whether a module is a conv of PyG's, also one that is read, whose messages flow against the edges."""
    if not isinstance(module, MessagePassing) or module.flow != "target_to_source":
        return False
    of_pyg = type(module).__module__.startswith("torch_geometric.")
    return (of_pyg or not is_read(module)) and written_class(module) is None


def along(module: Any) -> Any:
    """Return a conv whose messages flow against the edges as one whose messages flow along them."""
    made = copy(module)
    made.flow = "source_to_target"
    return made


def check_conv(step: Step) -> None:
    """Refuse the options of PyG's MessagePassing that no layer here has.

    Raises: ExportError
    """
    conv: Any = step.op
    if conv.flow != "source_to_target":
        msg = f"{step.name}: flow={conv.flow!r} is not supported, messages flow source_to_target. Nearest: that "
        msg += "flow, and edges the other way round in the stream"
        raise ExportError(msg).of(INSIDE)
    if conv.decomposed_layers > 1:
        refuse(f"{step.name}: decomposed_layers={conv.decomposed_layers} is not supported")


def check_attributes(step: Step) -> None:
    """Refuse a conv that reads attributes of edges and is handed none.

    Raises: ExportError
    """
    if not step.attributes:
        kind = class_name(step.op).rsplit(".", 1)[1]
        refuse(f"{step.name}: {kind} is called without attributes of edges: hand it edge_attr")


def array_of(step: Step, tensor: Tensor) -> np.ndarray:
    """Return a tensor's values as float32.

    Raises: ExportError where a lazy module has not got it yet.
    """
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        refuse(f"{step.name}: its size is not known yet (in_channels=-1); run the module once before exporting it")
    values: np.ndarray = tensor.detach().cpu().float().numpy()
    return np.array(values, np.float32)


Weights = dict[str, np.ndarray]
Converted = tuple[Layer, Weights]


def tensors(step: Step, **modules: Any) -> Weights:
    """Return weight and bias of these modules, as `name.weight` and `name.bias`."""
    found: Weights = {}
    for name, module in modules.items():
        refuse_other(step, name, module, "torch_geometric.nn.Linear", "torch.nn.Linear")
        found[f"{name}.weight"] = array_of(step, module.weight)
        if module.bias is not None:
            found[f"{name}.bias"] = array_of(step, module.bias)
    return found


def written_class(module: Any) -> str | None:
    """Return the name of the loaded class that stands for a module, PACKAGE.MODULE:CLASS; None where none does.

    Raises: ExportError where several do.
    """
    found = classes_of(type(module))
    if len(found) > 1:
        refuse(f"{type(module).__name__}: {' and '.join(found)} are all of it; load one of them")
    return found[0] if found else None


def reads_targets(code: str) -> bool:
    """Return whether a class has a function of rows of targets."""
    layer = layer_class(code, None)
    return layer.has("target") or layer.has("own")
