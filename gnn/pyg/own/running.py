"""Runs of a conv of the user's own on random graphs, whose operations are noted."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes, _len_torch_dispatch_stack
from torch_geometric import utils
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import gcn_conv

from freshet.gnn.pyg.encoded_conv import EncodedConv
from freshet.gnn.pyg.errors import PER_EDGE, ExportError, refuse
from freshet.gnn.pyg.forward.edge_functions import function_of_edges, replaced
from freshet.gnn.pyg.forward.places import blamed, place_here
from freshet.gnn.pyg.forward.sizes import Guard, Sizes, Supposed, without
from freshet.gnn.pyg.own.aggregations import record_aggregations
from freshet.gnn.pyg.own.categories import drawn
from freshet.gnn.pyg.own.edges import (
    add_self_loops,
    gcn_norm,
    get_laplacian,
    remove_self_loops,
    scatter,
    softmax,
)
from freshet.gnn.pyg.own.notes import NOTES
from freshet.gnn.pyg.own.recorder import Note, NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.sizes import Reading, RecordedSizes, explored, lengths_recorded, plain, scripts_refused
from freshet.gnn.pyg.own.values import LOOPS, Over, Value, difference
from freshet.gnn.pyg.read_convs import readable
from freshet.gnn.pyg.refusals import OF_PAIRS
from freshet.gnn.pyg.running import changed_numbers, clone_of, keeping, kept_numbers, new_numbers
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
    taken |= {width for _, width in given.joined}
    sizes = [one for one in _SIZES if not any(n and n % size == 0 for n in taken for size in one)][:2]
    counts, called = _counted(given, widths, clone_of(step.op)), clone_of(step.op)
    if new := _counted_later(given, widths, called):
        counts, step = counts | new, step._replace(op=called)

    def run(supposed: Sizes) -> Reading:
        guards = list[Guard]()
        try:
            return Reading(supposed, guards, _run(step, given, widths, (sizes[0], 0), counts, supposed, guards))
        except ExportError as error:  # what cannot be read makes no row of no vertices
            if not isinstance(error, _RaisesError) and "vertices" not in without(supposed):
                raise
            return Reading(supposed, guards, None, error)

    real = _real(widths, sizes[0], counts)
    made = [
        explored(run, real, partial(_alike_without_edges, step, given, widths, real)),
        _run(step, given, widths, (sizes[1], 1), counts),
    ]
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
            try:
                made = _called(clone, given, _inputs(given, one, (13, 29, 17), 0))
            except Exception as error:  # whatever it is, these are not the widths
                shown = f"{one.rows} and {one.target}" if one.target else str(one.rows)
                failed(f"with rows of width {shown} it raises {type(error).__name__}: {error}")
                continue
            if isinstance(made, torch.Tensor):
                yield one


Size = tuple[int, int, int]
_TARGETS = "rows of targets"
_RUNS = 3


def _inputs(given: ConvCall, widths: ConvWidths, size: Size, seed: int) -> dict[str, tuple[torch.Tensor, Value, int]]:
    """Return the tensors of a random graph without self-loops, with what they hold, by parameter.

    Rows of targets of another kind stand under a name of their own.
    """
    vertices, edges, sources = size
    random = torch.Generator().manual_seed(seed)
    inputs = dict[str, tuple[torch.Tensor, Value, int]]()
    if given.joined:
        parameters = given.parameters or [f"rows{i}" for i in range(len(given.joined))]
        for parameter, (name, width) in zip(parameters, given.joined, strict=True):
            rows = torch.randn(vertices, width or widths.rows, generator=random)
            inputs[parameter] = (rows, Value("rows", width or widths.rows, "vertices", name=name), 0)
        if not given.parameters:
            return inputs
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
        if not given.joined:
            rows = torch.randn(vertices, widths.rows, generator=random)
            inputs = {given.rows: (rows, Value("rows", widths.rows, "vertices"), 0)}
    inputs[given.edges] = (edge_index, Value("edges", 2, "edges"), 1)
    if given.weights is not None:
        inputs[given.weights] = (torch.rand(edges, generator=random) + 0.5, Value("weight", 1, "edges"), 0)
    if given.attributes is not None:
        inputs[given.attributes] = (*drawn(edges, widths.attributes, given.categories, random), 0)
    return inputs


def _called(clone: Any, given: ConvCall, inputs: Mapping[str, tuple[torch.Tensor, Value, int]]) -> Any:
    """Return what a conv gives: of several results the one that is read."""
    return given.result(clone(**_arguments(given, inputs)))


def _arguments(given: ConvCall, inputs: Mapping[str, tuple[torch.Tensor, Value, int]]) -> dict[str, Any]:
    """Return what a conv is called with."""
    found: dict[str, Any] = {name: tensor for name, (tensor, _, _) in inputs.items()} | dict(given.constants)
    if given.joined:
        return found
    targets = found.pop(_TARGETS, found[given.rows])
    return found | ({given.rows: (found[given.rows], targets)} if given.pair else {})


def _real(widths: ConvWidths, size: Size, counts: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a graph by their names, and the numbers that a conv counts by itself."""
    vertices, edges, sources = size
    real = {"vertices": vertices, "edges": edges, **counts}
    return real | ({"sources": sources} if widths.target else {})


