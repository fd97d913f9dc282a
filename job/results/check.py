"""`freshet check`: recomputes a run's graph and embeddings from scratch, and holds its change log against them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gnn import own_scale
from gnn.model import Model, ModelError, load_model
from gnn.own_scale import Scaled
from gnn.plan import Plan, compile_plan
from job.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from job.folder.run_file import read_run
from job.kafka.client import ClientProperties
from job.kafka.input import from_recorded
from job.results.check_progress import CheckProgress, Tell
from job.results.compare import Difference, compare
from job.results.log_audit import SUMMARY, Audit, audit, has_finished
from job.results.plain_replay import Given, PlainReplay
from job.results.plain_rules import ID_BYTES_MAX
from job.run.positions import Start
from operators.sink.change_log_reader import ChangeLogReader, NoChangeLogError
from operators.telemetry.status_file import read_statuses
from partitioner.reference_graph import GraphArrays

PYG, OWN = "pyg", "own"


@dataclass(frozen=True)
class Question:
    """What is to be checked, and how closely. `every`: so many epochs apart; None: the last one alone."""

    out: Path
    model: Model
    run: dict[str, Any]
    oracle: str
    tolerance: float
    every: int | None


@dataclass
class Findings:
    """What came of it: the differences of the epochs that were looked at, and faults in words."""

    epoch: int
    oracle: str
    differences: list[tuple[int, Difference]] = field(default_factory=list)
    duplicates: int = 0
    nonfinite: int = 0
    events: int = 0
    rejected: int = 0
    faults: list[str] = field(default_factory=list)

    def is_good(self, tolerance: float) -> bool:
        """Whether all is as it should be."""
        within = all(difference.is_within(tolerance) for _, difference in self.differences)
        return within and not self.duplicates and not self.faults

    def line(self) -> dict[str, Any]:
        """The JSON line: errors and counts over all epochs that were looked at, vertices of the last."""
        every = [difference for _, difference in self.differences]
        named = [(epoch, one) for epoch, one in self.differences if one.worst is not None]
        epoch, off = max(named, key=lambda found: (found[1].mismatched > 0, found[1].max_rel_error), default=(0, None))
        return {
            "vertices": every[-1].vertices,
            "max_abs_error": max(one.max_abs_error for one in every),
            "max_rel_error": max(one.max_rel_error for one in every),
            "missing": sum(one.missing for one in every),
            "extra": sum(one.extra for one in every),
            "nan": sum(one.nan for one in every),
            "mismatched": sum(one.mismatched for one in every),
            "duplicates": self.duplicates,
            "epoch": self.epoch,
            "oracle": self.oracle,
            "epochs_checked": len(every),
            "events": self.events,
            "rejected": self.rejected,
            "nonfinite": self.nonfinite,
            "worst": None if off is None or off.worst is None else {**off.worst.to_dict(), "epoch": epoch},
            "faults": self.faults,
        }


def check(
    model: Path,
    events: Sequence[str],
    out: Path,
    snapshot: Path | None = None,
    oracle: str | None = None,
    tolerance: float = 1e-4,
    undirected: bool | None = None,
    id_type: str | None = None,
    properties: ClientProperties | None = None,
    every: int | None = None,
) -> int:
    """Print one JSON line about how far `out` is from the truth; 0 when all is well, else 1.

    The graph is the one after the last epoch that `out` records, so that a run that was stopped can be checked, too;
    with `every` also those after each so many epochs. What is not given is as the run had it.

    Raises:
        UsageError: `out` holds no result, or model, snapshot or events are not those of the run.
    """
    out, snapshot = Path(out), None if snapshot is None else Path(snapshot)
    loaded, plan = _model_of_run(Path(model), run := read_run(out))
    if snapshot is None and run.get("snapshot"):
        message = f"--snapshot: the run in {out} began with {run['snapshot']}; give it"
        raise UsageError(message)
    given = Given(
        events=list(events),
        snapshot=snapshot,
        in_width=plan.in_width,
        id_kind=id_type or run.get("id_type"),
        edge_types=plan.edge_types or None,
        undirected=bool(run.get("undirected", False)) if undirected is None else undirected,
        forbid_typed_loops=any(layer.skip_loops for layer in plan.layers),
        topics=from_recorded(run.get("topics", [])),
        events_map=run.get("events_map", {}),
        properties=properties or ClientProperties(),
        starts=Start.load(out).files,
        id_bytes_max=run.get("id_bytes_max", ID_BYTES_MAX),
        recorded=run.get("sources", []),
    )
    question = Question(out, loaded, run, _chosen(oracle), tolerance, every)
    with CheckProgress() as progress:
        findings = _findings(question, given, progress.tell)
    for fault in findings.faults:
        _say(f"wrong: {fault}")
    print(orjson.dumps(findings.line()).decode(), flush=True)
    return EXIT_DONE if findings.is_good(tolerance) else EXIT_CHECK_FAILED


def _findings(question: Question, given: Given, tell: Tell) -> Findings:
    """Look at the log as a whole, then at the epochs in question one by one as the input is replayed."""
    reader, last = _log_of(question.out)
    log = audit(reader, question.run, read_statuses(question.out), tell)
    found = Findings(last, question.oracle, nonfinite=log.nonfinite, faults=list(log.faults))
    replay = PlainReplay(given, reader.positions(), tell)
    if given.snapshot is not None:
        _say(f"snapshot: {len(replay.graph):,} vertices")
        found.faults += _of_snapshot(reader, len(replay.graph))
    for epoch in replay.epochs(_sample(question, last, log)):
        graph = replay.graph.arrays()
        size = f"{len(graph.ids):,} vertices, {len(graph.src):,} edges after epoch {epoch:,}"
        tell(f"{size} of {last:,}: full pass")
        if epoch == last:
            _say(f"{size}; full pass ({question.oracle})")
        expected = _full_pass(question, graph)
        tell(f"{size} of {last:,}: comparing")
        state = reader.state_at(epoch)
        difference = compare(state.ids, state.vectors, _ids_of(graph), expected.rows, expected.scale)
        found.differences.append((epoch, difference))
        found.duplicates = state.duplicates  # of all rows up to this epoch
    tell("reading the input to its end")
    found.faults += _of_input(question, replay)
    found.events, found.rejected = replay.accepted + replay.rejected, replay.rejected
    return found


def _of_input(question: Question, replay: PlainReplay) -> list[str]:
    """What the run tells of its input as a whole; its events have been replayed."""
    faults = list(replay.faults)
    finished, run = has_finished(question.run), question.run
    if not finished and replay.has_more:
        _say(f"the run stopped before the end of its input: checking what it applied, {replay.accepted:,} events")
    left = replay.finish(finished)
    if left:
        faults.append(f"epochs/: {left:,} events of the input are in no epoch, of a run that has finished")
    statuses = read_statuses(question.out)
    told = run.get(SUMMARY) or (max(statuses, key=lambda one: one["events"]) if statuses else {})
    if not finished or not told:
        return faults
    counted = {"events": replay.accepted + replay.rejected, "rejected": replay.rejected}
    return faults + [
        f"the run tells of {told[name]:,} {name}, its input has {count:,}"
        for name, count in counted.items()
        if told[name] != count
    ]


def _of_snapshot(reader: ChangeLogReader, vertices: int) -> list[str]:
    there = len(reader.state_at(0, vectors=False).ids)
    return [] if there == vertices else [f"embeddings/: epoch 0 has {there:,} vertices, the snapshot {vertices:,}"]


def _sample(question: Question, last: int, log: Audit) -> set[int]:
    """The epochs to look at: the last, those asked for, and some that hold NaN or infinity."""
    asked = range(question.every, last, question.every) if question.every else ()
    return {last, *asked, *log.suspects}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _chosen(oracle: str | None) -> str:
    from gnn.pyg import oracle as torch_oracle

    if oracle == PYG and not torch_oracle.available():
        message = "--oracle pyg: torch and torch-geometric are not installed; `make install` does it, or take own"
        raise UsageError(message)
    return oracle or (PYG if torch_oracle.available() else OWN)


def _model_of_run(folder: Path, run: dict[str, Any]) -> tuple[Model, Plan]:
    try:
        model = load_model(folder)
    except ModelError as error:
        message = f"--model {folder}: {error}"
        raise UsageError(message) from None
    plan = compile_plan(model)
    recorded = run.get("model_sha256")
    if recorded is not None and recorded != plan.sha256:
        message = f"--model {folder}: SHA-256 {plan.sha256}, the run had {recorded}; give the model of the run"
        raise UsageError(message)
    return model, plan


def _log_of(out: Path) -> tuple[ChangeLogReader, int]:
    try:
        reader = ChangeLogReader(out)
    except NoChangeLogError as error:
        message = f"--out {error}"
        raise UsageError(message) from None
    epoch = reader.last_epoch()
    if epoch is None:
        message = f"--out {out}: no epoch is complete in it yet, so there is nothing to check"
        raise UsageError(message)
    return reader, epoch


def _full_pass(question: Question, graph: GraphArrays) -> Scaled:
    """The embeddings in float64, by the oracle, and the scale of each value, which is always our own."""
    if not len(graph.ids):
        nothing = np.empty((0, question.model.out_width))
        return Scaled(nothing, nothing)
    given = question.model, graph.x, graph.src, graph.dst, graph.weight
    scaled = own_scale.forward(*given, tolerance=question.tolerance)
    if question.oracle == OWN:
        return scaled
    from gnn.pyg import oracle as torch_oracle

    return Scaled(torch_oracle.forward(*given, dtype=np.float64)[-1], scaled.scale)


def _ids_of(graph: GraphArrays) -> np.ndarray:
    if graph.ids and isinstance(graph.ids[0], str):
        return np.array(graph.ids, object)
    return np.array(graph.ids, np.int64)
