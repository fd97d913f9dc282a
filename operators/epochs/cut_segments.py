"""The files of a cut log, and who may write them.

    CUTS/attempt-000000007-run-000002/
        cuts-000000007-000000000000951.jsonl    attempt 7 has decided epoch 951 and those after it
    CUTS/kept/
        cuts-000000006-000000000000001.jsonl    epochs that no state needs, where they are kept

The first line of a segment names format, job, attempt and first epoch; every other line is a cut. A segment ends where
the next one begins, so what an attempt wrote from the first epoch of a later attempt on does not count.

Invariant: there is one folder `attempt-N-run-M`, and it is the right to write. The next attempt renames it, segments
and all, before it reads. From then on an older attempt can create, move and remove nothing by its paths; what it still
appends to the file that it has open does not count, and it finds out before it sends the epoch. There is no lock: a
process that is stopped would hold it for ever. An attempt of run M (of `freshet run`) is refused where a later run has
begun: otherwise a job that lives on beside the one that was resumed would take the log back at its next restart. The
log needs a file system where all machines of the job see a rename at once (a local one, or one of a cluster; NFS with
`lookupcache=none`).
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from freshet.errors import InputError
from freshet.files.owner_only import FILE
from freshet.operators.epochs.cut import Cut, LostCutError

FORMAT = 4  # lines have times
_CHECKED = 3  # they end with checksums from this one on
FORMATS_READ = (2, _CHECKED, FORMAT)
KEPT = "kept"
_ATTEMPT = re.compile(r"attempt-(\d{9})-run-(\d{6})")
_SEGMENT = re.compile(r"cuts-(\d{9})-(\d{15})\.jsonl")
_PATIENCE_S = 5.0  # for another attempt that takes over at this moment
_LOOKS_MIN = 20  # a machine may stand still for as long


class FencedError(RuntimeError):
    """Another attempt of the job has begun; this one must not go on."""

    @staticmethod
    def of(folder: Path) -> FencedError:
        """The error of an attempt whose folder was taken."""
        newest = newest_attempt(folder.parent)
        by = f"attempt {newest.number} (run {newest.run})" if newest else "another attempt"
        return FencedError(f"{by} of the job has taken over from {folder.name} in {folder.parent}; this one ends")


class ForeignLogError(InputError):
    """A cut log belongs to another job."""


class Attempt(NamedTuple):
    """The right to write a log, and the folder that it comes with."""

    number: int
    run: int  # of `freshet run`
    path: Path


class CutSegment(NamedTuple):
    """The cuts that an attempt has decided from epoch `first` on."""

    attempt: int
    first: int
    path: Path


def newest_attempt(log: Path) -> Attempt | None:
    """Return the attempt that may write the log; None: there is none, or it is being taken over at this moment."""
    with suppress(FileNotFoundError):
        names = [(one, _ATTEMPT.fullmatch(one.name)) for one in log.iterdir()]
        return max((Attempt(int(match[1]), int(match[2]), one) for one, match in names if match), default=None)
    return None


def take_over(log: Path, run: int | None = None) -> Attempt:
    """Begin an attempt: from now on no other one sends an epoch. `run`: which run of the job it is of, None: the last.

    Raises:
        LostCutError: a folder that is no cut log.
        FencedError: a later run has begun.
    """
    deadline, looks = time.monotonic() + _PATIENCE_S, 0
    while True:
        newest = newest_attempt(log)
        if newest is None:
            looks += 1
            _make(log)
            time.sleep(0.001)
            if looks > _LOOKS_MIN and time.monotonic() > deadline:
                msg = f"{log}: expected a cut log, got no attempt-N-run-M in it; restore it, or start from a snapshot"
                raise LostCutError(msg)
            continue
        if run is not None and newest.run > run:
            msg = f"run {newest.run} of the job has taken over {log}; this is run {run}, and ends"
            raise FencedError(msg)
        number, mine = newest.number + 1, newest.run if run is None else run
        path = attempt_folder(log, number, mine)
        with suppress(FileNotFoundError):  # another one was faster
            newest.path.rename(path)
            return Attempt(number, mine, path)


def _make(log: Path) -> None:
    """An empty log, in one step: two attempts that begin it never have a folder each."""
    log.parent.mkdir(parents=True, exist_ok=True)
    partial = log.with_name(f".{log.name}.{uuid.uuid4().hex}")
    attempt_folder(partial, 0, 0).mkdir(parents=True)
    try:
        partial.rename(log)
    except OSError:  # it is there by now
        shutil.rmtree(partial, ignore_errors=True)


def attempt_folder(log: Path, number: int, run: int) -> Path:
    """Return the folder of an attempt."""
    return log / f"attempt-{number:09}-run-{run:06}"


def segments_in(folder: Path) -> list[CutSegment]:
    """The segments of a folder in the order of their epochs; where two begin at one, the later attempt's counts."""
    if not folder.is_dir():
        return []
    found = [
        CutSegment(int(match[1]), int(match[2]), path)
        for path in folder.iterdir()
        if (match := _SEGMENT.fullmatch(path.name))
    ]
    return sorted(found, key=lambda one: (one.first, one.attempt))


