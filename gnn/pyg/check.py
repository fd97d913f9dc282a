"""The last check of an export: the module and the exported model must agree on random graphs, at every size of values.

A difference is judged at each value's own scale (gnn.oracles.own_scale), so that neither small outputs nor large ones
hide it. The module runs in float64, where rounding is no excuse; where it is another function there, or cannot run, it
is held to float32's own error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.module_answers import ModuleAnswer, has_own_messages, tensors_of
from freshet.gnn.oracles import kinds as oracle
from freshet.gnn.oracles import own_scale, whole_graph, whole_kinds
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.plan import compile_plan
from freshet.gnn.pyg.errors import DIFFERS, RECORDED, ExportError
from freshet.gnn.pyg.finite import refuse_rows
from freshet.gnn.pyg.graphs import Graphs
from freshet.gnn.pyg.kinds.looking_up import shortened
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.running import clone_of, what_is_kept
from freshet.kinds_graph import KindsGraph
from freshet.schema import Graph

Made = TypeVar("Made", Model, KindsModel)
TOLERANCE = 1e-4
"""Largest error of float32, as a share of a value's own scale."""
TOLERANCE_OF_FLOAT64 = 1e-6  # weights are rounded to float32
_SMALLEST = 1e-30  # near the smallest normal float32, below which it has no digits
_CALLS = 2100
_FLAT = ". view(-1) and flatten put the numbers of all vertices into one row"

Rows = list[np.ndarray]
"""Embeddings, and logits if there is a head."""


class Theirs(NamedTuple):
    """Copies of the module in both precisions, and how they are run: run(copy, graph, dtype)."""

    in_float32: Module
    in_float64: Module
    run: Callable[[Any, Any, Any], Rows]
    again: Callable[[], Theirs]
    """Makes both copies once more, which keep nothing of former runs."""

    def rows(self, graph: Any) -> Rows:
        """Return the result in float32.

        Raises: ExportError where it fails.
        """
        try:
            return self.run(self.in_float32, graph, np.float32)
        except ExportError:
            raise
        except Exception as error:
            msg = f"the module itself fails on a small graph on the CPU ({type(error).__name__}: {error})"
            raise ExportError(msg) from error

    def exact_rows(self, graph: Any) -> Rows | None:
        """Its results in float64; None for a module that cannot, such as one with float32 constants of its own."""
        try:
            return self.run(self.in_float64, graph, np.float64)
        except Exception:  # whatever it is, float32 did without
            return None


class Ours(NamedTuple):
    """Results of the exported model on a graph: by its plan; and in float64 with scales, given a tolerance."""

    made: Callable[[Any], Rows]
    exact: Callable[[Any, float], list[Scaled]]


def check(theirs: Theirs, ours: Ours, graphs: Graphs) -> float:
    """Return the largest difference of module and model on graphs with weights, self-loops and isolated vertices.

    Differences are relative to a value's own scale. Norms over all vertices are held to what they were frozen to:
    whether that is right was seen on the graph of `stats_from`.

    Raises: ExportError past the tolerance, with the difference.
    """
    sized = list(graphs.sized(large=runs_code(theirs.in_float32)))
    return compare(theirs, ours, list(graphs.trials()), sized)


def runs_code(module: Module) -> bool:
    """Return whether a module has code of the user's own, which may ask for the size of a graph."""
    return any(type(part).__module__.split(".")[0] not in ("torch", "torch_geometric") for part in module.modules())


def theirs_of(module: Module, run: Run) -> Theirs:
    """Return a module, ready to run on graphs."""

    def copies() -> Theirs:
        short = shortened(clone_of(module), run.learned)
        theirs = Theirs(short, clone_of(short).double(), run, copies)
        if run.frozen is not None:
            run.frozen.put_into(theirs.in_float32)
            run.frozen.put_into(theirs.in_float64)
        return theirs

    return copies()


def ours_of(model: Model | KindsModel, graphs: Graphs) -> Ours:
    """Return a model, ready to run on the graphs of its module."""
    if isinstance(model, KindsModel):
        return _ours_of_kinds(model, graphs)
    plan = compile_plan(model)

    def made(graph: KindsGraph) -> Rows:
        rows = whole_graph.forward(plan, Graph(graph.x[0], *graph.edges[0]))[-1]
        return [rows, plan.logits(rows)] if model.head else [rows]

    def exact(graph: KindsGraph, tolerance: float) -> list[Scaled]:
        rows = own_scale.forward(model, Graph(graph.x[0], *graph.edges[0]), tolerance=tolerance)
        return [rows, own_scale.logits(model, rows, tolerance=tolerance)] if model.head else [rows]

    return Ours(made, exact)


def _ours_of_kinds(model: KindsModel, graphs: Graphs) -> Ours:
    plan, out = compile_kinds(model), [list(model.kinds).index(kind) for kind in model.out]

    def made(graph: KindsGraph) -> Rows:
        rows = whole_kinds.forward(plan, graphs.read(graph))[-1]
        heads = [(plan.heads[kind], rows[k]) for kind, k in zip(model.out, out, strict=True) if kind in plan.heads]
        return [rows[kind] for kind in out] + [head.logits(embedding) for head, embedding in heads]

    def exact(graph: KindsGraph, tolerance: float) -> list[Scaled]:
        rows = oracle.forward(model, graphs.read(graph), tolerance=tolerance)
        return [*rows.values(), *oracle.logits(model, rows, tolerance=tolerance)]

    return Ours(made, exact)


