"""`freshet check`: recomputes a run's graph and embeddings from scratch, and holds its change log against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from freshet.gnn.any_plan import AnyPlan, compile_any
from freshet.gnn.kinds.model import load_any_model
from freshet.gnn.model import ModelError
from freshet.job.console import CheckProgress, Report, say
from freshet.job.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from freshet.job.folder.returned_kinds import WrittenRows, folder_name, written_of
from freshet.job.folder.run_file import ENDED, has_finished, read_run
from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import from_recorded
from freshet.job.lifecycle.ending import settled
from freshet.job.lifecycle.summary import complete_epoch
from freshet.job.results.compare import Compared, Findings, compare
from freshet.job.results.full_pass import (
    OWN,
    AnyModel,
    arrays_of,
    embedded_of,
    fitting,
    full_pass,
    ids_of,
    module_faults,
    refuse_what_is_missing,
    returned_kinds,
    sizes_of,
)
from freshet.job.results.log_audit import STATUS_FIELDS, SUMMARY, Audit, audit
from freshet.job.results.logged_rows import LoggedRows
from freshet.job.results.plain_replay import Given, PlainReplay
from freshet.job.results.plain_rules import ID_BYTES_MAX
from freshet.job.run.preflight import check_registry
from freshet.job.run.sources import load_starts
from freshet.job.run.watching import SAID_ABOVE, in_words
from freshet.operators.graph.rules import graph_rules
from freshet.operators.parser.letter_box import NOTED_LATE, ReadCounts, read_counts, read_noted, read_reasons
from freshet.operators.sink.change_log_reader import ChangeLogReader, NoChangeLogError
from freshet.operators.telemetry.status_file import read_statuses
from freshet.partitioner.config import GraphRules


@dataclass(frozen=True)
class Question:
    """Scope and precision of a check.

    `oracle` None: PyTorch Geometric if it is installed and has enough memory. `every`: number of epochs between checks;
    None: only the last epoch. `kinds`: those whose embeddings are compared, of those that the model returns.
    """

    out: Path
    model: AnyModel
    plan: AnyPlan
    written: WrittenRows
    run: dict[str, Any]
    oracle: str | None
    tolerance: float
    every: int | None
    kinds: list[str]


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
    kind: str | None = None,
) -> int:
    """Print one JSON line about the difference of `out` from the oracle; 0 if all is well, else 1.

    The graph is the one after the last epoch that `out` records, so that a stopped run can be checked, too; with
    `every` also the graphs at these intervals. Options that are not given are those of the run. `kind`: the only one
    to compare, of those that the model returns.

    Raises:
        UsageError: `out` holds no result, or model, snapshot or events are not those of the run.
    """
    out, snapshot = Path(out), None if snapshot is None else Path(snapshot)
    properties = properties or ClientProperties()
    await_brokers([("--events", KafkaAddress.parse(one)) for one in events if is_kafka(one)], properties)
    run = read_run(out)
    if run.get("cluster") and run.get("state") not in ENDED:  # it may have ended without a client
        settled(out)
        run = read_run(out)
    loaded, plan = _model_of_run(Path(model), run)
    if snapshot is None and run.get("snapshot"):
        msg = f"--snapshot: the run in {out} began with {run['snapshot']}; give it"
        raise UsageError(msg)
    if run.get("registry"):
        check_registry(run["registry"], properties)
    given = Given(
        events=list(events),
        snapshot=snapshot,
        features=plan.features,
        id_kind=id_type or run.get("id_type"),
        cast_ids=bool(run.get("cast_ids")),
        graph=_rules_of_run(plan, run, undirected),
        topics=from_recorded(run.get("topics", [])),
        events_map=run.get("events_map", {}),
        properties=properties,
        message_format=run.get("format", ""),
        registry=run.get("registry", ""),
        starts=load_starts(out),
        id_bytes_max=run.get("id_bytes_max", ID_BYTES_MAX),
        recorded=run.get("sources", []),
        ts_unit=run.get("ts_unit", "ms"),
        edge_key=run.get("edge_key", ""),
    )
    refuse_what_is_missing(loaded, oracle)
    returned = returned_kinds(loaded)
    if kind is not None:
        folder_name([one for one in returned if one], kind, out)
    question = Question(
        out, loaded, plan, written_of(out), run, oracle, tolerance, every, returned if kind is None else [kind]
    )
    held, faults = module_faults(Path(model), loaded, tolerance)
    with CheckProgress() as progress:
        findings = _findings(question, given, progress.report)
    findings.module_answers, findings.faults = held, [*faults, *findings.faults]
    for fault in findings.faults:
        say(f"wrong: {fault}")
    print(orjson.dumps(findings.line()).decode(), flush=True)
    return EXIT_DONE if findings.is_good(tolerance) else EXIT_CHECK_FAILED


def _rules_of_run(plan: AnyPlan, run: dict[str, Any], undirected: bool | None) -> GraphRules:
    """The rules of the run's graph; `undirected`: None for as the run did."""
    rules = graph_rules(plan, undirected=bool(run.get("undirected", False)) if undirected is None else undirected)
    times = {"edge_ttl_ms": run.get("edge_ttl_ms", 0), "ts_jump_ms": run.get("ts_jump_ms", 0)}
    return replace(rules, **times, edge_keys=run.get("edge_keys", ""))