def read_segment(segment: CutSegment, until: int | None, job: str = "") -> dict[int, Cut]:
    """The cuts of a segment, up to epoch `until` where another one follows.

    A last line that is not whole is left out: the process or the machine died while it was written.

    Raises:
        LostCutError: a line that is no cut, or a cut that is missing.
        ForeignLogError: the log of another job.
        OSError: it can't be read.
    """
    data = segment.path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
    cuts: dict[int, Cut] = {}
    has_checksums = bool(lines) and _check_header(segment, lines[0], job) >= _CHECKED
    _refuse_lost_end(segment, data[data.rfind(b"\n") + 1 :])
    expected = segment.first
    for number, line in enumerate(lines[1:], 2):
        if until is not None and expected > until:
            break
        cut = Cut.decode(line)
        if cut is None or (has_checksums and not line.endswith(b'"]')):
            what = f"line {number} is no cut, or damaged: {line[:80]!r}"
            msg = f"{segment.path}: {what}; restore the file, or start from a snapshot"
            raise LostCutError(msg)
        if cut.epoch != expected:
            msg = f"{segment.path}: epoch {cut.epoch} follows epoch {expected - 1}; the cut log has lost an entry"
            raise LostCutError(msg)
        cuts[expected] = cut
        expected += 1
    if until is not None and expected <= until:
        msg = f"{segment.path}: epoch {until + 1} follows epoch {expected - 1}; the cut log has lost an entry"
        raise LostCutError(msg)
    return cuts


def _header(segment: CutSegment, job: str) -> bytes:
    fields = {"format": FORMAT, "job": job, "attempt": segment.attempt, "first": segment.first}
    return orjson.dumps(fields) + b"\n"


def _refuse_lost_end(segment: CutSegment, rest: bytes) -> None:
    """Refuse a last line whose end alone is damaged: one that was torn has less than the whole cut."""
    if Cut.decode(rest[:-1]) is not None:
        msg = f"{segment.path}: damaged: the last line ends with {rest[-1:]!r}; restore it, or start from a snapshot"
        raise LostCutError(msg)


def _check_header(segment: CutSegment, line: bytes, job: str) -> int:
    """Check the first line; returns the format."""
    try:
        header = orjson.loads(line)
        found, owner = header["format"], header["job"]
        same = (header["attempt"], header["first"]) == (segment.attempt, segment.first)
    except (ValueError, TypeError, KeyError):
        found, owner, same = None, "", False
    if found not in FORMATS_READ or not same:
        msg = f"{segment.path}: expected a cut log of format {FORMAT} that fits its name, got {line[:80]!r}"
        raise LostCutError(msg)
    if job and owner != job:
        msg = f"{segment.path}: the cut log of job {owner or '(without id)'}, expected that of job {job}"
        raise ForeignLogError(msg)
    return int(found)


class SegmentWriter:
    """A new segment: lines are appended whole, or not at all."""

    def __init__(self, folder: Path, attempt: int, first: int, job: str) -> None:
        """Create the file.

        Raises:
            FencedError: another attempt has taken the folder.
            OSError: there is no room for its first line; then there is no file.
        """
        self.segment = CutSegment(attempt, first, folder / f"cuts-{attempt:09}-{first:015}.jsonl")
        self.size, self._path = 0, str(self.segment.path)
        try:
            self._file = os.open(self.segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE)
        except FileNotFoundError:
            raise FencedError.of(folder) from None
        try:
            self.write(_header(self.segment, job))
        except OSError:
            self.close()
            self.segment.path.unlink(missing_ok=True)
            raise

    def write(self, line: bytes) -> None:
        """Append a line, and then make sure that no other attempt had begun by then.

        Raises:
            FencedError: it had.
            OSError: no room for the whole line; then nothing of it is there.
        """
        done = 0
        try:
            while done < len(line):
                written = os.write(self._file, line[done:])
                if not written:
                    msg = f"{self.segment.path}: nothing more can be written"
                    raise OSError(msg)
                done += written
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(line)
        # In this order: an attempt that begins after this look reads the line.
        if not os.path.exists(self._path):  # a third of what a Path takes, once an epoch
            raise FencedError.of(self.segment.path.parent)

    def sync(self) -> None:
        """Sync what was written to the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
