"""Real jobs in processes of their own, through the command line: inputs, runs, kills, and what they wrote."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from freshet.gnn.model import save_model
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.machine.processes import die_with_parent
from freshet.job.options.flags import keys_of_the_file
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.jumping import join, keep
from tests.support.graphs.messages import gated_sum, message_layers
from tests.support.graphs.models import IN_WIDTH, Spec, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.graphs.streams import random_records, with_attributes
from tests.support.runs.inside import call_inside
from tests.support.runs.light_python import python_path

ROOT = Path(__file__).resolve().parents[3]
FRESHET = Path(sys.executable).with_name("freshet")
DEADLINE_S = 600.0  # the very first run compiles the kernels; a machine may be busy with others


@dataclass(frozen=True)
class Input:
    """A model, a stream, and possibly a snapshot that it begins with."""

    model: Path
    events: Path
    count: int
    snapshot: Path | None = None
    layers: tuple[str, ...] = field(default=(), kw_only=True)
    """Modules of layers that a user wrote."""

    @property
    def options(self) -> list[str]:
        """As every command takes them."""
        more = ["--snapshot", str(self.snapshot)] if self.snapshot else []
        more += [word for module in self.layers for word in ("--layers", module)]
        return ["--model", str(self.model), "--events", str(self.events), *more]


@dataclass(frozen=True)
class TopicInput(Input):
    """A model, and the topic that its events come from."""

    topic: str = ""
    config: Path | None = None

    @property
    def options(self) -> list[str]:
        options = ["--model", str(self.model), "--events", self.topic]
        options += ["--config", str(self.config)] if self.config else []
        return options + (["--snapshot", str(self.snapshot)] if self.snapshot else [])


SUMS = (conv("sage_conv", IN_WIDTH, 8), {"type": "relu"}, conv("gcn_conv", 8, 4))
# What is no sum: extrema, several aggregators, scores that are additive and others; with rows kept across convs.
NO_SUMS = (
    conv("gat_conv", IN_WIDTH, 8, heads=2),
    {"type": "elu"},
    keep("first"),
    conv("sage_conv", 8, 6, aggr=["mean", "max"]),
    {"type": "relu"},
    keep("second"),
    conv("gatv2_conv", 6, 6, heads=3),
    join("sum", "second", "."),
    conv("graph_conv", 6, 4, aggr="min"),
    join("cat", "first", "."),
)
# And these: variances among others, gates, scores that read values, messages of a network, and of a program; and a
# layer that a user wrote.
NO_SUMS_EITHER = (
    conv("pna_conv", IN_WIDTH, 6, aggregators=["mean", "max", "std"], scalers=["identity", "linear"], towers=2),
    {"type": "relu"},
    conv("res_gated_graph_conv", 6, 5),
    {"type": "elu"},
    conv("edge_conv", 5, 5),
    conv("super_gat_conv", 5, 4, heads=2),
    *message_layers(4)["message_conv-gate"],
    gated_sum(3, 4),
)


def make_input(
    folder: Path,
    events: int,
    *,
    vertices: int = 300,
    seed: int = 1,
    snapshot: bool = False,
    layers: Sequence[Spec] = SUMS,
    edge_width: int = 0,
    **options: Any,
) -> Input:
    """A model, by default of two layers that read weights and degrees, and a stream of all five kinds of events.

    With `edge_width` edges of the stream have attributes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_model(make_model(seed, layers), folder / "model")
    records = random_records(random.Random(seed), events, IN_WIDTH, vertices=vertices, **options)
    records = with_attributes(records, edge_width) if edge_width else records
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    written = tuple(one["code"].partition(":")[0] for one in layers if one["type"] == "own_layer")
    if not snapshot:
        return Input(folder / "model", path, events, layers=written)
    graph = random_graph(seed, vertices=vertices, edges=4 * vertices, width=IN_WIDTH)
    ids = np.arange(vertices) * 7 - 5  # as in `random_records`
    write_snapshot(folder / "snapshot", ids, graph.x, ids[graph.src], ids[graph.dst], graph.values.weight)
    return Input(folder / "model", path, events, folder / "snapshot", layers=written)


def keys_in_file(options: Sequence[str], path: Path) -> list[str]:
    """The options of `freshet run`, with those that have no flag moved to a --config file at `path`."""
    keys, given, left = keys_of_the_file(), list(options), []
    written: dict[str, Any] = {}
    while given:
        option = given.pop(0)
        if option == "--config":
            written |= yaml.safe_load(Path(given.pop(0)).read_text())
        elif (key := option.removeprefix("--")) in keys:
            written[key] = True if keys[key].annotation is bool else yaml.safe_load(given.pop(0))
        else:
            left.append(option)
    path.write_text(yaml.safe_dump(written))
    return [*left, "--config", str(path)]


@dataclass
class Ended:
    """How a command ended."""

    code: int
    result: dict[str, Any]
    errors: str

    @property
    def last_line(self) -> str:
        """Of stderr: the root cause where the command failed."""
        return (self.errors.strip().splitlines() or [""])[-1]


