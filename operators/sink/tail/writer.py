"""Writes tail files and beat files, which others map: their space is reserved before anything is in it."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from freshet.files.owner_only import FILE
from freshet.kernels.atomics import publish_word
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.tail import layout as lay
from freshet.operators.sink.tail.layout import boot_word, padded

_STEP_BYTES, _STEP_MAX_BYTES = 1 << 20, 32 << 20
_PADDING = np.zeros(7, np.uint8)
_PIECES = min(1024, os.sysconf("SC_IOV_MAX"))  # that a call takes at once


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class TailFile:
    """One tail file, by its only writer.

    Records are written, not stored to mapped memory, where each new page is a fault: that takes four times as long. The
    header's page is mapped, and says last of all that a record is there.
    Invariant: what LENGTH covers is whole and never changes; blocks are reserved ahead, a few times in a file's life.
    """

    def __init__(self, path: Path, header: dict[int, int]) -> None:
        """Make the file; it appears under its name with its header complete.

        Raises:
            OSError: there is no space for it.
        """
        self.path = path
        words = np.zeros(lay.PAGE // 8, np.int64)
        for at, value in header.items():
            words[at] = value
        aside = path.with_name(f".{path.name}")
        self._file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
        try:
            os.pwrite(self._file, words.tobytes(), 0)
            self._size, self.length = lay.PAGE, lay.PAGE
            self._reserve(lay.PAGE + 1)
            self._words = np.frombuffer(mmap.mmap(self._file, lay.PAGE), np.int64)
            os.replace(aside, path)
        except OSError:
            os.close(self._file)
            aside.unlink(missing_ok=True)
            raise
        self._open = True

    def append(
        self, epoch: int, arrived_ms: int, regions: Sequence[Sequence[np.ndarray]], counts: tuple[int, int, int, int]
    ) -> None:
        """Add a record of these regions, each in pieces, and publish it.

        `counts`: changed, deleted, bytes of text (or -1), positions.

        Raises:
            OSError: there is no space for it; the file is as it was.
        """
        words = np.zeros(lay.RECORD_WORDS, np.int64)
        pieces: list[np.ndarray] = [words]
        size = words.nbytes
        for region in regions:
            nbytes = 0
            for piece in region:
                nbytes += piece.nbytes
            pieces += region
            if gap := padded(nbytes) - nbytes:
                pieces.append(_PADDING[:gap])
            size += nbytes + gap
        self._reserve(self.length + size)
        words[:] = size, epoch, *counts, arrived_ms, now_us()
        _write(self._file, pieces, self.length)
        self.length += size
        publish_word(self._words, lay.W_LAST, epoch)
        publish_word(self._words, lay.W_LENGTH, self.length)

    def close(self, state: int = lay.SEALED) -> None:
        """Say that nothing follows, and give back the space that was reserved for it."""
        if self._open:
            self._open = False
            publish_word(self._words, lay.W_STATE, state)
            try:
                os.ftruncate(self._file, self.length)
            finally:
                os.close(self._file)

    def _reserve(self, length: int) -> None:
        if length <= self._size and self._size > lay.PAGE:
            return
        step = min(max(_STEP_BYTES, self._size), _STEP_MAX_BYTES)
        size = max(length, self._size + step)
        size += -size % lay.PAGE
        os.posix_fallocate(self._file, 0, size)
        self._size = size


def _write(file: int, pieces: Sequence[np.ndarray], at: int) -> None:
    """Write these pieces one after the other, from byte `at` on.

    Raises: OSError, after which some may be written.
    """
    left = [np.ascontiguousarray(piece) for piece in pieces if piece.size]
    while left:
        written = os.pwritev(file, left[:_PIECES], at)  # type: ignore[arg-type]  # arrays are buffers
        at += written
        while left and written >= left[0].nbytes:
            written -= left.pop(0).nbytes
        if written:
            left[0] = left[0].reshape(-1).view(np.uint8)[written:]


def header_of(part: int, number: int, width: int, strings: bool, job: int, first_epoch: int) -> dict[int, int]:
    """Return the words of the header of a file without records."""
    return {
        lay.W_MAGIC: lay.MAGIC,
        lay.W_VERSION: lay.VERSION,
        lay.W_LENGTH: lay.PAGE,
        lay.W_LAST: -1,
        lay.W_PART: part,
        lay.W_NUMBER: number,
        lay.W_WIDTH: width,
        lay.W_STRINGS: int(strings),
        lay.W_JOB: job,
        lay.W_BOOT: boot_word(),
        lay.W_FIRST: first_epoch,
    }


def regions_of(rows: EpochRows) -> tuple[list[list[np.ndarray]], tuple[int, int, int, int]]:
    """The regions of an epoch's record, in the pieces in which they came, and its counts (see TailFile.append)."""
    regions: list[list[np.ndarray]] = []
    text = -1
    if rows.ids and isinstance(rows.ids[0], tuple):
        lengths = [np.diff(offsets) for offsets, _ in rows.ids]
        joined = np.concatenate([np.zeros(1, np.int64), *lengths]).astype(np.int64)
        data = [data for _, data in rows.ids]
        text = sum(one.nbytes for one in data)
        regions += [[np.cumsum(joined)], data]
    else:
        regions.append([np.asarray(ids, np.int64) for ids in rows.ids])
    regions.append([np.asarray(one, np.float32) for one in rows.rows])
    places = [] if rows.positions is None else [np.asarray(rows.positions, np.int64)]
    if rows.event_ts is not None:
        places.append(np.array([[lay.EVENT_TS, 0, rows.event_ts, 0]], np.int64))
    regions.append(places)
    return regions, (rows.changed, rows.deleted, text, sum(map(len, places)))


class BeatFile:
    """A part's heartbeat: one page that every attempt writes to, from whichever thread has a moment."""

    def __init__(self, path: Path, job: int) -> None:
        """Open the page, and make it where there is none.

        Raises:
            OSError: there is no space for it.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            os.posix_fallocate(file, 0, lay.PAGE)
            self._words = np.frombuffer(mmap.mmap(file, lay.PAGE), np.int64)
        finally:
            os.close(file)
        publish_word(self._words, lay.B_BOOT, boot_word())
        publish_word(self._words, lay.B_JOB, job)
        publish_word(self._words, lay.B_MAGIC, lay.MAGIC)

    def beat(self, visible: int, failures: int, epoch: int) -> None:
        """Show that the part lives, and what it has done."""
        publish_word(self._words, lay.B_VISIBLE, visible)
        publish_word(self._words, lay.B_FAILURES, failures)
        publish_word(self._words, lay.B_EPOCH, epoch)
        publish_word(self._words, lay.B_BEAT_US, now_us())
