"""The pause test: a job on a cluster of processes, at full load from a file, whose output topic's broker stands still.

The broker is stopped by SIGSTOP in the middle of the stream, and goes on by SIGCONT. While it stands, the sink waits,
and so does everything before it: the source must stand still soon, the memory of no process may rise by more than what
is configured to wait (`memory_bound`), and nothing may restart. Afterwards the job catches up, and what it leaves must
be what it would have been without the pause.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from freshet.gnn.model import save_model
from freshet.job.dev.broker import start_broker
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.flink.rest import FlinkRest
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.run.watching import IN_FLIGHT
from tests.drills.memory_samples import MIB, Pause, Sampler, caught_up_after_s, rises, stood_after_s
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records
from tests.support.kafka.topics import broker_folder, standing
from tests.support.runs.jobs import ROOT, Input, Job, read_log
from tests.support.runs.judge import Delivery, Outcome, Say, check_count, check_embeddings, check_topic
from tests.support.runs.light_python import python_path

WIDTH = 64  # of the embeddings
VERTICES = 30_000
PARTS = 2
PATIENCE_S = 600.0
STANDS_AFTER_S = 30.0  # by then everything on the way is full
# What a process takes by itself: compiled code, buffers of its allocators, heap pages of the JobManager.
JAVA_BYTES = 64 * MIB
# A heap whose pages are there from the start: else it grows for half a minute at full load, whatever waits.
OPTIONS = {"env.java.opts.taskmanager": "-XX:+AlwaysPreTouch"}
PRODUCER_BYTES = 32 * MIB  # buffer.memory of a Kafka producer, its default
# A row as text beside the row as it is held: base64, and its key, id, epoch and model.
TEXT_BYTES, HELD_BYTES = 4 * WIDTH * 4 // 3 + 100, 4 * WIDTH + 16


@dataclass(frozen=True)
class PauseCase:
    """What is asked for."""

    seconds: float
    events: int
    seed: int
    delivery: Delivery


@dataclass
class Measured:
    """What came of it: figures for the closing line, and what fell short."""

    figures: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def expect(self, good: bool, what: str) -> None:
        """Note what is not as it should be."""
        if not good:
            self.failed.append(what)


def memory_bound(levels: dict[str, Any]) -> dict[str, int]:
    """What the memory of a TaskManager may rise by: the bounds of what waits in it, with one part of the sink each.

    `levels`: those of all parts together, as in run.json.
    """
    held = levels["sink.outlet_bytes"]["bound"] // PARTS
    return {
        "network": levels[IN_FLIGHT]["bound"] // PARTS,
        "inboxes": sum(level["bound"] for name, level in levels.items() if name.endswith(".inbox_bytes")) // PARTS,
        "change_log_rows": levels["sink.rows_bytes"]["bound"] // PARTS,
        "interval": held,
        "interval_as_text": held * TEXT_BYTES // HELD_BYTES,
        "producer": PRODUCER_BYTES,
        "java": JAVA_BYTES,
    }


def make_pause_input(folder: Path, events: int, seed: int) -> Input:
    """A stream that has most vertices change all the time, and a model with rows of 256 bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = [conv("sage_conv", IN_WIDTH, WIDTH), {"type": "relu"}, conv("gcn_conv", WIDTH, WIDTH)]
    save_model(make_model(seed, layers), folder / "model")
    records = random_records(random.Random(seed), events, IN_WIDTH, vertices=VERTICES)
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return Input(folder / "model", path, events)


