"""The cut log: where each epoch ends, written before the epoch is sent, and obeyed after a restore.

An epoch that a reader, a file or a topic has seen then comes back as it was, even if it was cut by the clock.
One JSON line a cut, appended and handed to the operating system (it survives SIGKILL; a torn last line is dropped).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import orjson

Lane = tuple[int, int]  # source and partition of a Kafka topic
FILES: Lane = (-1, 0)  # all files, which are read one after the other


class Cut(NamedTuple):
    """Epoch `epoch` holds the accepted events up to number `end` since the job began; a `marker` is swept after.

    `streams`: how many of them come from which partition of which Kafka topic, as (source, partition, count) in
    ascending order; the others come from files. The count of a partition decides, not its offsets: a message may hold
    many events, and an epoch may end in it. `flush`: it ends an interval of the coalesced output.
    """

    epoch: int
    end: int
    marker: bool
    streams: tuple[tuple[int, int, int], ...] = ()
    flush: bool = False

    def encode(self) -> bytes:
        """The cut as a line."""
        fields: list[object] = [self.epoch, self.end, self.marker | self.flush << 1]
        return orjson.dumps([*fields, self.streams] if self.streams else fields) + b"\n"


class LostCutError(RuntimeError):
    """The cut log misses an epoch that the state has passed: the epochs can't be cut again as they were."""


def _parsed(line: bytes) -> Cut | None:
    try:
        epoch, end, marker, *more = orjson.loads(line)
        streams = tuple((int(source), int(partition), int(count)) for source, partition, count in (*more, ())[0])
        return Cut(int(epoch), int(end), bool(marker & 1), streams, bool(marker & 2))
    except (ValueError, TypeError):
        return None


class CutLog:
    """Cuts by epoch, in memory and, with a path, in a file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.cuts: dict[int, Cut] = {}
        self._file: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._load(path)

    def _load(self, path: Path) -> None:
        data = path.read_bytes() if path.exists() else b""
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            cut = _parsed(line)
            if cut is None:
                message = f"{path}: line {number} is no cut: {line[:80]!r}"
                raise LostCutError(message)
            if cut.epoch != self.last + 1:
                message = f"{path}: epoch {cut.epoch} follows epoch {self.last}; the cut log has lost an entry"
                raise LostCutError(message)
            self.cuts[cut.epoch] = cut
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.ftruncate(self._file, whole)
        os.lseek(self._file, 0, os.SEEK_END)

    @property
    def last(self) -> int:
        """The newest epoch that was cut, 0 before the first."""
        return next(reversed(self.cuts), 0)

    def append(self, cut: Cut) -> None:
        """Write a cut; it is in the file when this returns.

        Raises:
            LostCutError: not the epoch after the last one.
        """
        if cut.epoch != self.last + 1:
            message = f"cut of epoch {cut.epoch} can't follow that of epoch {self.last}"
            raise LostCutError(message)
        self.cuts[cut.epoch] = cut
        if self._file is not None:
            os.write(self._file, cut.encode())

    def of(self, epoch: int) -> Cut:
        """The cut of an epoch that the state has passed.

        Raises:
            LostCutError: the log does not have it.
        """
        cut = Cut(0, 0, True) if epoch == 0 else self.cuts.get(epoch)
        if cut is None:
            message = (
                f"the cut log{f' {self.path}' if self.path else ''} has no epoch {epoch}, but the state has passed it: "
                "restore the log beside the checkpoints, or start afresh from a snapshot"
            )
            raise LostCutError(message)
        return cut

    def ends(self, epoch: int) -> dict[Lane, int]:
        """How many events of each lane the epochs up to this one hold.

        Raises:
            LostCutError: as `of`.
        """
        ends = {FILES: self.of(epoch).end}
        for cut in self.cuts.values():
            if cut.epoch > epoch:
                break
            for source, partition, count in cut.streams:
                ends[source, partition] = ends.get((source, partition), 0) + count
                ends[FILES] -= count
        return ends

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