def _counted(given: ConvCall, widths: ConvWidths, clone: Any) -> dict[str, Any]:
    """Return the numbers that a conv keeps and that a call changes, by their names; of buffers the names alone.

    Raises: ExportError where it draws at random by other means than torch.
    """
    for _ in range(_RUNS):  # another thread may draw meanwhile
        before, drawn = kept_numbers(clone), _draws()
        buffers = {name: one.clone() for name, one in clone.named_buffers()}
        with suppress(Exception), torch.no_grad():  # of which the next run says more
            _called(clone, given, _inputs(given, widths, (13, 29, 17), 0))
        if drawn == _draws():
            break
    else:
        refuse(f"{type(clone).__name__} draws at random at inference, too; put it behind `if self.training`")
    changed = [name for name, one in clone.named_buffers() if not torch.equal(one, buffers.get(name, one))]
    return changed_numbers(before, clone) | dict.fromkeys(changed, 0)


def _counted_later(given: ConvCall, widths: ConvWidths, clone: Any) -> dict[str, Any]:
    """Return the numbers that the first call of a conv makes and the next ones change; the clone has been called."""
    before = kept_numbers(clone)
    _counted(given, widths, clone)
    if not new_numbers(before, clone):
        return {}
    counts = _counted(given, widths, clone)
    return {name: value for name, value in counts.items() if name not in before}


def _alike_without_edges(step: Step, given: ConvCall, widths: ConvWidths, real: Sizes, none: Sizes) -> bool:
    """Return whether a conv gives the same on graphs without edges whether its branches see sizes of such or others.

    True as well where one side cannot be run there: the last check of an export compares the rest.
    """
    size, counts = (real["vertices"], 0, real.get("sources", 0)), {name: real[name] for name in real.keys() - _GRAPH}
    for seed, scale in enumerate((1.0, 0.01, 100.0)):
        made = list[torch.Tensor]()
        for supposed in (real, none):
            clone, inputs = clone_of(step.op), _inputs(given, widths, size, seed)
            for tensor, *_ in inputs.values():
                tensor.mul_(scale) if tensor.is_floating_point() else tensor
            recorded = RecordedSizes(Recorder({}, {}), Supposed(_real(widths, size, counts), supposed))
            try:
                kept = {name: recorded.counted(name) for name in counts.keys() - dict(clone.named_buffers()).keys()}
                with keeping(clone, kept), lengths_recorded():
                    with torch.no_grad(), recorded:
                        rows = _called(clone, given, inputs)
                made.append(rows.double())
            except Exception:  # whatever it is, the whole module is run without edges, too
                return True
        if made[0].shape != made[1].shape or not torch.allclose(*made, rtol=1e-4, atol=1e-6 * scale, equal_nan=True):
            return False
    return True


_GRAPH = {"vertices", "edges", "sources"}


def _draws() -> Any:
    """Return the states of the generators of Python and numpy that all code shares."""
    return random.getstate(), str(np.random.get_state())  # noqa: NPY002 - no other says what legacy functions drew


def _run(
    step: Step,
    given: ConvCall,
    widths: ConvWidths,
    graph: tuple[Size, int],
    counts: Mapping[str, Any],
    supposed: Sizes | None = None,
    guards: list[Guard] | None = None,
) -> Value:
    """Return what a conv makes of a random graph of a size and seed.

    `supposed`: the sizes that its branches see; these go into `guards`.
    """
    size, seed = graph
    inputs, (vertices, edges, sources) = _inputs(given, widths, size, seed), size
    clone = readable(clone_of(step.op))
    of_edges: dict[Over, int] = {over: edges + adds * vertices for over, (adds, _) in LOOPS.items()}
    of_edges["again"] = edges + 2 * vertices
    sizes: dict[Over, int] = {"vertices": vertices, **of_edges}
    recorder = Recorder(sizes | ({"sources": sources} if widths.target else {}), NOTES)
    for tensor, value, axis in inputs.values():
        recorder.note(tensor, NotedValue(value, axis))
    real = _real(widths, size, counts)
    recorded = RecordedSizes(recorder, Supposed(real, supposed, guards))
    buffers = dict(clone.named_buffers())
    for name in counts.keys() & buffers.keys():
        recorder.depends(buffers[name], f"self.{name}")
    with keeping(clone, {name: recorded.counted(name) for name in counts.keys() - buffers.keys()}):
        run = partial(_called, clone, given, inputs)
        return _result(step, recorded, clone, run, other=supposed not in (None, real))


