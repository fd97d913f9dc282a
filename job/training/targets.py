"""Labelled vertices of a graph, the loss of their logits, and what they judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from freshet.job.training.fit import Schedule
from freshet.job.training.judge import MetricName, quality
from freshet.job.training.loader import loader
from freshet.job.training.sampler import NeighborSampler
from freshet.job.training.subjects import Graph, Subject, store_of

STOP_SHARE, STOP_LEAST = 0.1, 10  # of the vertices for training, those that choose the best pass


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

    @property
    def positive_factor(self) -> float:
        """Factor of positive labels in a binary loss, so that both classes count the same."""
        positive = int(self.y[self.fit].sum())
        return (len(self.fit) - positive) / max(1, positive)


def targets_of(graph: Graph, kind: str, seed: int) -> Targets:
    """Return the labelled vertices of a kind; a tenth of those for training are left to choose the best pass."""
    store = store_of(graph, kind)
    given = torch.nonzero(store.train_mask).flatten()
    given = given[torch.randperm(len(given), generator=torch.Generator().manual_seed(seed))]
    stop = max(STOP_LEAST, round(STOP_SHARE * len(given)))
    few = len(given) < 2 * STOP_LEAST
    parts = (given, given) if few else (given[stop:], given[:stop])
    return Targets(kind, store.y, *parts, torch.nonzero(store.val_mask).flatten())


def loss_sum(logits: Tensor, labels: Tensor, positive_factor: float) -> Tensor:
    """Return the sum of the losses of vertices: cross entropy, of one logit binary cross entropy.

    Shapes: logits (n, classes or 1), labels (n,) int64
    """
    if logits.shape[1] > 1:
        return F.cross_entropy(logits, labels, reduction="sum")
    factor = torch.tensor(positive_factor, dtype=logits.dtype)
    return F.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), pos_weight=factor, reduction="sum")


def judged(subject: Subject, graph: Graph, targets: Targets, places: Tensor, metric: MetricName) -> float:
    """Return the quality of a model on some of the labelled vertices, in eval mode, from the whole graph."""
    subject.module.eval()
    with torch.no_grad():
        logits = subject.logits(graph, targets.kind)[places]
    return quality(metric, logits.numpy(), targets.y[places].numpy())


class InOneProcess:
    """The training of a model on a graph, in steps of all vertices or of batches."""

    def __init__(self, subject: Subject, graph: Graph, targets: Targets, how: Schedule) -> None:
        self.module = subject.module
        self._subject, self._graph, self._targets, self._how = subject, graph, targets, how
        self._sampler = NeighborSampler(graph, how.fanouts) if how.batch_size else None

    def losses(self) -> Iterator[Tensor]:
        """Yield the mean loss of the vertices of each step."""
        factor = self._targets.positive_factor
        for logits, labels in self._steps():
            yield loss_sum(logits, labels, factor) / len(labels)

    def value(self, loss: Tensor) -> float:
        """Return the number that a loss is."""
        return loss.item()

    def share_gradients(self) -> None:
        """There is nobody to share them with."""

    def quality(self) -> float:
        """Return the quality of the vertices that choose the best pass."""
        return judged(self._subject, self._graph, self._targets, self._targets.stop, self._how.metric)

    def _steps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and labels of the vertices of each step."""
        kind, where, y = self._targets.kind, self._targets.fit, self._targets.y
        if self._sampler is None:
            yield self._subject.logits(self._graph, kind)[where], y[where]
            return
        for batch in loader(self._graph, self._sampler, self._how.batch_size, where, kind or None, shuffle=True):
            store = store_of(batch, kind)
            yield self._subject.logits(batch, kind)[: store.batch_size], store.y[: store.batch_size]
