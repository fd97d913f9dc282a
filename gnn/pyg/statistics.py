"""Statistics over all vertices of a module, and weights of its HANConvs, frozen on the graph of `stats_from`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import Module
from torch.nn.functional import one_hot

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.kinds.calling import ModuleCall
from freshet.gnn.pyg.kinds.convs.by_kinds import Attention, attention_of, is_han, replay
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRows
from freshet.gnn.pyg.norms import reads_whole_graph
from freshet.gnn.pyg.running import clone_of, forget
from freshet.gnn.pyg.steps import Step, class_name
from freshet.gnn.rows import full_pass
from freshet.gnn.rows.norms import Frozen, FrozenNorm

Taken = tuple[FrozenNorm, dict[str, np.ndarray]]

_TOLERANCE = 1e-4
_EXPECTED_PLAIN = "expected (x, edge_index) or (x, edge_index, edge_weight)"
_EXPECTED = "expected a HeteroData, or (x_dict, edge_index_dict[, edge_weight_dict][, edge_attr_dict])"
_EXPECTED_TYPED = "expected a Data with edge_type, or (x, edge_index, edge_type)"


class Statistics:
    """Frozen parts of a module, call by call of forward: its norms, and the weights of relations in its HANConvs."""

    def __init__(self, module: Module) -> None:
        """Begin without any."""
        self._names = {id(part): name for name, part in module.named_modules()}
        self._found: dict[str, list[Taken]] = {}
        self._taken: dict[str, int] = {}
        self._attention: dict[str, list[Attention]] = {}

    def add(self, name: str, taken: Taken) -> None:
        """Note the next call of the norm of that name."""
        self._found.setdefault(name, []).append(taken)

    def take(self, step: Step) -> Taken:
        """Return what the norm of a step has become; of a norm that is called more than once, call by call.

        Raises: ExportError for a norm that forward did not call.
        """
        name = self._names.get(id(step.op), step.name)
        found, at = self._found.get(name, []), self._taken.get(name, 0)
        if at >= len(found):
            refuse(f"{step.name}: the module did not call it {at + 1} times on the graph of stats_from")
        self._taken[name] = at + 1
        return found[at]

    def attend(self, name: str, found: Attention) -> None:
        """Note the weights in the next call of the HANConv of that name."""
        self._attention.setdefault(name, []).append(found)

    def attention(self, name: str, call: int) -> Attention:
        """Return the weights in a call of a HANConv, counted from 0.

        Raises: ExportError for a call that there was not.
        """
        calls = self._attention.get(name, [])
        if call >= len(calls):
            refuse(f"{name}: the module did not call it {call + 1} times on the graph of stats_from")
        return calls[call]

    def put_into(self, clone: Module) -> None:
        """Have the norms and HANConvs of a copy of the module give what the frozen ones give."""
        for name, found in self._found.items():
            clone.get_submodule(name).register_forward_hook(_Replay(found))
        for name, calls in self._attention.items():
            clone.get_submodule(name).register_forward_hook(replay(calls), with_kwargs=True)

    def freeze(self, ops: KindsOperations) -> None:
        """Put what norms have become in their places among the operations.

        Raises: ExportError for a norm that was called more often than it is read.
        """
        for name, op in ops.made.items():
            if isinstance(op, OnRows) and reads_whole_graph(op.step.op) is not None:
                layer, weights = self.take(op.step)
                ops.made[name] = op._replace(step=Step(op.step.name, layer, weights=weights))
        for name, found in self._found.items():
            if 0 < (taken := self._taken.get(name, 0)) < len(found):
                msg = f"{name}: the module calls it {len(found)} times, of which the returned rows read {taken}: "
                raise ExportError(msg + "use a norm of its own for each kind")


class _Replay:
    """A hook that answers in a norm's stead."""

    def __init__(self, found: list[Taken]) -> None:
        self._found, self._at = found, 0

    def __call__(self, module: Any, args: Any, result: Any) -> Any:
        layer, weights = self._found[self._at % len(self._found)]
        self._at += 1
        return torch.from_numpy(_applied(layer, weights, args[0].numpy().astype(np.float64))).to(args[0].dtype)