class PauseRun:
    """One run in a folder of its own; `run` leaves no process behind, `sampler` has what it saw."""

    def __init__(self, case: PauseCase, folder: Path, samples: Path, say: Say) -> None:
        self.case, self.folder, self.say = case, folder, say
        self.pause: Pause | None = None
        self._samples = samples

    def run(self) -> Measured:
        """Start everything, pause, let it end, and look at what it left.

        Raises: AssertionError when the job fails or does not get on.
        """
        with ExitStack() as stack:
            data = stack.enter_context(broker_folder(self.folder))
            self.broker = stack.enter_context(start_broker(data, sasl=False, tls=False))
            self.cluster = stack.enter_context(LocalCluster(self.folder / "cluster", PARTS, options=OPTIONS))
            self.say(f"{self.case.events:,} events from seed {self.case.seed}")
            given = make_pause_input(self.folder / "in", self.case.events, self.case.seed)
            self.job = Job(given, self.folder / "out", {"PYTHONPATH": python_path(ROOT)})
            stack.callback(self.job.end)
            topic = f"kafka://{self.broker.address}/embeddings"
            shape = ("--parts", PARTS, "--parallelism", PARTS, "--checkpoint-interval", "5s")
            self.job.start(
                *shape, "--cluster", self.cluster.rest, "--embeddings-to", topic, "--delivery", self.case.delivery
            )
            self._until(lambda: progress(self.job.out)["events"] > 0, "the first epoch")
            with Sampler(self.job.out, self._processes, self._samples) as self.sampler:
                measured = self._pause_and_end()
            self._judge_memory(measured)
            self._judge_result(measured)
            return measured

    def _processes(self) -> dict[str, int]:
        found = {one.name: one.pid for one in self.cluster.task_managers}
        if self.cluster.job_manager is not None:
            found["jobmanager"] = self.cluster.job_manager.pid
        pids = read_run(self.job.out).get("pids", {})
        return found | {
            name: pids[key] for name, key in (("client", "client"), ("client's java", "java")) if key in pids
        }

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.job.processes[-1].poll() is None, f"the job ended before {what}\n{self.job.log()[-3000:]}"
            assert time.monotonic() < deadline, f"{what}: waited in vain\n{self.job.log()[-3000:]}"
            time.sleep(0.1)

    def _pause_and_end(self) -> Measured:
        measured, events = Measured(), self.case.events
        self._until(lambda: progress(self.job.out)["events"] >= events // 3, "a third of the stream")
        rest = FlinkRest(self.cluster.rest, str(read_run(self.job.out)["job_id"]))
        before = progress(self.job.out)
        self.say(f"the broker stands for {self.case.seconds:g} s, at {before['events']:,} events")
        begin = self.sampler.now_s()
        with standing(self.broker):
            self._rest_until(begin + self.case.seconds)
            restarts = len(rest.causes())
            at_end = progress(self.job.out)["events"]
            end = self.sampler.now_s()
        self.pause = Pause(begin, end)
        self.say(f"the broker goes on, at {at_end:,} events")
        self._until(lambda: progress(self.job.out)["events"] > at_end, "the job goes on")
        on_after = self.sampler.now_s() - end
        restarts = max(restarts, len(rest.causes()))
        rest.close()
        ended = self.job.wait(PATIENCE_S)
        restarts = max(restarts, ended.errors.count("restarted after: "))
        assert ended.code == 0, ended.errors[-3000:]
        measured.figures |= {
            "events_before": before["events"],
            "events_per_s_before": round(before["events"] / before["seconds"]),
            "events_in_the_pause": at_end - before["events"],
            "goes_on_after_s": round(on_after, 1),
            "restarts": restarts,
        }
        measured.expect(at_end < events, "the stream ended before the pause did")
        measured.expect(restarts == 0, f"the job restarted: {ended.errors[-500:]}")
        measured.expect(ended.result["events"] == events, f"took in {ended.result['events']} of {events} events")
        return measured

    def _rest_until(self, at_s: float) -> None:
        while self.sampler.now_s() < at_s:
            assert self.job.processes[-1].poll() is None, f"the job ended in the pause\n{self.job.log()[-3000:]}"
            time.sleep(0.2)

    def _judge_memory(self, measured: Measured) -> None:
        assert self.pause is not None
        samples, pause = self.sampler.samples, self.pause
        stood = stood_after_s(samples, pause)
        parts = memory_bound(read_run(self.job.out)["levels"])
        bound = sum(parts.values())
        rise, still = rises(samples, pause), rises(samples, pause, since_s=stood)
        for name, by in rise.items():
            measured.expect(by <= bound, f"{name} rose by {by // MIB} MiB in the pause, over {bound // MIB}")
            by = still[name]
            measured.expect(by <= JAVA_BYTES, f"{name} rose by {by // MIB} MiB while the source stood still")
        limit = min(STANDS_AFTER_S, self.case.seconds / 2)
        still_to_read = samples[-1].read_bytes > pause.within(samples)[-1].read_bytes
        measured.expect(still_to_read, "the source had read everything in the pause; take more events")
        caught_up = caught_up_after_s(samples, pause, self.case.events)
        measured.expect(stood <= limit, f"the source read on for {stood:.1f} s of the pause, over {limit:g}")
        measured.figures |= {
            "source_stood_after_s": round(stood, 1),
            "caught_up_after_s": round(caught_up, 1),
            "events_per_s_after": round((self.case.events - pause.within(samples)[-1].events) / caught_up),
            "rss_bound_mb": bound // MIB,
            "rss_bound_of_mb": {name: each // MIB for name, each in parts.items()},
            "rss_rise_mb": _mib(rise),
            "rss_rise_standing_mb": _mib(still),
            "rss_peak_mb": _mib({name: max(one.rss.get(name, 0) for one in samples) for name in rise}),
        }

    def _judge_result(self, measured: Measured) -> None:
        levels = read_run(self.job.out)["levels"]
        for name, level in levels.items():
            fits = level["bound"] is None or level["peak"] <= level["bound"]
            measured.expect(fits, f"{name}: {level}")
        measured.expect(levels[IN_FLIGHT]["now"] == 0, f"{IN_FLIGHT}: {levels[IN_FLIGHT]} at the end")
        measured.expect(levels["sink.outlet_bytes"]["peak"] > 0, "the sink's outlet has held nothing at all")
        measured.figures["level_peaks"] = {
            name: level["peak"] for name, level in levels.items() if name.endswith("_bytes") and level["peak"]
        }
        outcome = Outcome()
        log = read_log(self.job.out)
        check_embeddings(self.job, outcome, self.say)
        check_count(self.job.out, self.case.events, outcome)
        check_topic(self.broker, log, self.case.delivery, outcome, self.say)
        measured.failed += outcome.notes
        measured.expect(outcome.good, "the result is not right")
        measured.figures |= {name: value for name, value in asdict(outcome).items() if name != "notes"}


def _mib(sizes: dict[str, int]) -> dict[str, float]:
    return {name: round(size / MIB, 1) for name, size in sizes.items()}
