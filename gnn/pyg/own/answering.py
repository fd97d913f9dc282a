"""Answers of a module with convs of one's own, against which `freshet check` holds what was read of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.module_answers import ModuleAnswer, has_own_messages, tensors_of
from freshet.gnn.pyg.check import TOLERANCE, Ours, Rows, Theirs, off
from freshet.kinds_graph import KindsGraph

Made = TypeVar("Made", Model, KindsModel)


def answered(
    model: Made, theirs: Theirs, ours: Ours, graphs: Sequence[Any], given: Callable[[Any], KindsGraph]
) -> Made:
    """Return a model with what its module makes of graphs, if it has convs of one's own.

    `given` is what the model reads of a graph of the module's.
    """
    if not has_own_messages(model):
        return model
    returned = len(model.out) if isinstance(model, KindsModel) else 1  # logits are behind these
    found = [ModuleAnswer(given(graph), _rows(theirs, ours, graph)[:returned]) for graph in graphs]
    return model.model_copy(update={"module_answers": tensors_of(found)})


def _rows(theirs: Theirs, ours: Ours, graph: Any) -> Rows:
    """Return the rows in float64; in float32 where the module cannot run in float64, or is another function there."""
    exact = theirs.exact_rows(graph)
    if exact is not None and off(exact, ours.exact(graph, TOLERANCE)) <= TOLERANCE:
        return exact
    return theirs.rows(graph)