def _findings(question: Question, given: Given, report: Report) -> Findings:
    """Look at the logs as a whole, then at the epochs in question one by one as the input is replayed."""
    # A run that goes on has at least what is read of it before its files are listed, and no more than what is after.
    has_ended = question.run.get("state") in ENDED
    before, upto = read_statuses(question.out, needs=STATUS_FIELDS), complete_epoch(question.out)
    readers, slowest = _logs_of(question)
    last = slowest.last_epoch() or 0
    last = last if has_ended else min(last, upto)
    statuses = read_statuses(question.out, needs=STATUS_FIELDS)
    log = audit(list(readers.values()), question.run, before, statuses, report)
    found = Findings(last, question.oracle or OWN, nonfinite=log.nonfinite, faults=list(log.faults))
    found.approximate = question.model.is_approximate
    if found.approximate:
        say(
            "the model is approximate: norms over all vertices keep the statistics of its export; it is what is checked"
        )
    found.faults += _of_positions(readers.values(), slowest, last)
    replay = PlainReplay(given, slowest.positions(), report)
    if given.snapshot is not None:
        say(f"snapshot: {len(replay.graph):,} vertices")
        for kind in readers if question.written.is_inner else question.kinds:
            found.faults += _of_snapshot(readers[kind], embedded_of(replay.graph, kind))
    several = len(returned_kinds(question.model)) > 1
    logged = LoggedRows(readers, question.plan, is_inner=question.written.is_inner)
    for epoch in replay.epochs(_sample(question, last, log)):
        graph = arrays_of(replay.graph)
        vertices, edges = sizes_of(graph)
        size = f"{vertices:,} vertices, {edges:,} edges after epoch {epoch:,}"
        found.oracle = question.oracle or fitting(question.model, graph)
        if epoch == last:
            say(f"{size}; full pass ({found.oracle})")
        report(f"{size} of {last:,}: full pass")
        behind = partial(_report_behind, report, size)
        expected = full_pass(question.model, graph, found.oracle, question.tolerance, behind)
        report(f"{size} of {last:,}: comparing")
        logged.begin(epoch, graph)
        for kind in question.kinds:
            here, wanted = logged.of(kind), expected[kind]
            difference = compare(*here, ids_of(graph, kind), wanted.rows, wanted.scale)
            found.differences.append(Compared(epoch, difference, kind if several else ""))
        found.duplicates = logged.duplicates  # of all rows up to this epoch
    found.faults += logged.faults
    report("reading the input to its end")
    found.faults += replay.faults
    found.events, found.rejected = _read_to_the_end(question, replay, found)
    found.faults += _of_totals(question.run, statuses, found) + _of_rejected(question, found)
    found.faults += _of_noted(question, replay.noted)
    if not found.is_good(question.tolerance) and (lost := replay.why_not_whole()):
        msg = (
            f"--events: the run in {question.out} can't be checked: {'; '.join(lost)}, so that the events that it read "
            "are not all there any more; check a run before its topic is compacted"
        )
        raise UsageError(msg)
    return found


def _report_behind(report: Report, size: str, where: str) -> None:
    report(f"{size}: {where}")


def _read_to_the_end(question: Question, replay: PlainReplay, found: Findings) -> tuple[int, int]:
    """Read what no epoch has; returns how many records the run has taken or rejected, and how many it has rejected.

    A run that has finished has left no event of it out. One that was stopped has rejected records behind its last
    epoch, too, which are in its summary and its letters.
    """
    if has_finished(question.run):
        if left := replay.finish():
            found.faults.append(f"epochs/: {left:,} events of the input are in no epoch, of a run that has finished")
        return replay.accepted + replay.rejected, replay.rejected
    accepted, rejected = replay.accepted, replay.rejected
    if replay.has_more:
        say(f"the run stopped before the end of its input: checking what it applied, {accepted:,} events")
    stated = sum(read_reasons(question.out).values())
    replay.read_on(stated)
    rejected = max(rejected, min(stated, replay.rejected))
    return accepted + rejected, rejected


