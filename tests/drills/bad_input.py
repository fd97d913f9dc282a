"""The bad-input test: a stream of which a share is malformed in many ways, through Kafka and a job on Flink.

A broker of its own gets a topic of several partitions with good events and, between them, records that are wrong in all
the ways of `malformed`. `freshet run` reads it to its end. Then

- the closing line counts every record, and as many rejected ones as are bad;
- Flink has not restarted the job: it is asked while the job runs, and its log tells the states that the job was in;
- the dead letters hold each bad record once: source, partition and offset, its bytes, and a reason with the words that
  are known to be true of it; of a message with more than a thousand the first thousand, and one letter for the rest;
- the embeddings equal the oracle's by `freshet check`, which reads the topic with rules of its own, and by a second
  graph of the events that were sent as good ones, from which all rules were kept away.

Snapshots that are wrong about kinds are refused before the start, each with its reason (bad_snapshots.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from freshet.gnn.model import save_model
from freshet.job.dev.broker import start_broker
from freshet.job.results.compare import compare
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.drills.bad_graphs import BadGraph, OneKind, SeveralKinds
from tests.drills.bad_letters import Letters, judge
from tests.drills.bad_snapshots import refused_snapshots
from tests.drills.bad_stream import TYPE_FLOOD, BadStream, Sent, send
from tests.drills.job_watch import JobWatch, states_in_log
from tests.support.kafka.topics import broker_folder
from tests.support.malformed.records import Way
from tests.support.runs.jobs import Ended, Job, TopicInput

TOPIC = "bad-input"
TOLERANCE = 1e-4
QUIET_LIFE = ["CREATED", "RUNNING", "FINISHED"]
FAIL_EPOCH = 3
_PATIENCE_S = 300.0  # the very first run compiles the kernels
_EVENTS_PER_S_MIN = 1000.0  # slower than that, and the job hangs


@dataclass(frozen=True)
class Case:
    """What is asked for.

    `restart`: one act of the job fails on purpose, to see the restart noticed. `kinds`: vertices have kinds.
    """

    events: int
    share: float = 0.1
    seed: int = 1
    partitions: int = 4
    restart: bool = False
    kinds: bool = False


@dataclass
class Outcome:
    """What came of it: figures for the JSON line, and what is wrong in words."""

    figures: dict[str, Any] = field(default_factory=dict)
    by_way: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing was wrong."""
        return not self.notes

    def expect(self, right: bool, text: str) -> None:
        """Note what is wrong."""
        if not right:
            self.notes.append(text)


