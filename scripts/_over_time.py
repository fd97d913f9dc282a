"""Quality over time of a model that stays, of one trained further each night, and of one trained from nothing.

The graphs are those of a job at its epochs (`freshet.LiveGraph`). What a model scores on a graph is what a job with
that model serves there. Each night trains on labels that are known by then, and is judged on those that come later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.data import HeteroData

from freshet.gnn.kinds.model import load_any_model
from freshet.job.training.fit import Schedule, fit
from freshet.job.training.subjects import BuiltSubject, Graph, ServedSubject
from freshet.job.training.targets import InOneProcess, Targets, judged, targets_of
from scripts.plots.picture import pyplot

STAYS, FURTHER, NOTHING = "stays", "trained further", "from nothing"


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
    """Return the average precision of the three ways, night by night."""
    stays, further = ServedSubject(of.model), ServedSubject(of.model)
    found: dict[str, list[float]] = {STAYS: [], FURTHER: [], NOTHING: []}
    for night in every:
        before, known = _labelled(graph_at(night.trained), of.kind, night.known)
        after, truth = _labelled(graph_at(night.judged), of.kind, night.truth)
        nothing = BuiltSubject(of.factory, "", load_any_model(of.model))
        fit(InOneProcess(further, before, known, of.further), of.further, _quiet)
        fit(InOneProcess(nothing, before, known, of.nothing), of.nothing, _quiet)
        for name, one in ((STAYS, stays), (FURTHER, further), (NOTHING, nothing)):
            found[name].append(judged(one, after, truth, truth.validation, of.further.metric))
        shown = "  ".join(f"{name} {values[-1]:.3f}" for name, values in found.items())
        print(f"{night.name}  {shown}", file=sys.stderr, flush=True)
    return found


def _labelled(graph: Graph, kind: str, labels: np.ndarray) -> tuple[Graph, Targets]:
    """Join labels by id; all that have one train, and all judge."""
    store = graph[kind] if isinstance(graph, HeteroData) else graph
    store.y = torch.from_numpy(labels[store.id.numpy()])
    store.train_mask = store.val_mask = store.y >= 0
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