def gather(module: Module, call: ModuleCall, kinds: Metadata, given: Any) -> Statistics:
    """Run the module on the graph of `stats_from` and freeze what it reads of all vertices there.

    `given` are inputs, or a graph as a user gives it.

    Raises: ExportError when the graph is no such, or the module cannot run on it, or a frozen norm does not give what
    the norm gave.
    """
    inputs = given
    if not isinstance(given, ModuleInputs):
        if call.types is not None and call.attributes is not None:
            refuse("stats_from: a module that reads attributes of edges and their types is not supported yet")
        inputs = _typed_inputs(given) if call.types is not None else _inputs(given, kinds)
    found, clone = Statistics(module), clone_of(module)
    for name, part in clone.named_modules():
        if (kind := reads_whole_graph(part)) is not None:
            part.register_forward_hook(_freezing(found, name, kind))
        elif is_han(part):
            part.register_forward_hook(partial(_attending, found, name), with_kwargs=True)
    try:
        forget(clone)
        with torch.no_grad():
            call(clone, kinds, inputs)
    except ExportError:
        raise
    except Exception as error:
        msg = f"stats_from: the module cannot run on this graph ({_shapes(kinds, inputs)}): "
        raise ExportError(msg + (f"{type(error).__name__}: " if kinds.are_named else "") + str(error)) from None
    return found


def _shapes(kinds: Metadata, given: ModuleInputs) -> str:
    """Say what a module was called with."""
    if kinds.are_named:
        return f"x of {', '.join(f'{n} {tuple(x.shape)}' for n, x in zip(kinds.names, given.rows, strict=True))}"
    named = {"x": given.rows[0], "edge_index": given.edges[0], "edge_weight": given.weights[0]}
    named |= {"edge_attr": given.attributes[0]} if given.attributes[0].shape[1] else {}
    return f"{', '.join(named)} of shapes {', '.join(str(tuple(one.shape)) for one in named.values())}"


def _attending(found: Statistics, name: str, module: Any, args: Any, kwargs: Any, result: Any) -> None:
    found.attend(name, attention_of(name, module, args, kwargs))


def plain_inputs(stats_from: Any) -> ModuleInputs:
    """Return the graph of (x, edge_index), (x, edge_index, edge_weight), or of an object with these attributes.

    Raises: ExportError saying what was given.
    """
    given = stats_from
    if hasattr(given, "x") and hasattr(given, "edge_index"):
        given = (given.x, given.edge_index, *(getattr(given, name, None) for name in ("edge_weight", "edge_attr")))
    attr = None
    if isinstance(given, tuple | list) and len(given) == 4:
        *given, attr = given
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        refuse(f"stats_from: got {type(stats_from).__name__}, {_EXPECTED_PLAIN}")
    try:
        x, edges = (torch.as_tensor(value).detach().cpu().numpy() for value in given[:2])
        weights = None if len(given) == 2 or given[2] is None else torch.as_tensor(given[2]).detach().cpu().numpy()
    except (TypeError, ValueError, RuntimeError) as error:
        msg = f"stats_from: {error}; {_EXPECTED_PLAIN}"
        raise ExportError(msg) from None
    if x.ndim != 2 or not len(x) or edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        msg = f"stats_from: got x {x.dtype} {x.shape}, edge_index {edges.dtype} {edges.shape}; "
        raise ExportError(msg + f"{_EXPECTED_PLAIN}, not empty")
    weights = np.ones(edges.shape[1]) if weights is None else weights.reshape(-1)
    if len(weights) != edges.shape[1]:
        refuse(f"stats_from: got {len(weights)} weights for {edges.shape[1]} edges")
    attributes = _attributes(attr, edges.shape[1])
    arrays = x.astype(np.float32), edges.astype(np.int64), weights.astype(np.float32), attributes
    return ModuleInputs(*([torch.from_numpy(one)] for one in arrays))