@dataclass
class Job:
    """An output folder and the commands that work on it; `end` leaves no process behind."""

    given: Input
    out: Path
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *options: object, faults: dict[str, Any] | None = None) -> subprocess.Popen[bytes]:
        """`freshet run` in a process group of its own, its stages faulty if asked."""
        command = [str(FRESHET)] if faults is None else [sys.executable, "-m", "tests.support.runs.faulty"]
        given = [*self.given.options, "--keep-cuts", *map(str, options)]  # all cuts, for `uninterrupted`
        keys = self.out.with_name(f"{self.out.name}.keys-{len(self.processes)}.yaml")
        command += ["run", "--out", str(self.out), *keys_in_file(given, keys)]
        environ = {**os.environ, **self.environ, "FRESHET_FAULTS": self._faults(faults)}
        self._hurry.unlink(missing_ok=True)
        with self._log(len(self.processes)).open("wb") as errors:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                preexec_fn=die_with_parent,  # also a test run that is killed leaves no job behind
            )
        self.processes.append(process)
        return process

    def environ_of_cluster(self, faults: dict[str, Any]) -> dict[str, str]:
        """Of processes that run stages with these faults; a cluster's have nothing of the command's environment."""
        return {"PYTHONPATH": python_path(ROOT), "FRESHET_FAULTS": self._faults(faults)}

    def _faults(self, faults: dict[str, Any] | None) -> str:
        return json.dumps({"hurry": str(self._hurry), **(faults or {})})

    def wait(self, timeout_s: float = DEADLINE_S) -> Ended:
        """Wait until the newest process has ended."""
        process = self.processes[-1]
        stdout, _ = process.communicate(timeout=timeout_s)
        lines = stdout.decode().splitlines()
        return Ended(process.returncode, orjson.loads(lines[-1]) if lines else {}, self.log())

    def log(self) -> str:
        """What the newest process has said on stderr."""
        return self._log(len(self.processes) - 1).read_text(errors="replace")  # it may be writing

    def run(self, *options: object, faults: dict[str, Any] | None = None) -> Ended:
        """Run to the end."""
        self.start(*options, faults=faults)
        return self.wait()

    def done(self, *options: object, faults: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run to the end, which must be a good one; the closing line."""
        ended = self.run(*options, faults=faults)
        assert ended.code == 0, ended.errors
        return ended.result

    def hurry(self) -> None:
        """From now on the newest process is slow no more."""
        self._hurry.touch()

    def stop(self, *options: object) -> Ended:
        """`freshet stop`, and the end of the run that it stops."""
        code, output, errors = call_inside("stop", *options, self.out)
        return Ended(code, orjson.loads(output.splitlines()[-1]) if output else {}, errors)

    def status(self) -> dict[str, Any]:
        """`freshet status --json`."""
        code, output, errors = call_inside("status", "--json", self.out)
        assert (code, errors) == (0, ""), f"{code}: {errors}"
        found: dict[str, Any] = orjson.loads(output)
        return found

    def exported(self, snapshot: Path) -> Ended:
        """`freshet export` into a folder, however it ends; tests/integration/test_export.py has it as a process."""
        code, output, errors = call_inside("export", "--out", snapshot, self.out)
        return Ended(code, orjson.loads(output) if output else {}, errors)

    def kill(self) -> None:
        """kill -9 of the newest process and all that it started."""
        os.killpg(self.processes[-1].pid, signal.SIGKILL)
        self.processes[-1].wait()
        java = read_run(self.out).get("pids", {}).get("java")
        self.until(lambda: java is None or not Path(f"/proc/{java}").exists(), alive=False)

    def end(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def until(
        self, condition: Callable[[], bool], timeout_s: float = DEADLINE_S, alive: bool = True, every_s: float = 0.1
    ) -> None:
        """Wait for something, while the newest process lives."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            assert not alive or self.processes[-1].poll() is None, self.log()
            time.sleep(every_s)

    def until_epoch(self, epoch: int) -> None:
        """Wait until all sink parts have passed it."""
        self.until(lambda: progress(self.out)["epoch"] >= epoch)

    def checked(self, *options: object, timeout_s: float | None = DEADLINE_S) -> Ended:
        """`freshet check`, whatever it finds, in a process of its own."""
        command = [str(FRESHET), *self._to_check(*options)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
        return Ended(done.returncode, orjson.loads(done.stdout) if done.stdout else {}, done.stderr)

    def check(self, *options: object) -> dict[str, Any]:
        """`freshet check`, which must find nothing; what it says."""
        code, output, errors = call_inside(*self._to_check(*options))
        found: dict[str, Any] = orjson.loads(output) if output else {}
        assert code == 0, f"{found}\n{errors}"
        assert found["missing"] == found["extra"] == found["duplicates"] == 0
        assert found["vertices"] > 0
        assert found["max_rel_error"] <= 1e-4
        return found

    def _to_check(self, *options: object) -> list[str]:
        return ["check", "--oracle", "own", *self.given.options, "--out", str(self.out), *map(str, options)]

    def uninterrupted(self, *options: object) -> Job:
        """A run of the local runtime, to the end, on the same input with the same cuts."""
        twin = Job(self.given, self.out.with_name(f"{self.out.name}-uninterrupted"))
        cuts = orjson.loads((self.out / "job" / "job.json").read_bytes())["settings"]["cuts"]["folder"]
        if not Path(cuts).is_dir():  # the folder was moved after that
            cuts = self.out / "checkpoints" / "cuts"
        twin.done("--runtime", "local", *options, faults={"cuts": str(cuts)})
        return twin

    @property
    def _hurry(self) -> Path:
        return self.out.with_name(f"{self.out.name}.hurry")

    def _log(self, number: int) -> Path:
        return self.out.with_name(f"{self.out.name}-{number}.log")


def asked_of_flink(out: Path) -> httpx.Client:
    """A client of Flink's REST interface at the running job that writes to `out`; a busy machine answers late."""
    run = read_run(out)
    return httpx.Client(base_url=f"http://{run['rest']}/v1/jobs/{run['job_id']}", trust_env=False, timeout=60)


def flink_metrics(out: Path, names: Collection[str]) -> dict[str, int]:
    """Metrics of the running job that writes to `out`, by OPERATOR.GROUP.NAME, summed over the subtasks.

    They come from Flink's REST interface, which has not heard of all of them in the job's first seconds.
    """
    found: dict[str, int] = {}
    with asked_of_flink(out) as http:
        for vertex in http.get("").json()["vertices"]:
            base = f"/vertices/{vertex['id']}/subtasks/metrics"
            known = [one["id"] for one in http.get(base).json() if one["id"] in names]
            for one in http.get(base, params={"get": ",".join(known), "agg": "sum"}).json() if known else ():
                found[one["id"]] = int(one["sum"])
    return found


@dataclass(frozen=True)
class Log:
    """A change log in order of epoch and id.

    Shapes: epoch, id (n,) int64; deleted (n,) bool; vector (n, width) float32
    """

    epoch: np.ndarray
    id: np.ndarray
    deleted: np.ndarray
    vector: np.ndarray

    @property
    def last(self) -> int:
        """The last epoch."""
        return int(self.epoch[-1])


def read_log(out: Path, kind: str = "") -> Log:
    """All visible rows, of one of several kinds; no two may share epoch and id."""
    files = sorted((out / "embeddings" / kind).glob("[!._]*.parquet"))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    epoch, ids = table["epoch"].to_numpy(), table["id"].to_numpy()
    order = np.lexsort((ids, epoch))
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(ids), -1)
    log = Log(epoch[order], ids[order], table["deleted"].to_numpy()[order], vectors[order])
    twice = (np.diff(log.epoch) == 0) & (np.diff(log.id) == 0)
    assert len(ids) > 0
    assert not twice.any(), f"rows that share epoch and id: {log.id[1:][twice][:5]} of {log.epoch[1:][twice][:5]}"
    return log


def assert_same_rows(found: Log, expected: Log) -> None:
    """Every epoch has the same ids with the same bits."""
    assert found.last == expected.last
    for name in ("epoch", "id", "deleted"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert np.array_equal(found.vector.view(np.uint32), expected.vector.view(np.uint32)), "embeddings differ in bits"


def read_epochs(out: Path, kind: str = "") -> list[tuple[int, str, int, int]]:
    """`epochs/` in order: (epoch, source, next_offset, events); no epoch may come twice."""
    tables = [pq.read_table(file) for file in sorted((out / "epochs" / kind).glob("[!._]*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    found = sorted((row["epoch"], row["source"], row["next_offset"], row["events"]) for row in rows)
    assert len({row[0] for row in found}) == len(found) > 0
    return found


def epochs_shown(out: Path) -> dict[int, dict[str, Any]]:
    """Rows of `epochs/` that a reader sees now, with their times, by epoch; of jobs that read one partition."""
    tables = [pq.read_table(file) for file in sorted((out / "epochs").glob("[!._]*.parquet"))]
    found = {row["epoch"]: row for table in tables for row in table.to_pylist()}
    for row in found.values():
        assert row["events"] == 0 or row["arrived_ms"] <= row["published_ms"] <= 1e3 * time.time(), row
    return found


def assert_as_uninterrupted(job: Job, *options: object) -> None:
    """The final result is right, and every epoch is as in a run of the other runtime without a break, bit by bit."""
    check = job.check()
    twin = job.uninterrupted(*options)
    logs = logs_of(job.out)
    for log in logs:
        assert_same_rows(read_log(job.out, log.kind), read_log(twin.out, log.kind))
        assert read_epochs(job.out, log.kind) == read_epochs(twin.out, log.kind)
        assert check["epoch"] == read_epochs(job.out, log.kind)[-1][0]  # which a marker may have ended, without rows
