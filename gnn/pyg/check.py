"""The last check of an export: the module and the exported model must agree on a random graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnn.model import Model
from gnn.oracles import oracle, whole_graph
from gnn.plan import compile_plan
from gnn.pyg.running import clone_of, run
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
    embedding, logits = run(clone, traced, head, (x, np.stack([src, dst]), weight))
    plan = compile_plan(model)
    ours = oracle.forward(model, x, src, dst, weight)[-1]
    incremental = whole_graph.forward(plan, x, src, dst, weight)[-1]
    pairs = [("full pass", ours, embedding), ("incremental plan", incremental, embedding)]
    if logits is not None:
        pairs.append(("head", plan.logits(incremental), logits))
    worst = 0.0
    for what, got, expected in pairs:
        if got.shape != expected.shape:
            msg = f"the exported {what} gives rows of shape {got.shape}, the module {expected.shape}"
            raise ExportError(msg)
        difference = float(np.abs(got - expected).max(initial=0) / max(1.0, np.abs(expected).max(initial=0)))
        if not difference <= TOLERANCE:
            msg = (
                f"the exported {what} differs from the module: largest difference {difference:.3g} on a random graph, "
                f"allowed {TOLERANCE:g}. A layer does something that Freshet did not see (a hook, perhaps). "
                "Nothing was written"
            )
            raise ExportError(msg)
        worst = max(worst, difference)
    return worst


def _graph(width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    live = _VERTICES - 4
    src, dst = rng.integers(0, live, _EDGES), rng.integers(0, live, _EDGES)
    src[:10] = dst[:10]
    pairs = np.unique(src * _VERTICES + dst)
    x = rng.standard_normal((_VERTICES, width)).astype(np.float32)
    weight = rng.uniform(0.25, 1.75, len(pairs)).astype(np.float32)
    return x, pairs // _VERTICES, pairs % _VERTICES, weight