class _RaisesError(ExportError):
    """A conv raises an error of its own, or torch's."""


def _result(step: Step, recorded: RecordedSizes, clone: Any, run: Callable[[], Any], *, other: bool) -> Value:
    """Return what a conv makes; `other`: whether its branches see other sizes, which may leave no row of the graph."""
    recorder = recorded.recorder
    conv = clone.conv if isinstance(clone, EncodedConv) else clone
    homes = [type(conv), *record_aggregations(recorder, step, clone)]
    try:
        with torch.no_grad(), lengths_recorded(), scripts_refused(recorded.supposed):
            with _noting(recorder, homes), recorder, recorded:
                made = run()
    except ExportError:
        raise
    except Exception as error:
        if recorded.supposed.refused is not None:
            raise recorded.supposed.refused from error
        place, _ = blamed(error)
        msg = f"{step.name}: {type(clone).__name__} fails on a random graph{' at ' + place if place else ''} "
        raise _RaisesError(msg + f"({type(error).__name__}: {error})") from error
    if recorded.supposed.refused is not None:
        raise recorded.supposed.refused
    noted = recorder.find(made)
    rows = recorder.sizes["vertices"]
    if other and noted is None and isinstance(made, torch.Tensor) and made.dim() == 2 and len(made) == rows:
        return recorder.shared(Operation("return", None, (made,), {}, made, ""), made, 0)  # type: ignore[arg-type]
    if noted is not None and noted.value.over in LOOPS:
        msg = f"{step.name} is a row for each edge, and Freshet keeps one per vertex. {OF_PAIRS}"
        raise ExportError(msg).of(PER_EDGE)
    dims = (2,) if isinstance(conv, MessagePassing) else (1, 2)  # a function of rows may give numbers
    if noted is None or noted.value.over != "vertices" or noted.axis != 0 or made.dim() not in dims:
        shape = f"a tensor of {made.dim()} dimensions" if isinstance(made, torch.Tensor) else type(made).__name__
        msg = f"{step.name}: {type(clone).__name__} returns {shape}, expected the rows of the vertices, (n, width)"
        msg += "; have a forward take one of several, as self.conv(...)[0]" if isinstance(made, tuple | dict) else ""
        branches = recorded.supposed.guards
        raise ExportError(
            msg + (f", behind a branch on a size of the graph at {branches[0].place}:" if branches else "")
        )
    return noted.value


_NOTED: dict[str, Note] = {
    "softmax": softmax,
    "scatter": scatter,
    "gcn_norm": gcn_norm,
    **dict.fromkeys(("add_self_loops", "add_remaining_self_loops"), add_self_loops),
    "remove_self_loops": remove_self_loops,
    "get_laplacian": get_laplacian,
}
"""PyG's functions of edges that are noted as one operation."""


def _noted(recorder: Recorder, name: str, function: Callable[..., Any], note: Note) -> Callable[..., Any]:
    """Return a function of edges whose result is noted as one operation."""

    def called(*args: Any, **options: Any) -> Any:
        if not _len_torch_dispatch_stack():  # inside another one
            return function(*args, **options)
        args, options = plain(args), plain(options)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            made = note(recorder, Operation(name, function, args, options, None, place_here()))
            result = function(*args, **options)
            recorder.note_all(result, made)
        return result

    return called


@contextmanager
def _noting(recorder: Recorder, kinds: Iterable[type]) -> Iterator[None]:
    """Have PyG's functions of edges noted as one operation each, under whatever names the code of classes has them."""
    homes = [vars(utils), vars(gcn_conv)]
    for base in {base: None for kind in kinds for base in kind.__mro__}:
        if base.__module__ not in ("builtins", "torch.nn.modules.module"):
            homes.append(vars(sys.modules[base.__module__]))
            homes += [f.__globals__ for f in vars(base).values() if inspect.isfunction(f)]
    hooks = {name: _noted(recorder, name, function_of_edges(name), note) for name, note in _NOTED.items()}
    with replaced(homes, hooks):
        yield