def with_columns_of_types(inputs: ModuleInputs, stats_from: Any, many: int) -> ModuleInputs:
    """Return the inputs of a graph with a column for each of `many` types in front of the attributes of its edges.

    Raises: ExportError where it has no edge_type, or others.
    """
    types: Any = getattr(stats_from, "edge_type", None)
    fits = isinstance(types, torch.Tensor) and types.dtype == torch.int64 and types.shape == inputs.weights[0].shape
    if not fits or bool(((types < 0) | (types >= many)).any()):
        refuse(f"stats_from: the module reads types of edges: give a Data with edge_type, numbers below {many}")
    return inputs._replace(attributes=[torch.cat([one_hot(types, many).float(), *inputs.attributes], dim=1)])


def _attributes(given: Any, edges: int) -> np.ndarray:
    """The attributes of the edges, (edges, width) float32.

    Raises: ExportError where they are others.
    """
    if given is None:
        return np.zeros((edges, 0), np.float32)
    attr = torch.as_tensor(given).detach().cpu().numpy().astype(np.float32)
    attr = attr[:, None] if attr.ndim == 1 else attr
    if attr.ndim != 2 or len(attr) != edges:
        refuse(f"stats_from: got edge_attr of shape {attr.shape} for {edges} edges, expected a row for each")
    return attr


def _typed_inputs(given: Any) -> ModuleInputs:
    if all(hasattr(given, name) for name in ("x", "edge_index", "edge_type")):
        x = _numbers(given.num_nodes) if given.x is None else given.x
        given = (x, given.edge_index, given.edge_type)
    if not isinstance(given, tuple | list) or len(given) != 3:
        refuse(f"stats_from: got {type(given).__name__}, {_EXPECTED_TYPED}")
    x, edges, types = (_tensor("", one) for one in given)
    return ModuleInputs([x], [edges], [], [], types, [_numbers(len(x))])


def _inputs(given: Any, kinds: Metadata) -> ModuleInputs:
    """Return what a module takes of a graph, by kind and by relation."""
    x, edges, weights, attributes, ids = _dicts(given, kinds)
    rows, found, numbers = list[Any](), list[Any](), list[Any]()
    for kind in kinds.names:
        if kind not in x and kind not in ids:
            refuse(f"stats_from has no vertices of kind {kind!r}; it has {', '.join(map(repr, x)) or 'none'}")
        rows.append(_tensor(kind, x[kind] if kind in x else ids[kind]))
        numbers.append(_tensor(kind, ids[kind]) if kind in ids else _numbers(len(rows[-1])))
    named = list[Any]()  # the relation whose edges each one has
    for number, relation in enumerate(kinds.relations):
        of = kinds.mirrors[number]
        if relation in edges:
            named.append(relation)
            found.append(_tensor(str(relation), edges[relation]))
        elif of is not None and kinds.relations[of] in edges:
            named.append(kinds.relations[of])
            found.append(_tensor(str(relation), edges[kinds.relations[of]]).flip(0))
        else:
            refuse(f"stats_from has no edges of {relation}; it has {', '.join(map(str, edges)) or 'none'}")
    of_edges = [[one.get(relation) for relation in named] for one in (weights, attributes)]
    counts = [one.shape[1] for one in found]
    w = [torch.ones(n) if one is None else _tensor("", one) for n, one in zip(counts, of_edges[0], strict=True)]
    a = [torch.zeros(n, 0) if one is None else _tensor("", one) for n, one in zip(counts, of_edges[1], strict=True)]
    return ModuleInputs(rows, found, w, a, None, numbers)


