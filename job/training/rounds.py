"""A round of training: the graph of a job, a model trained on it, and the judgment against the model that is served."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import HeteroData

from freshet.gnn.kinds.model import load_any_model
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.job_file import SavedJob
from freshet.job.live.live_graph import LiveGraph
from freshet.job.options.training import Training
from freshet.job.service.generations import Service
from freshet.job.serving.protocol.errors import NotYetError
from freshet.job.training import outcome
from freshet.job.training.fit import Pass, Schedule, fit
from freshet.job.training.judge import metric_for
from freshet.job.training.label_file import Labels, read_labels
from freshet.job.training.labels import join_labels
from freshet.job.training.shared import fit_shared
from freshet.job.training.subjects import BuiltSubject, Graph, ServedSubject, Subject
from freshet.job.training.targets import InOneProcess, Targets, judged, targets_of


def schedule_of(given: Training, width: int) -> Schedule:
    """Return how a model with logits of that width is trained."""
    how = given.batch_size or 0, tuple(given.fanout or ()), given.seed
    return Schedule(given.epochs, given.lr, metric_for(width, given.metric), *how)


class GraphSource:
    """The graph of the job that O names, now and later; of a service folder that of the job that serves."""

    def __init__(self, given: Training) -> None:
        self._given = given
        self._graph: tuple[Path, LiveGraph] | None = None

    @property
    def job(self) -> Path:
        """Output folder of the job.

        Raises: UsageError where there is none.
        """
        found = Service.at(self._given.job)
        return self._given.job if found is None else found[0].serving().out

    def served(self, job: Path) -> tuple[Path, str]:
        """Return the model folder of the job, and the SHA-256 of the model.

        Raises: UsageError where it is not there any more, or holds another model.
        """
        if (saved := SavedJob.read(job)) is None:
            msg = f"{job}: no job in it; give the --out folder of a `freshet run`, or a service folder"
            raise UsageError(msg)
        folder = self._given.model or Path(saved.settings.model)
        saved.settings_at(job, folder)  # refuses another model
        return folder, saved.model_sha256

    def graph(self, job: Path) -> Graph:
        """Return the graph at the epoch that is asked for, or the newest visible one.

        Raises: UsageError where there is none yet.
        """
        given = self._given
        if self._graph is None or self._graph[0] != job:
            self.close()
            named: dict[str, Any] = {"model": given.model, "config": given.config, "layers": given.layers or ()}
            self._graph = job, LiveGraph(job, given.begin, **named)
        try:
            return self._graph[1].at(given.epoch)
        except NotYetError as error:
            msg = f"--epoch: {error}" if given.epoch is not None else str(error)
            raise UsageError(msg) from error

    def close(self) -> None:
        """Let go of the graph."""
        if self._graph is not None:
            self._graph[1].close()
        self._graph = None


def train(given: Training, source: GraphSource, out: Path, report: Callable[[str], None]) -> outcome.Report:
    """Train a model on the graph of now, and write it where it is better than the one that is served.

    Raises: UsageError where labels, graph and model do not fit.
    """
    began, job, work = time.monotonic(), source.job, outcome.begin(out)
    folder, old_model = source.served(job)
    found_labels = read_labels(given.labels)  # before anything that takes long
    report(f"reading the graph of {job}")
    graph = _labelled(given, found_labels, source.graph(job))
    kind = labelled_kind(graph)
    targets = targets_of(graph, kind, given.seed)
    old, new = ServedSubject(folder), _begun(given, folder, graph)
    plan = schedule_of(given, _width(new, graph, targets, given.factory or str(folder)))
    if given.factory:  # what can't be exported is refused before it is trained
        new.write(work, graph)
        shutil.rmtree(work)
    before = judged(old, graph, targets, targets.validation, plan.metric)
    report(f"{len(targets.fit):,} vertices train, {len(targets.validation):,} judge; {plan.metric} is {before:.4f}")
    passes = _fitted(new, graph, targets, plan, given.ranks, report)
    new.write(work, graph)
    after = judged(ServedSubject(work), graph, targets, targets.validation, plan.metric)
    models = load_any_model(work).sha256(), old_model
    found = _report(graph, targets, (before, after), given.gate_margin, models, passes, plan, time.monotonic() - began)
    outcome.finish(out, found, passes)
    return found


def _fitted(
    subject: Subject, graph: Graph, targets: Targets, how: Schedule, ranks: int, report: Callable[[str], None]
) -> list[Pass]:
    if ranks > 1 and isinstance(subject, ServedSubject):
        return fit_shared(subject.module, graph, targets, how, ranks, report)
    return fit(InOneProcess(subject, graph, targets, how), how, report)


def _labelled(given: Training, found: Labels, graph: Graph) -> Graph:
    """Join the labels; what they warn of is said as a line of the command."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        join_labels(graph, found, given.kind, given.share, given.split)
    for one in caught:
        say(f"--labels: {one.message}", "warning")
    return graph


def labelled_kind(graph: Graph) -> str:
    """Return the kind of the labelled vertices, empty where there are none.

    Raises: UsageError where vertices of several kinds are labelled.
    """
    if not isinstance(graph, HeteroData):
        return ""
    found = [kind for kind in graph.node_types if "y" in graph[kind] and bool((graph[kind].y >= 0).any())]
    if len(found) != 1:
        msg = f"--labels: vertices of the kinds {', '.join(found) or 'none'} are labelled; say by --kind which train"
        raise UsageError(msg)
    return str(found[0])


def _begun(given: Training, folder: Path, graph: Graph) -> Subject:
    if not given.factory:
        return ServedSubject(folder)
    torch.manual_seed(given.seed)
    return BuiltSubject(given.factory, given.head or "", load_any_model(folder))


def _width(subject: Subject, graph: Graph, targets: Targets, name: str) -> int:
    """Return the width of a model's logits.

    Raises: UsageError where labels are past it, or one of the parts of the split is empty.
    """
    if not len(targets.fit) or not len(targets.validation):
        msg = f"--labels: {len(targets.fit):,} labelled vertices to train, {len(targets.validation):,} to judge by; "
        raise UsageError(msg + "give more labels, or another --share")
    subject.module.eval()
    width = int(subject.logits(graph, targets.kind).shape[1])
    if targets.classes > max(width, 2):
        msg = f"{name}: makes {width} logits, for labels 0 to {max(width, 2) - 1}, but labels go up to "
        raise UsageError(msg + f"{targets.classes - 1}; give another model by --factory")
    return width


def _report(
    graph: Graph,
    targets: Targets,
    found: tuple[float, float],
    margin: float,
    models: tuple[str, str],
    passes: list[Pass],
    plan: Schedule,
    seconds: float,
) -> outcome.Report:
    best = max(passes, key=lambda one: (one.quality, -one.number))
    named: Any = graph
    counts = {"train": len(targets.fit) + len(targets.stop), "validation": len(targets.validation)}
    return outcome.Report(
        metric=plan.metric,
        old=found[0],
        new=found[1],
        margin=margin,
        taken=outcome.is_better(*found, margin),
        epoch=int(named.epoch),
        positions=dict(named.positions),
        model=models[0],
        old_model=models[1],
        vertices=int(named.num_nodes),
        edges=int(named.num_edges),
        labels=counts | {"skipped": int(named.labels_skipped)},
        passes=plan.passes,
        best_pass=best.number,
        seconds=round(seconds, 3),
    )
