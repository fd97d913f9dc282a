"""The last check of an export: the module and the exported model must agree on a random graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnn.model import Model
from gnn.oracles import oracle, whole_graph
from gnn.plan import compile_plan
from gnn.pyg.finite import refuse_rows
from gnn.pyg.running import Graph, clone_of, run
from gnn.pyg.statistics import Statistics
from gnn.pyg.steps import ExportError, Traced

if TYPE_CHECKING:
    from torch.nn import Module

TOLERANCE = 1e-4
_VERTICES = 48
_EDGES = 240


def check(
    module: Module, traced: Traced, model: Model, head: str | None, statistics: Statistics | None = None
) -> float:
    """Return the largest difference of module and model on a graph with weights, self-loops and isolated vertices.

    Differences are relative to the largest value. Norms over all vertices are held to what they were frozen to: whether
    that is right was seen on the graph of `stats_from`.
    Raises: ExportError past the tolerance, with the difference.
    """
    x, src, dst, weight = _graph(model.in_width)
    clone = clone_of(module)
    if statistics is not None:
        statistics.put_into(clone)
    edges = np.stack([src, dst])
    try:
        expected = run(clone, traced, head, (x, edges, weight))
    except ExportError:
        raise
    except Exception as error:
        msg = f"the module itself fails on a small graph on the CPU ({type(error).__name__}: {error})"
        raise ExportError(msg) from error
    refuse_rows(clone, expected, lambda: run(clone, traced, head, (x, edges, weight)))
    plan = compile_plan(model)
    ours = oracle.forward(model, x, src, dst, weight)[-1]
    incremental = whole_graph.forward(plan, x, src, dst, weight)[-1]
    made = [("full pass", ours), ("incremental plan", incremental)]
    if expected[1] is not None:
        made.append(("head", plan.logits(incremental)))
    differences = _differences(made, expected)
    if not max(differences) <= TOLERANCE:
        differences = _closer(differences, made, _in_float64(clone, traced, head, (x, edges, weight)))
    for (what, _), difference in zip(made, differences, strict=True):
        if not difference <= TOLERANCE:
            msg = (
                f"the exported {what} differs from the module: largest difference {difference:.3g} on a random graph, "
                f"allowed {TOLERANCE:g}. A layer does something that Freshet did not see (a hook, perhaps). "
                "Nothing was written"
            )
            raise ExportError(msg)
    return max(differences)


Made = list[tuple[str, np.ndarray]]
Expected = tuple[Any, Any]
"""A module's embeddings and logits."""


def _differences(made: Made, expected: Expected) -> list[float]:
    """How far each of these is from what the module gives, relative to the largest value.

    Raises: ExportError where the shapes differ.
    """
    found = []
    for what, got in made:
        want = expected[what == "head"]
        if got.shape != want.shape:
            msg = f"the exported {what} gives rows of shape {got.shape}, the module {want.shape}"
            raise ExportError(msg)
        found.append(float(np.abs(got - want).max(initial=0) / max(1.0, np.abs(want).max(initial=0))))
    return found


def _in_float64(clone: Module, traced: Traced, head: str | None, graph: Graph) -> Expected | None:
    """What the module gives in float64: what PyG makes of deviations in float32 may be rounding alone."""
    x, edges, weight = graph
    try:
        return run(clone.double(), traced, head, (x.astype(np.float64), edges, weight.astype(np.float64)))
    except RuntimeError:  # a module with float32 constants of its own
        return None


def _closer(differences: list[float], made: Made, expected: Expected | None) -> list[float]:
    """The differences from a module in float64 if all are allowed, else those there are."""
    again = differences if expected is None else _differences(made, expected)
    return again if max(again) <= TOLERANCE else differences


def _graph(width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    live = _VERTICES - 4
    src, dst = rng.integers(0, live, _EDGES), rng.integers(0, live, _EDGES)
    src[:10] = dst[:10]
    pairs = np.unique(src * _VERTICES + dst)
    x = rng.standard_normal((_VERTICES, width)).astype(np.float32)
    weight = rng.uniform(0.25, 1.75, len(pairs)).astype(np.float32)
    return x, pairs // _VERTICES, pairs % _VERTICES, weight
