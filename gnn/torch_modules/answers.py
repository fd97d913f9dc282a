"""Answers of the module of an export on some graphs, renewed where weights have changed (gnn/module_answers.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.module_answers import ModuleAnswer, tensors_of
from freshet.gnn.torch_modules.graphs import ModelPass


def renewed(model: Model | KindsModel, answers: Sequence[ModuleAnswer], *, keep: bool) -> dict[str, np.ndarray]:
    """Return the tensors of answers: `keep` them, or make those of these weights in float64 on the same graphs."""
    if keep or not answers:
        return tensors_of(answers)
    run, returned = ModelPass(model).double(), len(model.out) if isinstance(model, KindsModel) else 1
    with torch.no_grad():
        made = [[rows.numpy() for rows in run(graph)[:returned]] for graph, _ in answers]
    return tensors_of([ModuleAnswer(graph, rows) for (graph, _), rows in zip(answers, made, strict=True)])