class BadInput:
    """One run of a case in a folder of its own; `run` leaves no process behind."""

    def __init__(self, case: Case, folder: Path, say: Callable[[str], None]) -> None:
        self.case, self.folder, self.say = case, folder, say
        self.out = folder / "out"
        self.graph: BadGraph = SeveralKinds() if case.kinds else OneKind()
        self.model = self.graph.model(case.seed)

    def run(self) -> Outcome:
        """Start a broker, fill the topic, run the job, and look at what it left.

        Raises: JobFailed when the broker does not start; TimeoutExpired when the job does not end.
        """
        case, outcome = self.case, Outcome()
        stream = BadStream(case.events, case.share, case.seed, not case.kinds, self.graph)
        with ExitStack() as stack:
            data = stack.enter_context(broker_folder(self.folder))
            broker = stack.enter_context(start_broker(data, sasl=False, tls=False))
            began = time.monotonic()
            sent = send(stream, broker, TOPIC, case.partitions, case.seed)
            took = time.monotonic() - began
            messages = sum(sent.ends)
            self.say(f"{messages:,} messages, {sent.bytes / 1e6:,.0f} MB, {sent.rejected:,} bad, in {took:.0f} s")
            given = self._given(f"kafka://{broker.address}/{TOPIC}")
            outcome.figures |= {"messages": messages, "megabytes": round(sent.bytes / 1e6), "produce_s": round(took, 1)}
            self._run_job(given, outcome, sent)
            self._judge_letters(outcome, sent, given.topic)
            self._check(outcome, given)
        self._check_plainly(outcome, sent)
        notes, outcome.figures["snapshots"] = refused_snapshots(self.folder, kinds=case.kinds)
        outcome.notes += notes
        return outcome

    def _given(self, topic: str) -> TopicInput:
        save_model(self.model, self.folder / "model")
        return TopicInput(self.folder / "model", self.folder, self.case.events, topic=topic)

    def _run_job(self, given: TopicInput, outcome: Outcome, sent: Sent) -> None:
        case, job = self.case, Job(given, self.out)
        fail = [{"operator": "storage1", "part": 0, "epoch": FAIL_EPOCH, "folder": str(self.folder)}]
        faults = {"fail": fail} if case.restart else None
        with ExitStack() as stack:
            stack.callback(job.end)
            # of all letters, not of the newest gigabyte
            options = ("--until", "latest", "--id-type", "int", "--parts", 2, "--dead-letters-max", "100GiB")
            process = job.start(*options, faults=faults)
            watch = stack.enter_context(JobWatch(process.pid, self.out))
            ended = job.wait(_PATIENCE_S + case.events / _EVENTS_PER_S_MIN)
        self._judge_run(outcome, ended, watch, sent)

    def _judge_run(self, outcome: Outcome, ended: Ended, watch: JobWatch, sent: Sent) -> None:
        done, states = ended.result, states_in_log(self.out / "logs")
        told = ended.errors.count("restarted after: ")
        restarts = max(watch.restarts, told, states.count("RESTARTING"))
        outcome.expect(ended.code == 0, f"the job ended with {ended.code}: {ended.last_line}")
        outcome.expect(watch.asked > 0, "Flink was not asked once for restarts")
        outcome.expect(states == QUIET_LIFE, f"the job went through {', '.join(states)}")
        outcome.expect(restarts == 0, f"{restarts} restarts")
        counted = done.get("events"), done.get("rejected")
        meant = sent.events, sent.rejected
        outcome.expect(counted == meant, f"the closing line counts {counted} (events, rejected), sent were {meant}")
        reasons = done.get("reasons", {})
        outcome.expect(sum(reasons.values()) == sent.rejected, f"reasons of {sum(reasons.values()):,} records")
        figures = {name: done.get(name) for name in ("rejected", "epochs", "seconds", "events_per_s", "vertices")}
        memory = {"peak_rss_mb": watch.peak_bytes >> 20, "reasons": len(reasons)}
        outcome.figures |= {**figures, **memory, "restarts": restarts, "flink_asked": watch.asked}
        self.say(f"the job: {orjson.dumps({**figures, **memory}).decode()}")

    def _judge_letters(self, outcome: Outcome, sent: Sent, topic: str) -> None:
        path = self.out / "dead_letters.jsonl"
        if not path.exists():
            outcome.expect(sent.rejected == 0, f"no {path.name}")
            return
        with path.open("rb") as file:
            letters = judge(file, sent.bad, topic)
        outcome.notes += letters.notes
        wrong = letters.wrong
        outcome.expect(letters.right == sent.rejected, f"{letters.right:,} letters are right; {wrong}")
        outcome.expect(not any(wrong.values()), f"dead letters: {wrong}")
        outcome.figures |= {"letters": letters.right, **wrong, "letters_mb": round(path.stat().st_size / 1e6)}
        outcome.by_way = by_way([*self.graph.ways, *([] if self.case.kinds else [TYPE_FLOOD])], sent, letters)
        self.say(f"dead letters: {letters.right:,} right in {len(outcome.by_way)} ways, {wrong}")

    def _check(self, outcome: Outcome, given: TopicInput) -> None:
        """As a user would."""
        ended = Job(given, self.out).checked(timeout_s=None)
        found = ended.result
        if not found:
            outcome.notes.append(f"freshet check: {ended.errors.strip()[-500:]}")
            return
        self.say(f"freshet check: {found}")
        outcome.expect(ended.code == 0 and found["max_rel_error"] <= TOLERANCE, f"freshet check: {found}")
        names = ("missing", "extra", "mismatched", "duplicates")
        outcome.expect(found["vertices"] > 0 and not any(found[name] for name in names), f"freshet check: {found}")
        names = ("max_rel_error", "missing", "extra", "vertices")
        outcome.figures["check"] = {name: found[name] for name in names}

    def _check_plainly(self, outcome: Outcome, sent: Sent) -> None:
        """By what was sent as good, not by what anybody makes of it."""
        reader = ChangeLogReader(self.out)
        try:
            events, ids, expected = self.graph.embeddings(sent.good, reader.positions(), self.model)
        except AssertionError as error:
            outcome.notes.append(f"good events: {error}")
            return
        state = reader.final()
        difference = compare(state.ids, state.vectors, ids, expected.rows, expected.scale)
        self.say(f"from {events:,} good events without any rules: {difference}")
        outcome.expect(difference.is_within(TOLERANCE) and difference.vertices > 0, f"without rules: {difference}")
        outcome.figures["without_parser"] = {"events": events, "max_rel_error": difference.max_rel_error}


def by_way(ways: list[Way], sent: Sent, letters: Letters) -> dict[str, dict[str, Any]]:
    """How many records of each way were sent and found in the dead letters, and a reason."""
    counts: dict[str, int] = {way.name: 0 for way in ways}
    for place in sent.bad.values():
        for bad in place:
            counts[bad.way.name] += bad.records
    return {
        name: {"sent": count, "letters": letters.counts[name], "reason": letters.examples.get(name)}
        for name, count in counts.items()
    }


def line(case: Case, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The JSON line of a run."""
    given = {name: value for name, value in asdict(case).items() if value is not False}
    head = {"good": outcome.good, **given, "ways": len(outcome.by_way)}
    return {**head, **outcome.figures, "total_s": round(seconds, 1), "by_way": outcome.by_way}
