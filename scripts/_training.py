"""The training of models that score vertices, for scripts that judge scores on a stream."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from freshet.job.training.judge import average_precision

LEARNING_RATE, HELD_BACK = 0.01, 0.2


def best_pass(
    name: str,
    model: nn.Module,
    scores_of: Callable[[], torch.Tensor],
    label: torch.Tensor,
    held: torch.Tensor,
    passes: int,
    weight: torch.Tensor | None = None,
) -> float:
    """Train a model, and leave it as it was best on what is held back; returns its average precision there.

    `weight`: of the positive labels in the loss. Shapes: scores and label (n,) float32, held (n,) bool.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    slower = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=passes)
    best, kept = -1.0, copy.deepcopy(model.state_dict())
    for number in range(passes):
        scores = scores_of()
        precision = average_precision(scores.detach()[held].numpy(), label[held].numpy())
        if precision > best:
            best, kept = precision, copy.deepcopy(model.state_dict())
        loss = F.binary_cross_entropy_with_logits(scores[~held], label[~held], pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        slower.step()
        if number % 10 == 0:
            print(f"{name} pass {number:3}  loss {loss.item():.3f}  held back {precision:.3f}", flush=True)
    model.load_state_dict(kept)
    return best