def _of_totals(run: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]], found: Findings) -> list[str]:
    """Compare the totals that a finished run reports with its input."""
    stated = run.get(SUMMARY) or max(statuses, key=lambda one: one["events"], default=None)
    if not has_finished(run) or not stated:
        return []
    return [
        f"the run tells of {stated[name]:,} {name}, its input has {count:,}"
        for name, count in (("events", found.events), ("rejected", found.rejected))
        if stated[name] != count
    ]


def _of_noted(question: Question, counted: Mapping[str, int]) -> list[str]:
    """Compare what a finished run's summary says of its events with its input; an earlier version counted nothing."""
    stated = question.run.get(SUMMARY) or {}
    if not has_finished(question.run) or read_noted(question.out)[NOTED_LATE]:
        return []
    return [
        f"the run tells of {name}: {stated[name]:,}, its input has {count:,}"
        for name, count in counted.items()
        if stated.get(name, count) != count
    ]


def _of_rejected(question: Question, found: Findings) -> list[str]:
    """Say what was rejected, which is no fault of the run; but where nothing was accepted, nothing was checked."""
    counts = ReadCounts(found.events, found.rejected)
    if not has_finished(question.run):  # it may have accepted what is in no epoch yet
        counts = max(counts, read_counts(question.out))
    if counts.share <= SAID_ABOVE:
        return []
    stated = in_words(counts, read_reasons(question.out))
    if counts.rejected == counts.read:
        return [f"no record was accepted: {stated}"]
    say(stated)
    return []


def _of_snapshot(reader: ChangeLogReader, vertices: int) -> list[str]:
    there = len(reader.state_at(0, vectors=False).ids)
    return [] if there == vertices else [f"{reader.where}: epoch 0 has {there:,} vertices, the snapshot {vertices:,}"]


def _of_positions(readers: Iterable[ChangeLogReader], slowest: ChangeLogReader, last: int) -> list[str]:
    """Compare the input that the logs of several kinds say of the epochs up to the last one that all have."""
    wanted, faults = slowest.positions().upto(last), []
    for reader in readers:
        there = reader.positions().upto(last)
        columns = ("epoch", "source", "partition", "next_offset", "events")
        if not all(np.array_equal(getattr(there, one), getattr(wanted, one)) for one in columns):
            faults.append(f"epochs/{reader.kind}: its epochs end with other input than those of epochs/{slowest.kind}")
    return faults


def _sample(question: Question, last: int, log: Audit) -> set[int]:
    """The epochs to look at: the last, those asked for, and some that hold NaN or infinity."""
    asked = range(question.every, last, question.every) if question.every else ()
    return {last, *asked, *(one for one in log.suspects if one <= last)}


def _model_of_run(folder: Path, run: dict[str, Any]) -> tuple[AnyModel, AnyPlan]:
    try:
        model = load_any_model(folder)
    except ModelError as error:
        msg = f"--model {folder}: {error}"
        raise UsageError(msg) from None
    plan = compile_any(model)
    recorded = run.get("model_sha256")
    if recorded is not None and recorded != plan.sha256:
        msg = f"--model {folder}: SHA-256 {plan.sha256}, the run had {recorded}; give the model of the run"
        raise UsageError(msg)
    return model, plan


def _logs_of(question: Question) -> tuple[dict[str, ChangeLogReader], ChangeLogReader]:
    """Return the log of each kind whose rows are written, and that which has the fewest epochs.

    Raises: UsageError where one is not there, or has none.
    """
    out, returned = question.out, returned_kinds(question.model)
    if question.written.is_inner:
        returned = question.written.kinds or [""]
        say(
            "embeddings are computed as they are read (--embeddings asked): the last layer is computed of the rows here"
        )
    try:
        readers = {kind: ChangeLogReader(out, kind if len(returned) > 1 else "") for kind in returned}
    except NoChangeLogError as error:
        msg = f"--out {error}"
        raise UsageError(msg) from None
    for reader in readers.values():
        if reader.last_epoch() is None:
            where = f"epochs/{reader.kind}"
            msg = f"--out {out}: no epoch is complete in it yet ({where} has none), so there is nothing to check"
            raise UsageError(msg)
    return readers, min(readers.values(), key=lambda reader: reader.last_epoch() or 0)
