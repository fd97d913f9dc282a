"""The jobs of a service in a drill: the first one, and those that are begun from a live export of the one before."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.job_state import state_of
from freshet.job.service.generations import Service
from freshet.job.swap.record import WORK
from tests.drills.swap_commands import Commands, await_end, kill_group
from tests.support.runs.jobs import Input, Job

SHAPE = ("--parts", 2, "--checkpoint-interval", "1s", "--publish-within", "1s")
CHUNK = 50  # lines that a local job reads at a time
MIB = 1 << 20


@dataclass
class Jobs:
    """Makes jobs in folders of their own. `rate`: events a second of a local job, which reads a file."""

    folder: Path
    given: Input
    rate: float
    local: bool
    commands: Commands

    def first(self, model: Path) -> Job:
        """Begin with an empty graph."""
        return self._started(Job(replace(self.given, model=model), self.folder / "O1"), 1.0)

    def successor(self, old: Job, model: Path, number: int) -> tuple[Job, dict[str, float]]:
        """Begin another job with the graph of one that runs, as the page on services has it; seconds of each step."""
        snapshot, embedded, times = self.folder / f"S{number}", self.folder / f"E{number}", [time.monotonic()]
        if self.local:
            assert old.stop().code == 0, old.log()
            old.wait()
        self.commands.run("export", "--out", snapshot, *(() if self.local else ("--from", "latest")), old.out)
        times.append(time.monotonic())
        if self.local:
            self.go_on(old)
        self.commands.run(
            "embed", "--model", model, "--snapshot", snapshot, "--out", embedded, *SHAPE[:2], "--memory", "1GiB"
        )
        times.append(time.monotonic())
        given = replace(self.given, model=model, snapshot=embedded)
        new = self._started(Job(given, self.folder / f"O{number}"), 3.0)
        times.append(time.monotonic())
        return new, dict(zip(("export", "embed", "run"), np.diff(times).round(2).tolist(), strict=True))

    def of_swap(self, service: Service, model: Path) -> Job:
        """Return the job that `freshet swap` has begun."""
        current, embedded = service.current(), max((service.folder / WORK).glob("*/embedded"), key=_age)
        assert current is not None
        return Job(replace(self.given, model=model, snapshot=embedded), current.out)

    def go_on(self, job: Job) -> None:
        """Start a job again that was stopped or killed."""
        self._start(job, 1.0, "--resume", "auto")

    def kill(self, job: Job) -> None:
        """SIGKILL of a job; it goes on from its last checkpoint."""
        kill_job(job.out)
        self.go_on(job)
        job.until(lambda: read_run(job.out).get("pids", {}).get("client") == job.processes[-1].pid)

    def stop(self, job: Job) -> None:
        """Have a job end in good order, if it runs."""
        if not state_of(job.out).is_over:
            stopped = job.stop()
            assert stopped.code == 0, stopped.errors
        if job.processes:
            job.wait()

    def let_catch_up(self, job: Job) -> None:
        """Have a local job go on to its end, so that another one can't be ahead of it."""
        if self.local:
            job.hurry()
            job.wait()

    def _started(self, job: Job, speed: float) -> Job:
        self._start(job, speed)
        job.until_epoch(1)
        return job

    def _start(self, job: Job, speed: float, *more: object) -> None:
        if self.local:
            slow = {"slow": {"parser": 1e3 * CHUNK / self.rate / speed}, "chunk": CHUNK}
            job.start("--runtime", "local", *SHAPE[:2], "--epoch-events", CHUNK, *more, faults=slow)
        else:
            job.start(*SHAPE, *more)


def latency_ms(out: Path, kind: str, sent_ms: dict[int, list[float]], from_s: float, to_s: float) -> dict[str, float]:
    """Return p50 and p99 of the time from an event in the topic to its row in the tail, of events sent meanwhile."""
    table = pa.concat_tables([pq.read_table(one) for one in sorted((out / "epochs" / kind).glob("[!._]*.parquet"))])
    table = table.filter(table["published_ms"].is_valid()).sort_by("epoch")
    partitions, found = table["partition"].to_numpy(zero_copy_only=False), list[np.ndarray]()
    for partition, times in sent_ms.items():
        mine = table.filter(pa.array(partitions == partition))
        sent = np.array(times)
        at = np.searchsorted(mine["next_offset"].to_numpy(), np.arange(len(sent)), side="right")
        # In the first epoch are those that the job's snapshot covers, too.
        wanted = np.flatnonzero((at > 0) & (at < len(mine)) & (sent >= 1e3 * from_s) & (sent < 1e3 * to_s))
        found.append(mine["published_ms"].to_numpy()[at[wanted]] - sent[wanted])
    every = np.concatenate([np.empty(0), *found])
    if not len(every):
        return {}
    return {f"p{q}": round(float(np.percentile(every, q)), 1) for q in (50, 99)}


def positions(out: Path, kind: str) -> dict[int, int]:
    """Return the next offset by partition at the end of a change log."""
    rows = [row for one in (out / "epochs" / kind).glob("[!._]*.parquet") for row in pq.read_table(one).to_pylist()]
    found: dict[int, int] = {}
    for row in rows:
        if row["partition"] is not None:
            found[row["partition"]] = max(found.get(row["partition"], 0), row["next_offset"])
    return found


def kill_job(out: Path) -> None:
    """SIGKILL of all processes of a job."""
    pids = read_run(out).get("pids", {})
    if "client" in pids and Path(f"/proc/{pids['client']}/exe").exists():
        kill_group(pids["client"])
        await_end(pids.get("java"))


def pid_of(job: Job) -> int:
    """Return the process of a job; 0 where nobody runs it."""
    return job.processes[-1].pid if job.processes else int(read_run(job.out).get("pids", {}).get("client", 0))


def memory_mib(pid: int) -> dict[str, int]:
    """Return the memory of a process and all that it started: resident, and that which is its own; nothing if it ended.

    What is not its own are files, and a table that it maps.
    """
    try:
        root = psutil.Process(pid)
        each = [one.memory_info() for one in (root, *root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return {}
    return {"rss": sum(one.rss for one in each) // MIB, "own": sum(one.rss - one.shared for one in each) // MIB}


def _age(path: Path) -> float:
    return path.stat().st_mtime