def compare(theirs: Theirs, ours: Ours, trials: Sequence[tuple[str, Any]], sized: Sequence[tuple[str, Any]]) -> float:
    """Return the largest difference on graphs that come with what is said of them.

    `sized` are graphs of several sizes, the smallest first. A module that keeps something is copied for each of them.
    Raises: ExportError past the tolerance, and for a module that gives something else when it is called again.
    """
    largest, (about, first) = 0.0, trials[0]
    with on_one_thread():
        kept = what_is_kept(theirs.in_float32)
        expected = theirs.rows(first)
        refuse_rows(theirs.in_float32, expected, partial(theirs.rows, first))
        for about, graph in trials:
            largest = max(largest, compared_on(theirs, ours, graph, f"a random graph with {about}"))
        keeps = what_is_kept(theirs.in_float32) != kept
        for about, graph in sized:
            one = theirs.again() if keeps else theirs
            try:
                one.rows(graph)
            except ExportError as error:
                warnings.warn(f"a graph with {about}: {error}; a job gives rows there", stacklevel=2)
                continue
            largest = max(largest, compared_on(one, ours, graph, f"a random graph with {about}"))
        begun = {name: one.clone() for name, one in theirs.in_float32.named_buffers()}
        graph = _first_taken(theirs, sized[0][1], first) if keeps else first
        for _ in range(_CALLS if keeps else 0):
            theirs.rows(graph)
        for name, one in theirs.in_float32.named_buffers() if keeps else ():  # as after many more calls
            if name in begun and one.shape == begun[name].shape and one.dtype != torch.bool:
                one.copy_(begun[name] + 1e6 * (one - begun[name]))
        again = zip(theirs.rows(first), expected, strict=True)
        if not all(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True) for one, other in again):
            msg = "the module gives other rows when it is called again: it keeps something from call to call"
            raise ExportError(msg + ", which an exported model does not. Nothing was written").of(RECORDED)
    return largest


def _first_taken(theirs: Theirs, small: Any, first: Any) -> Any:
    """Return the small graph, or the first one where a module fails on it, as one that squeezes its rows may."""
    try:
        theirs.rows(small)
    except ExportError:  # `compare` warned of it
        return first
    return small


def compared_on(theirs: Theirs, ours: Ours, graph: Any, about: str) -> float:
    """Return the largest difference on a graph; `about` says which it is.

    Raises: ExportError past the tolerance.
    """
    expected, exact = theirs.rows(graph), theirs.exact_rows(graph)
    in_float64 = ours.exact(graph, TOLERANCE)
    largest = _judged("incremental plan", ours.made(graph), in_float64, about)
    if exact is None or _off_at(about, exact, ours.exact(graph, TOLERANCE_OF_FLOAT64)) > TOLERANCE_OF_FLOAT64:
        _judged("full pass", expected, in_float64, about)
    return largest


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Have torch use one thread, since more of them wait longer for each other than a small graph takes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _judged(what: str, made: Rows, ours: list[Scaled], about: str) -> float:
    """The largest difference.

    Raises: ExportError past the tolerance.
    """
    largest = _off_at(about, made, ours)
    if not largest <= TOLERANCE:
        msg = (
            f"the exported {what} differs from the module: largest difference {largest:.3g} of what was summed to get "
            f"a value, allowed {TOLERANCE:g}, on {about}. A layer does something that Freshet did "
            "not see (a branch on what it reads, perhaps). Nothing was written"
        )
        raise ExportError(msg).of(DIFFERS)
    return largest


def _off_at(about: str, made: Rows, ours: list[Scaled]) -> float:
    """Return `off`, whose error says what graph it was."""
    try:
        return off(made, ours)
    except ExportError as error:
        msg = f"{error}, on {about}"
        raise ExportError(msg) from error


def off(made: Rows, ours: list[Scaled]) -> float:
    """Return the difference of rows from ours, relative to each value's own scale.

    NaN is right where ours is NaN; what float32 may have no number for (an infinite scale) may be anything.
    Raises: ExportError where the shapes differ.
    """
    found = [0.0]
    for got, (want, scale) in zip(made, ours, strict=True):
        if got.shape != want.shape:
            msg = f"the exported model gives rows of shape {want.shape}, the module {got.shape}"
            raise ExportError(msg + (_FLAT if got.size == want.size else ""))
        with np.errstate(all="ignore"):
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.isinf(scale) & np.isfinite(want))
            apart = np.where(same, 0.0, np.abs(got - want) / np.maximum(scale, _SMALLEST))
        found.append(float(np.where(np.isnan(apart), np.inf, apart).max(initial=0)))
    return max(found)


def answered(model: Made, theirs: Theirs, ours: Ours, graphs: Graphs) -> Made:
    """Return a model with what its module makes of graphs, if it has convs of one's own.

    A graph on which the module fails has no answer.
    """
    if not has_own_messages(model):
        return model
    returned = max(1, len(graphs.run.heads))  # logits are behind these
    found = []
    for graph in graphs.some():
        with suppress(ExportError):  # `compare` warned of it
            found.append(ModuleAnswer(graphs.read(graph), _rows(theirs, ours, graph)[:returned]))
    return model.model_copy(update={"module_answers": tensors_of(found)})


def _rows(theirs: Theirs, ours: Ours, graph: Any) -> Rows:
    """Return the rows in float64; in float32 where the module cannot run in float64, or is another function there."""
    exact = theirs.exact_rows(graph)
    if exact is not None and off(exact, ours.exact(graph, TOLERANCE)) <= TOLERANCE:
        return exact
    return theirs.rows(graph)
