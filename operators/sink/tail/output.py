"""The tail as an output of the Sink: others can read each epoch as soon as the Sink has its rows.

The change log is durable; the tail is fast. It may lack rows that the change log shows, but a reader of both never
misses rows, and its errors do not affect the job.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from freshet.files.owner_only import close_to_others
from freshet.operators.control import LAST_ARRIVAL_MS
from freshet.operators.limits import TAIL_BYTES
from freshet.operators.outcome import Message
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.output import SinkPart
from freshet.operators.sink.tail.layout import FAILED, W_JOB, W_LAST, TailName, TailNote, beat_name, job_word
from freshet.operators.sink.tail.writer import BeatFile, TailFile, header_of, regions_of
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.traffic import Traffic

_LOG = logging.getLogger(__name__)


class LogProgress(Protocol):
    """Properties of the change log that the tail reads."""

    @property
    def number(self) -> int:
        """The file that the next epoch goes into."""

    @property
    def visible_epoch(self) -> int:
        """The last epoch in a visible file."""


class TailOutput:
    """Appends epochs to tail files, one for each file of the change log.

    Invariant: a file of the tail is removed only when the change log shows what it holds; `take` never raises for what
    it could not write.
    """

    leaves_by_epoch = False
    flushed = 0
    traffic = Traffic()

    def __init__(
        self, folder: Path, part: int, note: TailNote, log: LogProgress, limit_bytes: int = TAIL_BYTES
    ) -> None:
        """`folder` is made at the first epoch; `limit_bytes`: what the files of the part may take, if they can go.

        `log` is the change log that this stands beside.
        """
        self.folder, self.part, self.note, self._log = folder, part, note, log
        self.failures = 0
        self.levels: Mapping[str, Level] = {}
        self._job, self._limit_bytes = job_word(note.job_id), limit_bytes
        self._attempt = secrets.token_hex(4)
        self._file: TailFile | None = None
        self._beat: BeatFile | None = None
        self._beat_lock = threading.Lock()
        self._number, self._failed_at, self._epoch = -1, -1, 0

    def begin(self, part: SinkPart) -> None:
        """Count latencies where the part does."""
        self._latencies, self._clock_ms = part.latencies, part.clock_ms

    def check(self) -> None:
        """Do nothing: errors of this output do not affect the job."""

    def idle(self) -> None:
        """Show readers that the part lives."""
        self.beat()

    def figures(self) -> dict[str, Any]:
        """Return how often it could not be written."""
        return {"tail_failures": self.failures}

    def take(self, epoch: int, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Publish an epoch; the snapshot's (epoch 0) is in the change log alone."""
        if epoch == 0 or (number := self._log.number) == self._failed_at:
            return []
        try:
            self._publish(epoch, rows, int(control[LAST_ARRIVAL_MS]), number)
        except Exception as error:
            self._fail(epoch, number, error)
        else:
            rows.published_ms = int(now_ms := self._clock_ms())
            if rows.arrived_ms:
                self._latencies.readable([rows.arrived_ms], now_ms)
                rows.arrived_ms = 0  # counted: it is readable here before it is in a file
        self._epoch = epoch
        self.beat()
        return []

    def beat(self) -> None:
        """Show readers that the part lives; on any thread."""
        try:
            with self._beat_lock:
                if self._beat is None:
                    self._make_folder()
                    self.note.write(self.folder)
                    self._beat = BeatFile(self.folder / beat_name(self.part), self._job)
                self._beat.beat(self._log.visible_epoch, self.failures, self._epoch)
        except OSError:
            self.failures += 1

    def pass_marker(self) -> None:
        """Nothing is durable here."""

    def clear(self) -> None:
        """Begin a new attempt, as readers see it, after a restore."""
        self._drop()
        self._attempt = secrets.token_hex(4)
        self._failed_at = -1

    def close(self, write: bool) -> None:
        """End the file under way; what it holds stays true."""
        self._drop()

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        close_to_others(self.folder)

    def _publish(self, epoch: int, rows: EpochRows, arrived_ms: int, number: int) -> None:
        if self._file is None or number != self._number:
            self._drop()
            self._make_folder()
            self._retire()
            path = self.folder / str(TailName(self.part, number, self._attempt))
            shape = self.note.width, self.note.strings, self._job
            self._file = TailFile(path, header_of(self.part, number, *shape, epoch))
            self._number = number
        regions, counts = regions_of(rows)
        self._file.append(epoch, arrived_ms, regions, counts)

    def _fail(self, epoch: int, number: int, error: Exception) -> None:
        """Go on without a tail until the change log begins its next file."""
        self.failures += 1
        self._failed_at = number
        trace = not isinstance(error, OSError)  # a disk that is full has none
        _LOG.warning("sink %d: the tail could not be written at epoch %d: %s", self.part, epoch, error, exc_info=trace)
        self._drop(FAILED)

    def _drop(self, *state: int) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close(*state)
            except OSError:
                self.failures += 1

    def _retire(self) -> None:
        """Remove surplus files and those of other attempts, oldest first, if the change log shows their rows."""
        found = sorted(self._files())
        total = sum(size for *_, size in found)
        for name, path, size in found:
            ours = name.attempt == self._attempt
            if ours and total <= self._limit_bytes:
                continue
            job, last = _job_and_last(path)
            if job != self._job or last <= self._log.visible_epoch:
                path.unlink(missing_ok=True)
                total -= size

    def _files(self) -> Iterator[tuple[TailName, Path, int]]:
        for entry in os.scandir(self.folder):
            name = TailName.parse(entry.name.removeprefix("."))
            if name is not None and name.part == self.part:
                try:
                    yield name, Path(entry.path), entry.stat().st_blocks * 512
                except FileNotFoundError:  # another attempt was quicker
                    continue


def _job_and_last(path: Path) -> tuple[int, int]:
    """Return the job and last epoch of a tail file's header; for a missing or partial file, removable ones."""
    try:
        with path.open("rb") as file:
            words = np.frombuffer(file.read(8 * (W_LAST + 1)), np.int64)
    except FileNotFoundError:
        return -1, -1
    return (int(words[W_JOB]), int(words[W_LAST])) if len(words) > W_LAST else (-1, -1)
