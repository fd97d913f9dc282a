"""The training loop: passes over the labelled vertices, of which the best one is kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from freshet.job.errors import JobFailed
from freshet.job.training.judge import MetricName

CLIP_NORM = 1.0


class Schedule(NamedTuple):
    """Options of a training. batch_size 0: all vertices in one step. fanouts: in-edges per vertex, hop by hop."""

    passes: int
    learning_rate: float
    metric: MetricName
    batch_size: int = 0
    fanouts: tuple[int, ...] = ()
    seed: int = 0


class Pass(NamedTuple):
    """A pass over the training vertices: its mean loss, and the quality behind it of those that choose. 0: before."""

    number: int
    loss: float | None
    quality: float


class Fitting(Protocol):
    """A model with its labels, as the loop reads it: in one process, or on a rank of several."""

    module: nn.Module

    def losses(self) -> Iterator[Tensor]:
        """Yield the loss of each step of a pass."""
        ...

    def value(self, loss: Tensor) -> float:
        """Return the number that a loss is, on all ranks the same."""
        ...

    def share_gradients(self) -> None:
        """Sum gradients over ranks."""
        ...

    def quality(self) -> float:
        """Return the quality of the vertices that choose the best pass, on all ranks the same."""
        ...


def fit(task: Fitting, how: Schedule, report: Callable[[str], None]) -> list[Pass]:
    """Train a model, and leave it as it was after its best pass, which may be none.

    Adam with a learning rate that falls to 0 along a cosine, and gradients cut to length 1.

    Raises: JobFailed where the loss is not finite.
    """
    torch.manual_seed(how.seed)
    passes = [Pass(0, None, task.quality())]
    optimizer = torch.optim.Adam(task.module.parameters(), lr=how.learning_rate)  # whose sizes are known now
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=how.passes)
    best, kept = passes[0].quality, copy.deepcopy(task.module.state_dict())
    for number in range(1, how.passes + 1):
        loss = _pass(task, optimizer, number)
        slower.step()
        passes.append(Pass(number, loss, task.quality()))
        report(f"pass {number:,} of {how.passes:,}  loss {loss:.4f}  {how.metric} {passes[-1].quality:.4f}")
        if passes[-1].quality > best:
            best, kept = passes[-1].quality, copy.deepcopy(task.module.state_dict())
    task.module.load_state_dict(kept)
    return passes


def _pass(task: Fitting, optimizer: torch.optim.Optimizer, number: int) -> float:
    """Take the steps of a pass; return the mean of their losses."""
    task.module.train()
    total = steps = 0.0
    for loss in task.losses():
        value = task.value(loss)
        if not math.isfinite(value):
            msg = f"the loss is {value} in pass {number}; try a smaller --lr"
            raise JobFailed(msg)
        optimizer.zero_grad()
        loss.backward()
        task.share_gradients()
        nn.utils.clip_grad_norm_(task.module.parameters(), CLIP_NORM)
        optimizer.step()
        total, steps = total + value, steps + 1
    return total / steps
