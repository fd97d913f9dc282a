"""Modules whose rows without weights of edges are not those of weights of 1, which a job has in their place."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from functools import wraps
from typing import Any

import numpy as np
from torch.nn import Module

from freshet.gnn.pyg.check import TOLERANCE, on_one_thread, theirs_of
from freshet.gnn.pyg.forward.parameters import WEIGHT_NAMES
from freshet.gnn.pyg.graphs import Graphs
from freshet.kinds_graph import KindsGraph
from freshet.schema import EdgeValues


def warn_of_weights(module: Module, graphs: Graphs) -> None:
    """Warn where a module that may be called without weights gives other rows then than with weights of 1.

    An exported model is the module with weights: an edge that comes without one has 1.
    """
    method, call = graphs.run.asked.method, graphs.run.call
    signature = inspect.signature(getattr(module, method))
    named = WEIGHT_NAMES if call.traced is not None else (call.weights,)
    optional = [name for name, one in signature.parameters.items() if name in named and one.default is None]
    if not optional or optional[0] == "edge_attr":
        return
    _, graph = next(iter(graphs.trials()))
    edges = [one._replace(values=EdgeValues(one.values.edges, {}, one.values.attr)) for one in graph.edges]
    plain = graph._replace(edges=edges)
    with_ones, without = _rows(module, graphs, plain, ()), _rows(module, graphs, plain, optional)
    if with_ones is None or without is None:  # it cannot be called without
        return
    scale = max(float(np.abs(one).max(initial=0.0)) for one in with_ones)
    off = max(float(np.abs(one - other).max(initial=0.0)) for one, other in zip(with_ones, without, strict=True))
    if off > TOLERANCE * scale:
        msg = f"{method} gives other rows without {optional[0]} than with weights of 1, which edges of a job have that "
        msg += "come without one: the model is that with weights. If the job's edges have none, export a module whose "
        warnings.warn(msg + f"{method} has no {optional[0]}", stacklevel=2)


def _rows(module: Module, graphs: Graphs, graph: KindsGraph, none: Sequence[str]) -> list[np.ndarray] | None:
    """Return a module's rows in float64, called with None for these parameters; None where it fails."""
    theirs = theirs_of(module, graphs.run)
    method = graphs.run.asked.method
    call = getattr(theirs.in_float64, method)
    signature = inspect.signature(call)

    @wraps(call)  # whoever calls it looks at its parameters
    def called(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.arguments.update(dict.fromkeys(none))
        return call(*given.args, **given.kwargs)

    object.__setattr__(theirs.in_float64, method, called)
    with on_one_thread():
        return theirs.exact_rows(graph)
