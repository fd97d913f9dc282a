"""Runs of a conv of the user's own on random graphs, whose operations are noted."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch.utils._python_dispatch import _disable_current_modes, _len_torch_dispatch_stack

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.aggregators import AGGREGATORS, kinds_of
from freshet.gnn.pyg.forward.tracer import blamed, place_here
from freshet.gnn.pyg.own.edges import aggregated, scatter, softmax
from freshet.gnn.pyg.own.loops import add_self_loops, gcn_norm, remove_self_loops
from freshet.gnn.pyg.own.notes import NOTES
from freshet.gnn.pyg.own.recorder import Note, NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import LOOPS, Over, Value, difference
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.steps import ConvCall, Step

_SIZES = ((131, 521, 173), (137, 541, 179), (139, 547, 181), (149, 557, 191), (151, 563, 193), (157, 569, 197))
"""Numbers of vertices, edges and sources of another kind: primes, so that no width of a layer is likely to be one."""


class ConvWidths(NamedTuple):
    """Widths of the rows that a conv reads, and of attributes; `target` of those of targets of another kind, or 0."""

    rows: int
    attributes: int
    target: int = 0


def read(step: Step, given: ConvCall, widths: ConvWidths) -> Value:
    """Return the rows that a conv makes, as a value of rows, edges, weights and attributes.

    Raises: ExportError naming the place of the first operation that cannot be read.
    """
    conv: Any = step.op
    taken = {n for one in (*conv.parameters(), *conv.buffers()) for n in one.shape} | set(widths)
    sizes = [one for one in _SIZES if not taken & set(one)][:2]
    made = [_run(step, given, widths, size, seed) for seed, size in enumerate(sizes)]
    if (found := difference(made[0], made[1])) is not None:
        msg = f"{found.place or step.name}: it computes with numbers that depend on the graph, as its size or a value "
        raise ExportError(msg + "that leaves torch. Nearest: leave them out, or keep what they are as a constant")
    return made[0]


def fitting(
    step: Step, given: ConvCall, widths: Iterable[ConvWidths], failed: Callable[[str], object] = lambda _: None
) -> Iterator[ConvWidths]:
    """Yield widths of rows and attributes with which a conv runs on a small graph; `failed` gets the others' errors."""
    clone = clone_of(step.op)
    with torch.no_grad():
        for one in widths:
            arguments = _arguments(given, _inputs(given, one, (13, 29, 17), 0))
            try:
                made = clone(**arguments)
            except Exception as error:  # whatever it is, these are not the widths
                shown = f"{one.rows} and {one.target}" if one.target else str(one.rows)
                failed(f"with rows of width {shown} it raises {type(error).__name__}: {error}")
                continue
            if isinstance(made, torch.Tensor):
                yield one


Size = tuple[int, int, int]
_TARGETS = "rows of targets"


