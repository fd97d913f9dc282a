"""Answers of the module of an export on some graphs, renewed where weights have changed (gnn/module_answers.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.module_answers import ModuleAnswer, tensors_of
from freshet.gnn.torch_modules.graphs import numpy_pass
from freshet.gnn.torch_modules.weights import put


def renewed(model: Model | KindsModel, answers: Sequence[ModuleAnswer], *, keep: bool) -> dict[str, np.ndarray]:
    """Return the tensors of answers: `keep` them, or make those of these weights in float64 on the same graphs."""
    if keep or not answers:
        return tensors_of(answers)
    weights = Module()
    for name, values in model.weights.items():
        put(weights, name, values, is_trained=False)
    weights.double()
    with torch.no_grad():
        made = [numpy_pass(model, weights, graph, torch.float64) for graph, _ in answers]
    found = zip(answers, made, strict=True)
    return tensors_of([ModuleAnswer(graph, [one.numpy() for one in rows]) for (graph, _), rows in found])
