"""A served job over a week, under a clock of its own: what it takes of the disk, and how long a server needs to start.

Sink with change log and tail, the Follower with its table, and compaction are the real ones. Files come as often as in
real time, one at each marker; an epoch stands for several, so rows and bytes are as many times fewer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.control import ARRIVAL_MS, LAST_ARRIVAL_MS
from freshet.operators.limits import TAIL_BYTES
from freshet.operators.settings import TailConfig
from freshet.operators.sink.log_proof import BASE_PREFIX
from freshet.operators.sink.tail.layout import TailName
from freshet.state.served.layout import T_HEAP_AT
from tests.support.serving.hand_job import HandJob
from tests.support.stages.sunk import log_of

VERTICES, CHANGED, DAY_S = 2_000, 20, 86_400.0
_CATCH_UP_S = 300.0


@dataclass(frozen=True)
class Plan:
    """Units: seconds of the simulated clock; `epochs_per_s` are simulated, `stands_for` real ones each."""

    days: float = 7.0
    epochs_per_s: float = 50.0
    stands_for: int = 300
    marker_s: float = 60.0
    compact_s: float = 3600.0
    keep_s: float = DAY_S
    samples: int = 28

    @property
    def epochs(self) -> int:
        """That are simulated."""
        return int(self.days * DAY_S * self.epochs_per_s / self.stands_for)

    @property
    def step_s(self) -> float:
        """Between two of them."""
        return self.stands_for / self.epochs_per_s


@dataclass
class WeekSample:
    """What is there at a moment. `epochs/` has a row of each epoch for good, so it is counted by the epoch.

    Units: bytes, files; seconds from nothing to a readable table, and those of the processor.
    """

    epoch: int
    day: float
    start_s: float
    start_cpu_s: float
    change_log_bytes: int
    base_bytes: int
    tail_bytes: int
    table_bytes: int
    files: int
    history_bytes_per_epoch: float

    @property
    def figures(self) -> dict[str, float]:
        """Everything that must not grow."""
        return {name: value for name, value in asdict(self).items() if name not in ("epoch", "day")}


class Week:
    """A job of one part and its server."""

    def __init__(self, out: Path, plan: Plan) -> None:
        self.plan, self.hand, self._rng = plan, HandJob(out, parts=1), np.random.default_rng(1)
        self.hand.close()
        self.hand.settings = replace(self.hand.settings, tail=TailConfig(TAIL_BYTES // plan.stands_for))
        self.hand.open()
        self.epoch, self._dated, self.compactions = 0, -1, 0
        self._begin_s = time.time() - plan.days * DAY_S - DAY_S
        self.follower = self._started()

    def close(self) -> None:
        """End job and server."""
        self.follower.close(forget=True)
        self.hand.close()

    def run(self, epochs: int) -> None:
        """Go on; the server follows, and compacts when it is due."""
        plan = self.plan
        per_marker = max(1, round(plan.marker_s / plan.step_s))
        per_compaction = max(1, round(plan.compact_s / plan.step_s))
        for _ in range(epochs):
            self.epoch += 1
            marked = self.epoch % per_marker == 0
            self._apply(marked)
            if marked:
                log_of(self.hand.sinks[0]).writer.wait()
                self._catch_up()
            if self.epoch % per_compaction == 0:
                self.compact()

    def sample(self) -> WeekSample:
        """Start the server anew from base and change log, and look."""
        log_of(self.hand.sinks[0]).writer.wait()
        self._catch_up()
        self.follower.close(forget=True)
        began, began_cpu = time.perf_counter(), time.process_time()
        self.follower = self._started()
        taken = round(time.perf_counter() - began, 3), round(time.process_time() - began_cpu, 3)
        self._catch_up()
        folders = {name: self._files(name) for name in ("embeddings", "epochs", "tables/tail")}
        base = sum(size for path, size in folders["embeddings"] if path.name.startswith(BASE_PREFIX))
        log = sum(size for _, size in folders["embeddings"]) - base
        tail = sum(size for path, size in folders["tables/tail"] if TailName.parse(path.name))
        count = sum(len(files) for name, files in folders.items() if name != "epochs")
        history = round(sum(size for _, size in folders["epochs"]) / self.epoch, 2)
        day = round(self.epoch * self.plan.step_s / DAY_S, 3)
        table = 8 * self.follower.table.word(T_HEAP_AT)
        return WeekSample(self.epoch, day, *taken, log, base, tail, table, count, history)

    def rows(self) -> dict[int, float]:
        """What the server shows, by id."""
        ids, found, _ = self.follower.table.content()
        assert isinstance(ids, np.ndarray)
        return dict(zip(ids.tolist(), found.rows[:, 0].tolist(), strict=True))

    def _started(self) -> Follower:
        job = ServedJob.read(self.hand.out)
        assert job is not None
        follower = Follower(job, self.hand.out / "tables", 1 << 20)
        follower.start()
        return follower

    def _apply(self, marked: bool) -> None:
        keys = self._rng.choice(VERTICES, CHANGED, replace=False).tolist()
        told = {"marker": self.epoch} if marked else {}
        value = float(self.epoch % 1_000_003)
        block = self.hand.block(self.epoch, 0, dict.fromkeys(keys[1:], value), keys[:1], **told)
        block.columns["ctl"][[ARRIVAL_MS, LAST_ARRIVAL_MS]] = 1
        self.hand.sinks[0].apply(self.epoch, [block], 1e3 * self._now_s)

    def _catch_up(self) -> None:
        deadline = time.monotonic() + _CATCH_UP_S
        while self.follower.table.epoch < self.epoch:
            assert time.monotonic() < deadline, (self.follower.table.epoch, self.epoch)
            if not self.follower.step():
                time.sleep(0.0005)

    @property
    def _now_s(self) -> float:
        return self._begin_s + self.epoch * self.plan.step_s

    def compact(self) -> None:
        for path, _ in self._files("embeddings"):  # as old as they are on the simulated clock
            number = path.stem.rpartition("-")[2]
            if not path.name.startswith(BASE_PREFIX) and int(number) > self._dated:
                os.utime(path, (self._now_s, self._now_s))
        self._dated = log_of(self.hand.sinks[0]).number - 1
        self.hand.sinks[0].write_status(1e3 * self._now_s)
        compact_log(self.hand.out, self.plan.keep_s, self._now_s)
        self.compactions += 1

    def _files(self, folder: str) -> list[tuple[Path, int]]:
        found = []
        for entry in os.scandir(self.hand.out / folder):
            with suppress(FileNotFoundError):
                if entry.is_file() and not entry.name.startswith("."):
                    found.append((Path(entry.path), entry.stat().st_size))
        return found


def week(out: Path, plan: Plan) -> Iterator[WeekSample]:
    """Run it; a sample after each share."""
    one = Week(out, plan)
    try:
        for _ in range(plan.samples):
            one.run(plan.epochs // plan.samples)
            yield one.sample()
    finally:
        one.close()
