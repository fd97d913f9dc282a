"""Quality over time of a model that stays, of one trained further each night, and of one trained from nothing.

The graphs are those of a job at its epochs (`freshet.LiveGraph`). What a model scores on a graph is what a job with
that model serves there. Each night trains on labels that are known by then, and is judged on those that come later.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from freshet.gnn.kinds.model import load_any_model
from freshet.job.training.fit import Schedule, fit
from freshet.job.training.judge import MetricName
from freshet.job.training.outcome import is_better
from freshet.job.training.splits import by_hash
from freshet.job.training.subjects import BuiltSubject, Graph, ServedSubject, store_of
from freshet.job.training.targets import InOneProcess, Targets, judged, targets_of
from scripts.plots.picture import pyplot

STAYS, FURTHER, NOTHING = "stays", "trained further", "from nothing"
METRIC: MetricName = "average_precision"
MARGIN, SHARE = 0.01, 0.2


class Night(NamedTuple):
    """A night: epochs of the graphs to train on and to judge on, with labels for their ids.

    Shapes: known, truth: 0 or 1 by id, -1 without a label, int64
    """

    name: str
    trained: int
    judged: int
    known: np.ndarray
    truth: np.ndarray


class Comparison(NamedTuple):
    """The model of a folder and its factory, on vertices of a kind, and how both are trained."""

    model: Path
    factory: str
    kind: str
    further: Schedule
    nothing: Schedule


def over_time(graph_at: Callable[[int], Graph], every: Sequence[Night], of: Comparison) -> dict[str, list[float]]:
    """Return the average precision of the three ways, night by night.

    The model that is trained further changes as `freshet train` changes it: where it is better by MARGIN on a fifth of
    the known labels, which no night trains on.
    """
    stays, further = ServedSubject(of.model), ServedSubject(of.model)
    found: dict[str, list[float]] = {STAYS: [], FURTHER: [], NOTHING: []}
    for night in every:
        before, known = _labelled(graph_at(night.trained), of.kind, night.known)
        candidate, nothing = copy.deepcopy(further), BuiltSubject(of.factory, "", load_any_model(of.model))
        fit(InOneProcess(candidate, before, known, of.further), of.further, _quiet)
        fit(InOneProcess(nothing, before, known, of.nothing), of.nothing, _quiet)
        old, new = (judged(one, before, known, known.validation, METRIC) for one in (further, candidate))
        taken = is_better(old, new, MARGIN)
        further = candidate if taken else further
        after, truth = _labelled(graph_at(night.judged), of.kind, night.truth)
        judges = torch.cat([truth.fit, truth.stop, truth.validation]).unique()
        for name, one in ((STAYS, stays), (FURTHER, further), (NOTHING, nothing)):
            found[name].append(judged(one, after, truth, judges, METRIC))
        shown = "  ".join(f"{name} {values[-1]:.3f}" for name, values in found.items())
        said = "taken" if taken else "not taken"
        print(f"{night.name}  {shown}  {said}: {old:.3f} -> {new:.3f}", file=sys.stderr, flush=True)
    return found


def _labelled(graph: Graph, kind: str, labels: np.ndarray) -> tuple[Graph, Targets]:
    """Join labels by id; a fifth, by a hash of the id, is for validation."""
    store = store_of(graph, kind)
    ids = store.id.numpy()
    store.y = torch.from_numpy(labels[ids])
    judges = torch.from_numpy(by_hash(kind, pa.array(ids), SHARE))
    store.train_mask, store.val_mask = (store.y >= 0) & ~judges, (store.y >= 0) & judges
    return graph, targets_of(graph, kind, seed=1)


def _quiet(text: str) -> None:
    del text


def draw(path: Path, names: Sequence[str], found: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the average precision by night."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7, 3.4), constrained_layout=True)
    for name, values in found.items():
        axes.plot(names, values, marker="o", label=name)
    axes.set(ylabel="average precision", title=title, ylim=(0, None))
    axes.tick_params(axis="x", rotation=30)
    axes.legend()
    figure.savefig(path, dpi=120)