def _dicts(given: Any, kinds: Metadata) -> list[Mapping[Any, Any]]:
    """Rows, edges, weights, attributes and ids of a graph, where it has them.

    Raises: ExportError saying what was given.
    """
    if hasattr(given, "node_types") and hasattr(given, "edge_types"):
        stores = [(relation, given[relation]) for relation in given.edge_types]
        edges = [
            {relation: store[name] for relation, store in stores if name in store}
            for name in ("edge_index", "edge_weight", "edge_attr")
        ]
        x = {kind: given[kind].x for kind in given.node_types if "x" in given[kind]}
        ids = {}
        for kind in given.node_types:
            name = next((name for name in ("node_id", "n_id") if name in given[kind]), None)
            if name is not None or kind not in x:
                ids[kind] = _numbers(given[kind].num_nodes) if name is None else given[kind][name]
        return [x, *edges, ids]
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= 5 or not isinstance(given[0], Mapping):
        refuse(f"stats_from: got {type(given).__name__}, {_EXPECTED}")
    return [{} if one is None else one for one in (*given, *[None] * (5 - len(given)))]


def _tensor(of: str, given: Any) -> Any:
    try:
        return torch.as_tensor(np.asarray(given) if isinstance(given, list) else given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        msg = f"stats_from: {of}: {error}; {_EXPECTED}"
        raise ExportError(msg) from None


def _numbers(count: int) -> Any:
    return torch.arange(count)


def _freezing(found: Statistics, name: str, kind: Frozen) -> Any:
    """Return a hook that freezes a norm at what it reads in each call, and notes that under its name.

    It raises: ExportError where a frozen norm does not give what the norm gave.
    """

    def hook(module: Any, args: Any, result: Any) -> None:
        rows = args[0].numpy().astype(np.float64)
        layer, weights = freeze(kind, module, rows)
        made = _applied(layer, weights, rows)
        off, size = np.abs(made - result.numpy()).max(initial=0), np.abs(made).max(initial=0)
        terms = np.abs(rows * weights["scale"]) + np.abs(weights["shift"]) if layer.length is None else size
        if not off <= _TOLERANCE * max(size, np.max(terms, initial=0)):
            refuse(f"{name}: {class_name(module)} gives something other than its formula on stats_from, by {off:.3g}")
        found.add(name, (layer, weights))

    return hook


def _applied(layer: FrozenNorm, weights: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    made = full_pass.apply(layer, weights, rows)
    assert made is not None  # frozen norms have a full pass
    return made


def freeze(kind: Frozen, module: Any, rows: np.ndarray) -> Taken:
    """Return a norm over all vertices as it is for these rows.

    Shapes: rows (n, channels) float64, of all vertices
    Source: torch_geometric.nn.norm of version 2.8.1, `batch=None`
    """
    norm = getattr(module, "module", module)
    mean, length = rows.mean(axis=0), None
    weight, bias = (_parameter(norm, name, fallback) for name, fallback in (("weight", 1.0), ("bias", 0.0)))
    if kind == "graph_norm":
        mean = mean * _parameter(norm, "mean_scale", 1.0)
        scale = weight / np.sqrt(((rows - mean) ** 2).mean(axis=0) + norm.eps)
    elif kind == "layer_norm":
        mean = np.full(rows.shape[1], rows.mean())
        scale = weight / (rows.std() + norm.eps)
    elif kind in ("instance_norm", "batch_norm"):
        scale = weight / np.sqrt(rows.var(axis=0) + norm.eps)
    elif kind == "graph_size_norm":
        mean, scale = np.zeros(rows.shape[1]), np.full(rows.shape[1], len(rows) ** -0.5)
    elif kind == "pair_norm" and norm.scale_individually:
        scale, length = np.ones(rows.shape[1]), float(norm.scale)
    elif kind == "pair_norm":
        scale = np.full(rows.shape[1], norm.scale / np.sqrt(norm.eps + ((rows - mean) ** 2).sum(axis=1).mean()))
    else:
        scale = np.ones(rows.shape[1])
    scale = np.broadcast_to(scale, mean.shape)
    weights = {"scale": scale.astype(np.float32), "shift": (bias - mean * scale).astype(np.float32)}
    eps = 0.0 if length is None else float(norm.eps)
    return FrozenNorm(of=kind, channels=rows.shape[1], length=length, eps=eps), weights


def _parameter(norm: Any, name: str, fallback: float) -> np.ndarray:
    value = getattr(norm, name, None)
    return np.array(fallback) if value is None else value.detach().cpu().double().numpy()