def _inputs(given: ConvCall, widths: ConvWidths, size: Size, seed: int) -> dict[str, tuple[torch.Tensor, Value, int]]:
    """Return the tensors of a random graph without self-loops, with what they hold, by parameter.

    Rows of targets of another kind stand under a name of their own.
    """
    vertices, edges, sources = size
    random = torch.Generator().manual_seed(seed)
    if widths.target:
        pairs = torch.randperm(sources * vertices, generator=random)[:edges]
        edge_index = torch.stack([pairs // vertices, pairs % vertices])
        rows = torch.randn(sources, widths.rows, generator=random)
        inputs = {given.rows: (rows, Value("rows", widths.rows, "sources", name="source"), 0)}
        rows = torch.randn(vertices, widths.target, generator=random)
        inputs[_TARGETS] = (rows, Value("rows", widths.target, "vertices", name="target"), 0)
    else:
        pairs = torch.randperm(vertices * (vertices - 1), generator=random)[:edges]
        src, dst = pairs // (vertices - 1), pairs % (vertices - 1)
        edge_index = torch.stack([src, dst + (dst >= src)])
        rows = torch.randn(vertices, widths.rows, generator=random)
        inputs = {given.rows: (rows, Value("rows", widths.rows, "vertices"), 0)}
    inputs[given.edges] = (edge_index, Value("edges", 2, "edges"), 1)
    if given.weights is not None:
        inputs[given.weights] = (torch.rand(edges, generator=random) + 0.5, Value("weight", 1, "edges"), 0)
    if given.attributes is not None:
        rows = torch.randn(edges, widths.attributes, generator=random)
        inputs[given.attributes] = (rows, Value("attr", widths.attributes, "edges"), 0)
    return inputs


def _arguments(given: ConvCall, inputs: Mapping[str, tuple[torch.Tensor, Value, int]]) -> dict[str, Any]:
    """Return what a conv is called with."""
    found: dict[str, Any] = {name: tensor for name, (tensor, _, _) in inputs.items()} | dict(given.constants)
    targets = found.pop(_TARGETS, found[given.rows])
    return found | ({given.rows: (found[given.rows], targets)} if given.pair else {})


def _run(step: Step, given: ConvCall, widths: ConvWidths, size: Size, seed: int) -> Value:
    inputs, (vertices, edges, sources) = _inputs(given, widths, size, seed), size
    clone = clone_of(step.op)
    of_edges: dict[Over, int] = {over: edges + adds * vertices for over, (adds, _) in LOOPS.items()}
    sizes: dict[Over, int] = {"vertices": vertices, **of_edges}
    recorder = Recorder(sizes | ({"sources": sources} if widths.target else {}), NOTES)
    for tensor, value, axis in inputs.values():
        recorder.note(tensor, NotedValue(value, axis))
    return _result(step, recorder, clone, _arguments(given, inputs))


def _result(step: Step, recorder: Recorder, clone: Any, arguments: Mapping[str, Any]) -> Value:
    aggregation = getattr(clone, "aggr_module", None)
    if aggregation is not None:
        clone.aggr_module = _Recorded(recorder, step, aggregation)
    try:
        with torch.no_grad(), _noting(recorder, type(clone)), recorder:
            made = clone(**arguments)
    except ExportError:
        raise
    except Exception as error:
        place, _ = blamed(error)
        msg = f"{step.name}: {type(clone).__name__} fails on a random graph{' at ' + place if place else ''} "
        raise ExportError(msg + f"({type(error).__name__}: {error})") from error
    noted = recorder.find(made)
    if noted is None or noted.value.over != "vertices" or noted.axis != 0 or made.dim() != 2:
        shape = f"a tensor of {made.dim()} dimensions" if isinstance(made, torch.Tensor) else type(made).__name__
        msg = f"{step.name}: {type(clone).__name__} returns {shape}, expected the rows of the vertices, (n, width)"
        raise ExportError(msg)
    return noted.value


_NOTED: dict[str, Note] = {
    "softmax": softmax,
    "scatter": scatter,
    "gcn_norm": gcn_norm,
    **dict.fromkeys(("add_self_loops", "add_remaining_self_loops"), add_self_loops),
    "remove_self_loops": remove_self_loops,
}
"""PyG's functions of edges that are noted as one operation."""


class _Recorded(Module):
    """An aggregation whose result is noted as one operation."""

    def __init__(self, recorder: Recorder, step: Step, aggregation: Any) -> None:
        """Take the aggregation of a conv."""
        super().__init__()
        several = hasattr(aggregation, "aggrs")
        allowed = AGGREGATORS if several else (*AGGREGATORS, "softmax")
        kinds = kinds_of(step, aggregation, allowed, several=True)
        self._kinds = (kinds,) if isinstance(kinds, str) else kinds
        self._recorder, self._aggregation = recorder, aggregation

    def forward(
        self, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2, **more: Any
    ) -> torch.Tensor:
        """Return the aggregate of messages, or several side by side."""
        call = Operation("aggregate", self._aggregation, (x, index), {}, None, place_here())
        if ptr is not None or any(one is not None for one in more.values()):
            call.refuse("its aggregate is called with more than messages and index")
        if self._kinds == ("softmax",):
            return self._softmax(x, index, dim_size, dim)
        with _disable_current_modes():
            whole = self._aggregation(x, index=index, dim_size=dim_size, dim=dim)
            parts = [one.contiguous() for one in whole.chunk(len(self._kinds), dim=-1)]
        for part, kind in zip(parts, self._kinds, strict=True):
            self._recorder.note(part, aggregated(self._recorder, call, x, index, dim, kind))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _softmax(self, x: torch.Tensor, index: Any, dim_size: Any, dim: int) -> torch.Tensor:
        """Return the sum of messages, each channel weighed by the softmax of its values times the temperature."""
        from torch_geometric import utils

        t: Any = self._aggregation.t
        weighed = x * utils.softmax(x if isinstance(t, int | float) and t == 1 else x * t, index, None, dim_size, dim)
        return utils.scatter(weighed, index, dim=dim, dim_size=dim_size, reduce="sum")


def _noted(recorder: Recorder, name: str, function: Callable[..., Any], note: Note) -> Callable[..., Any]:
    """Return a function of edges whose result is noted as one operation."""

    def called(*args: Any, **options: Any) -> Any:
        if not _len_torch_dispatch_stack():  # inside another one
            return function(*args, **options)
        made = note(recorder, Operation(name, function, args, options, None, place_here()))
        with _disable_current_modes():
            result = function(*args, **options)
        recorder.note_all(result, made)
        return result

    return called


@contextmanager
def _noting(recorder: Recorder, kind: type) -> Iterator[None]:
    """Have PyG's functions of edges noted as one operation each, under whatever names the code of a class has them."""
    from torch_geometric import utils
    from torch_geometric.nn.conv import gcn_conv

    functions = {name: getattr(gcn_conv if name == "gcn_norm" else utils, name) for name in _NOTED}
    hooks = {id(one): _noted(recorder, name, one, _NOTED[name]) for name, one in functions.items()}
    homes = [vars(utils), vars(gcn_conv)]
    for base in kind.__mro__:
        if base.__module__ not in ("builtins", "torch.nn.modules.module"):
            homes.append(vars(sys.modules[base.__module__]))
            homes += [f.__globals__ for f in vars(base).values() if inspect.isfunction(f)]
    before = [(home, name, value) for home in homes for name, value in list(home.items()) if id(value) in hooks]
    try:
        for home, name, value in before:
            home[name] = hooks[id(value)]
        yield
    finally:
        for home, name, value in before:
            home[name] = value
