"""A job's bookkeeping over millions of tiny epochs, under a clock of its own: what stays, and how long a start takes.

The parts that could grow are the real ones, made and wired as the local runtime does: the Partitioner's stage with its
journal, the cut log in a file, the Sink with its change log, the store, the dead letters. What is left out is the
arithmetic between Partitioner and Sink, and the rows of the change log, which grows by nature.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil

from freshet.gnn.model import save_model
from freshet.job.local.runtime import READ_POSITION
from freshet.job.local.sealed_store import SealedStore
from freshet.operators.dataflow import PARTITIONER, SINK
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.factory import load_plan, make_stage
from freshet.operators.outcome import Outcome
from freshet.operators.output_folders import EPOCHS, JOB_FILE
from freshet.operators.parser.config import LetterConfig
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.stage import Stage
from freshet.state.block_columns import ROWS
from freshet.state.codec import Block, Header
from freshet.state.sweep import Mutations
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import job_settings

BLOCK_EPOCHS = 8  # one event each; a commit follows each block
LETTER_BLOCKS = 5  # a record in so many blocks is rejected
START_MS = 1_700_000_000_000.0
_RAW = b'{"op": "add_edge", "src": 1, "dst": "somewhere", "why": "' + b"x" * 200 + b'"}'
_DEAD_LETTERS_MAX = 1 << 20
_EVENTS = 4_000  # of the stream, which is repeated


_NOT_JUDGED = ("epoch", "libraries_mib", "history_files", "disk")


@dataclass
class Sample:
    """What the job holds at a moment.

    Units: bytes of disk space by kind, MiB of memory, seconds (and those of the processor) from nothing to ready for
    the next event. `epochs/` has rows of every epoch for good: it is counted apart, by the epoch. Memory is what the
    process has for itself, without pages of libraries, once malloc has given back what is free: RocksDB's memtable,
    which a restart frees, would else be there once or twice.
    """

    epoch: int
    memory_mib: float
    libraries_mib: float
    start_s: float
    start_cpu_s: float
    files: int
    open_files: int
    history_files: int
    history_bytes_per_epoch: float
    disk: dict[str, int]

    @property
    def figures(self) -> dict[str, float]:
        """Everything that must not grow, by name."""
        plain = {name: value for name, value in asdict(self).items() if name not in _NOT_JUDGED}
        return plain | {f"{kind}_bytes": size for kind, size in self.disk.items()}


# How much more the second half may have than the first: a factor, and what comes and goes on top.
_SLACK: dict[str, tuple[float, float]] = {
    "memory_mib": (1.05, 24),
    "start_s": (3, 30),  # other work on the machine counts too
    "start_cpu_s": (1.5, 0.8),  # and a collection of all the garbage of other tests
    "files": (1.1, 24),
    "open_files": (1, 12),
    "history_bytes_per_epoch": (1.1, 1),
    "state_bytes": (1.25, 160 << 20),  # RocksDB's log and memtable are 64 MiB each
}
_OTHER_SLACK = (1.1, 256 << 10)


@dataclass
class Verdict:
    """The largest figures of each half, without the first tenth, and the names of those that grew."""

    first: dict[str, float] = field(default_factory=dict)
    second: dict[str, float] = field(default_factory=dict)
    grew: list[str] = field(default_factory=list)


class Measured(Protocol):
    """Figures of a moment, all of which must not grow."""

    epoch: int

    @property
    def figures(self) -> dict[str, float]:
        """By name."""


def judge(samples: Sequence[Measured]) -> Verdict:
    """Compare the halves of a run; each needs samples."""
    last = samples[-1].epoch
    verdict = Verdict()
    for sample in samples:
        if sample.epoch < last / 10:
            continue
        half = verdict.first if sample.epoch <= last / 2 else verdict.second
        for name, value in sample.figures.items():
            half[name] = max(half.get(name, 0), value)
    for name, value in verdict.second.items():
        factor, more = _SLACK.get(name, _OTHER_SLACK)
        if value > verdict.first.get(name, 0) * factor + more:
            verdict.grew.append(name)
    return verdict


class Soak:
    """A job of one part in a folder; `run` takes it through epochs, `restart` kills it and starts it from its state."""

    def __init__(self, folder: Path, step_ms: float) -> None:
        """`step_ms`: how far apart the epochs are, on the job's own clock."""
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self._step_ms = folder, step_ms
        model = make_model(1, [conv("sage_conv", IN_WIDTH, 4)])
        save_model(model, folder / "model")
        self.settings = replace(
            job_settings(model, 1, 1),
            model=str(folder / "model"),
            out=str(folder / "out"),
            cuts=CutLogConfig(str(folder / "cuts" / "cuts.jsonl")),
            letters=LetterConfig(
                str(folder / "out" / "dead_letters" / "dead_letters.jsonl"), dead_letters_max_bytes=_DEAD_LETTERS_MAX
            ),
            sources=("events.jsonl",),
            sealing=SealingConfig(epoch_events=1, marker_interval_ms=10_000),
            job_id="soak",
        )
        (folder / "out" / JOB_FILE).parent.mkdir(parents=True)
        (folder / "out" / JOB_FILE).write_text('{"settings": {"job_id": "soak"}}')  # by which it is the job's folder
        self._width = load_plan(self.settings.model).out_width
        self._events = to_events(random_records(random.Random(1), _EVENTS, IN_WIDTH, vertices=300), IN_WIDTH)
        self.read = 0  # events
        self.commits = 0
        self._letters = self.settings.letter_box("parser")
        self._start()

    # -- what the cut log asks (operators/epochs/retention.py) ---------------------------------------------------------

    def note(self) -> int:
        """The commits so far."""
        return self.commits

    def has_passed(self, note: int) -> bool:
        """Whether the state was committed since."""
        return self.commits > note

    # -- the job ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._store = SealedStore(self.folder / "state")
        config = self.settings.to_dict()
        self.partitioner: PartitionerStage = make_stage(config, PARTITIONER, 0)
        self.partitioner.log.retention = self  # type: ignore[attr-defined,unused-ignore]
        entries = dict(self._store.entries(PARTITIONER))
        assert int(entries.pop(READ_POSITION, b"0")) == self.read, "the state is not what was committed"
        self.partitioner.restore(entries.items())
        self._sink: Stage = make_stage(config, SINK, 0)
        self._sink.restore(self._store.entries(self._sink.name))
        self._held: dict[str, Mutations] = {}
        for outcome in self.partitioner.begin(self.now_ms):
            self._take(outcome)

    def _end(self) -> None:
        """As a kill does, but that what is open is closed."""
        self.partitioner.close()
        self._sink.inbox.close()
        self._sink.core.close(write=False)
        self._store.close()

    def close(self) -> None:
        """Stop."""
        self._end()

    def restart(self) -> tuple[float, float]:
        """Start anew from what is on the disk; returns the seconds that it took, and those of the processor."""
        before = self.partitioner.epoch
        self._end()
        began = time.perf_counter(), time.process_time()
        self._start()
        seconds = time.perf_counter() - began[0], time.process_time() - began[1]
        assert self.partitioner.epoch == before == self._sink.epoch, "the restart is not where it was"
        return seconds

    @property
    def now_ms(self) -> float:
        """The job's clock."""
        return START_MS + self.read * self._step_ms

    def run(self, epochs: int) -> None:
        """Go on for so many epochs."""
        for number in range(-(-epochs // BLOCK_EPOCHS)):
            begin = self.read % _EVENTS
            ends = np.arange(self.read + 1, self.read + 1 + BLOCK_EPOCHS)
            block = replace(
                self._events.slice(begin, begin + BLOCK_EPOCHS),
                position=ends,
                end_position=int(ends[-1]),
                arrival_ms=self.now_ms,
            )
            self.read += BLOCK_EPOCHS
            if number % LETTER_BLOCKS == 0 and self._letters is not None:
                self._letters.write([DeadLetter("dst: expected an integer", "events.jsonl", 0, self.read, _RAW)])
            self._take(self.partitioner.receive(block.encode(), self.now_ms))
            self._take(self.partitioner.tick(self.now_ms))
            self._held[PARTITIONER].puts.append((READ_POSITION, b"%d" % self.read))
            self._store.commit(self._held)
            self._held = {}
            self.commits += 1

    def _take(self, outcome: Outcome) -> None:
        """The messages on to the Sink, without the operators between; the changes of state wait for the commit."""
        self._held.setdefault(PARTITIONER, Mutations()).extend(outcome.only)
        for message in outcome.messages:
            columns = message.block.columns  # type: ignore[union-attr]
            kept = {name: column for name, column in columns.items() if name == "ctl" or name.startswith("pos_")}
            done = self._sink.act([Block(Header(ROWS, message.epoch, 1, 0), kept)])
            self._held.setdefault(self._sink.name, Mutations()).extend(done.only)

    # -- what it holds ------------------------------------------------------------------------------------------------

    def sample(self) -> Sample:
        """Restart, and look."""
        start_s, start_cpu_s = (round(seconds, 3) for seconds in self.restart())
        epoch = self.partitioner.epoch
        disk, files, history = self._disk()
        open_files = len(os.listdir("/proc/self/fd"))
        ctypes.CDLL(None).malloc_trim(0)
        memory = psutil.Process().memory_info()
        own, shared = (round(size / (1 << 20), 1) for size in (memory.rss - memory.shared, memory.shared))
        by_epoch = round(sum(history) / epoch, 2)
        return Sample(epoch, own, shared, start_s, start_cpu_s, files, open_files, len(history), by_epoch, disk)

    def _disk(self) -> tuple[dict[str, int], int, list[int]]:
        """Bytes by kind and files in all; apart from them the bytes of each file of epochs/."""
        sizes: dict[str, int] = {}
        files, history = 0, list[int]()
        for top in (self.folder / "out", self.folder):
            for path in top.rglob("*"):
                inside = path.relative_to(top).parts
                if path.is_file() and inside[0] not in ("out", "model"):
                    kind = inside[0] if len(inside) > 1 else "other"
                    if kind == EPOCHS:
                        history.append(path.stat().st_size)
                        continue
                    sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
                    files += 1
        return sizes, files, history


def soak(folder: Path, epochs: int, samples: int, step_ms: float) -> Iterator[Sample]:
    """Run so many epochs; a sample after each share of them."""
    job = Soak(folder, step_ms)
    try:
        for begin, end in itertools.pairwise(np.linspace(0, epochs, samples + 1).astype(int).tolist()):
            job.run(end - begin)
            yield job.sample()
    finally:
        job.close()
