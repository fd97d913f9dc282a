"""The training loop: passes over the labelled vertices, of which the best one is kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from freshet.job.errors import JobFailed
from freshet.job.training.judge import MetricName, quality
from freshet.job.training.loader import loader
from freshet.job.training.sampler import NeighborSampler
from freshet.job.training.subjects import Graph, Subject

CLIP_NORM = 1.0
STOP_SHARE, STOP_LEAST = 0.1, 10  # of the vertices for training, those that choose the best pass


class Schedule(NamedTuple):
    """Options of a training. batch_size 0: all vertices in one step. fanouts: in-edges per vertex, hop by hop."""

    passes: int
    learning_rate: float
    metric: MetricName
    batch_size: int = 0
    fanouts: tuple[int, ...] = ()
    seed: int = 0


class Targets(NamedTuple):
    """Labelled vertices of a graph. Shapes: y (vertices of the kind,) int64; the others places of some of these."""

    kind: str
    y: Tensor
    fit: Tensor
    stop: Tensor  # choose the best pass
    validation: Tensor  # judge the result, and are not seen before

    @property
    def classes(self) -> int:
        """Number of classes: one more than the largest label."""
        return int(self.y.max()) + 1


class Pass(NamedTuple):
    """A pass over the training vertices: its mean loss, and the quality behind it of those that choose. 0: before."""

    number: int
    loss: float | None
    quality: float


def targets_of(graph: Graph, kind: str, seed: int) -> Targets:
    """Return the labelled vertices of a kind; a tenth of those for training are left to choose the best pass."""
    store = graph[kind] if isinstance(graph, HeteroData) else graph
    given = torch.nonzero(store.train_mask).flatten()
    given = given[torch.randperm(len(given), generator=torch.Generator().manual_seed(seed))]
    stop = max(STOP_LEAST, round(STOP_SHARE * len(given)))
    if len(given) < 2 * STOP_LEAST:
        return Targets(kind, store.y, given, given, torch.nonzero(store.val_mask).flatten())
    return Targets(kind, store.y, given[stop:], given[:stop], torch.nonzero(store.val_mask).flatten())


def judged(subject: Subject, graph: Graph, targets: Targets, places: Tensor, metric: MetricName) -> float:
    """Return the quality of a model on some of the labelled vertices, in eval mode, from the whole graph."""
    subject.module.eval()
    with torch.no_grad():
        logits = subject.logits(graph, targets.kind)[places]
    return quality(metric, logits.numpy(), targets.y[places].numpy())


def fit(subject: Subject, graph: Graph, targets: Targets, plan: Schedule, report: Callable[[str], None]) -> list[Pass]:
    """Train a model, and leave it as it was after its best pass, which may be none.

    Adam with a learning rate that falls to 0 along a cosine, and gradients cut to length 1. The loss is cross entropy,
    of one logit binary cross entropy, in which both classes count the same.

    Raises: JobFailed where the loss is not finite.
    """
    torch.manual_seed(plan.seed)
    passes = [Pass(0, None, judged(subject, graph, targets, targets.stop, plan.metric))]
    optimizer = torch.optim.Adam(subject.module.parameters(), lr=plan.learning_rate)  # whose sizes are known now
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=plan.passes)
    best, kept = passes[0].quality, copy.deepcopy(subject.module.state_dict())
    loss_of = _loss(targets)
    sampler = NeighborSampler(graph, plan.fanouts) if plan.batch_size else None
    for number in range(1, plan.passes + 1):
        subject.module.train()
        total = steps = 0.0
        for logits, labels in _steps(subject, graph, targets, plan, sampler):
            loss = loss_of(logits, labels)
            if not math.isfinite(loss.item()):
                msg = f"the loss is {loss.item()} in pass {number}; try a smaller --lr than {plan.learning_rate:g}"
                raise JobFailed(msg)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(subject.module.parameters(), CLIP_NORM)
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        slower.step()
        found = judged(subject, graph, targets, targets.stop, plan.metric)
        passes.append(Pass(number, total / steps, found))
        report(f"pass {number:,} of {plan.passes:,}  loss {total / steps:.4f}  {plan.metric} {found:.4f}")
        if found > best:
            best, kept = found, copy.deepcopy(subject.module.state_dict())
    subject.module.load_state_dict(kept)
    return passes


def _steps(
    subject: Subject, graph: Graph, targets: Targets, plan: Schedule, sampler: NeighborSampler | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Return logits and labels of the vertices of each step; one step without a sampler."""
    if sampler is None:
        yield subject.logits(graph, targets.kind)[targets.fit], targets.y[targets.fit]
        return
    kind = targets.kind or None
    for batch in loader(graph, sampler, plan.batch_size, targets.fit, kind, shuffle=True):
        store = batch[kind] if kind else batch
        yield subject.logits(batch, targets.kind)[: store.batch_size], store.y[: store.batch_size]


def _loss(targets: Targets) -> Callable[[Tensor, Tensor], Tensor]:
    positive = int(targets.y[targets.fit].sum())
    factor = torch.tensor((len(targets.fit) - positive) / max(1, positive))

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        if logits.shape[1] > 1:
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), pos_weight=factor)

    return loss_of
