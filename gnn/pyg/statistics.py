"""Statistics of norms over all vertices on the graph of `stats_from`, frozen into scales and shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.norms import reads_whole_graph
from freshet.gnn.pyg.running import clone_of, inputs_of, run
from freshet.gnn.pyg.steps import Step, Traced, class_name
from freshet.gnn.rows import full_pass
from freshet.gnn.rows.norms import Frozen, FrozenNorm
from freshet.schema import WEIGHT, EdgeValues, Graph

if TYPE_CHECKING:
    from torch.nn import Module

Taken = tuple[FrozenNorm, dict[str, np.ndarray]]

_TOLERANCE = 1e-4


class Statistics:
    """The frozen norms of a module: for each of its norms one for each time that forward calls it, in order."""

    def __init__(self, module: Module) -> None:
        """Begin without any."""
        self._names = {id(part): name for name, part in module.named_modules()}
        self._found: dict[str, list[Taken]] = {}
        self._taken: dict[str, int] = {}

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
            msg = f"{step.name}: the module did not call it {at + 1} times on the graph of stats_from"
            raise ExportError(msg)
        self._taken[name] = at + 1
        return found[at]

    def put_into(self, clone: Module) -> None:
        """Have the norms of a copy of the module give what the frozen ones give."""
        for name, found in self._found.items():
            clone.get_submodule(name).register_forward_hook(_Replay(found))


class _Replay:
    """A hook that answers in a norm's stead."""

    def __init__(self, found: list[Taken]) -> None:
        self._found, self._at = found, 0

    def __call__(self, module: Any, args: Any, result: Any) -> Any:
        import torch

        layer, weights = self._found[self._at % len(self._found)]
        self._at += 1
        return torch.from_numpy(_applied(layer, weights, args[0].numpy().astype(np.float64))).to(args[0].dtype)


def gather(module: Module, traced: Traced, head: str | None, graph: Graph) -> Statistics:
    """Run the module on the graph and freeze what its norms over all vertices read there.

    Raises: ExportError when the module cannot run on the graph, or a frozen norm does not give what the norm gave.
    """
    found, clone = Statistics(module), clone_of(module)
    for name, part in clone.named_modules():
        kind = reads_whole_graph(part)
        if kind is not None:
            part.register_forward_hook(freezing(found, name, kind))
    try:
        run(clone, traced, head, graph)
    except (RuntimeError, IndexError, ValueError) as error:
        if isinstance(error, ExportError):
            raise
        names = ["x", "edge_index", "edge_weight", *(["edge_attr"] if graph.values.attr is not None else [])]
        shapes = ", ".join(str(values.shape) for values in inputs_of(graph)[: len(names)])
        msg = f"stats_from: the module cannot run on this graph ({', '.join(names)} of shapes {shapes}): {error}"
        raise ExportError(msg) from None
    return found


def graph_of(stats_from: Any) -> Graph:
    """Return the graph of (x, edge_index), (x, edge_index, edge_weight), or of an object with these attributes.

    Raises: ExportError saying what was given.
    """
    import torch

    given = stats_from
    if hasattr(given, "x") and hasattr(given, "edge_index"):
        given = (given.x, given.edge_index, *(getattr(given, name, None) for name in ("edge_weight", "edge_attr")))
    expected = "expected (x, edge_index) or (x, edge_index, edge_weight)"
    attr = None
    if isinstance(given, tuple | list) and len(given) == 4:
        *given, attr = given
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        msg = f"stats_from: got {type(stats_from).__name__}, {expected}"
        raise ExportError(msg)
    try:
        x, edges = (torch.as_tensor(value).detach().cpu().numpy() for value in given[:2])
        weights = None if len(given) == 2 or given[2] is None else torch.as_tensor(given[2]).detach().cpu().numpy()
    except (TypeError, ValueError, RuntimeError) as error:
        msg = f"stats_from: {error}; {expected}"
        raise ExportError(msg) from None
    if x.ndim != 2 or not len(x) or edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        msg = f"stats_from: got x {x.dtype} {x.shape}, edge_index {edges.dtype} {edges.shape}; {expected}, not empty"
        raise ExportError(msg)
    weights = np.ones(edges.shape[1]) if weights is None else weights.reshape(-1)
    if len(weights) != edges.shape[1]:
        msg = f"stats_from: got {len(weights)} weights for {edges.shape[1]} edges"
        raise ExportError(msg)
    src, dst = edges.astype(np.int64)
    given = {WEIGHT: weights.astype(np.float32)}
    return Graph(x.astype(np.float32), src, dst, EdgeValues(len(src), given, _attributes(attr, len(src))))


def _attributes(given: Any, edges: int) -> np.ndarray | None:
    """The attributes of the edges, (edges, width) float32; None where they have none.

    Raises: ExportError where they are others.
    """
    import torch

    if given is None:
        return None
    attr = torch.as_tensor(given).detach().cpu().numpy().astype(np.float32)
    attr = attr[:, None] if attr.ndim == 1 else attr
    if attr.ndim != 2 or len(attr) != edges:
        msg = f"stats_from: got edge_attr of shape {attr.shape} for {edges} edges, expected a row for each"
        raise ExportError(msg)
    return attr


def freezing(found: Statistics, name: str, kind: Frozen) -> Any:
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
            msg = f"{name}: {class_name(module)} gives something other than its formula on stats_from, by {off:.3g}"
            raise ExportError(msg)
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
