"""Reads tail files while they grow: every record that is published, in order, as views of the mapped file."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshet.kernels.atomics import read_word
from freshet.operators.sink.tail import layout as lay
from freshet.operators.sink.tail.layout import boot_word, padded


class NotATailError(ValueError):
    """A file that is no tail of this job that could be trusted."""


@dataclass(frozen=True, slots=True)
class TailEpoch:
    """One epoch of one part.

    Shapes: ids (n + d,) int64, or offsets (n + d + 1,) int64 and text (bytes,) uint8; rows (n, width) float32;
        positions (p, 4) int64, of which those of a negative source are none
    """

    epoch: int
    changed: int
    deleted: int
    ids: np.ndarray
    text: np.ndarray | None
    rows: np.ndarray
    positions: np.ndarray
    arrived_ms: int
    published_us: int
    raw: np.ndarray  # the record as it lies in the file, (bytes,) uint8

    @property
    def event_ts(self) -> int | None:
        """The largest `ts` of the epoch's events, None where none has any."""
        found = self.positions[self.positions[:, 0] == lay.EVENT_TS]
        return int(found[0, 2]) if len(found) else None


class TailReader:
    """One tail file, by any number of readers; `next` follows its writer."""

    def __init__(self, path: Path, job: int) -> None:
        """Open the file.

        Raises:
            NotATailError: it is of another job, version or start of the machine, or damaged.
            FileNotFoundError: it is gone.
        """
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._map()
            words = self._words
            head = [int(words[at]) for at in (lay.W_MAGIC, lay.W_VERSION, lay.W_JOB, lay.W_BOOT)]
            if head != [lay.MAGIC, lay.VERSION, job, boot_word()]:
                msg = f"{path}: not a tail of this job, version and start of the machine"
                raise NotATailError(msg)
        except BaseException:
            os.close(self._file)
            raise
        self.first_epoch, self.width = int(words[lay.W_FIRST]), int(words[lay.W_WIDTH])
        self._at = lay.PAGE

    def close(self) -> None:
        """Let the file go; what was read stays mapped as long as somebody looks at it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def ended(self) -> bool:
        """True if its writer has finished it, and all was read."""
        return read_word(self._words, lay.W_STATE) != lay.OPEN and self._at >= read_word(self._words, lay.W_LENGTH)

    def next(self, wanted: int = 0) -> TailEpoch | None:
        """The next record of an epoch from `wanted` on; None while there is none."""
        while (size := self._whole()) is not None:
            words = self._words[self._at // 8 : self._at // 8 + lay.RECORD_WORDS]
            if int(words[lay.R_EPOCH]) >= wanted:
                found = record_of(self._bytes[self._at : self._at + size], self.width)
                self._at += size
                return found
            self._at += size
        return None

    def _whole(self) -> int | None:
        """Bytes of the record at hand, None where there is none that is whole."""
        length = read_word(self._words, lay.W_LENGTH)
        if self._at + 8 * lay.RECORD_WORDS > length:
            return None
        if length > len(self._bytes):
            self._map()
        length = min(length, len(self._bytes))  # of a file that was cut off, what is left
        if self._at + 8 * lay.RECORD_WORDS > length:
            return None
        size = int(self._words[self._at // 8 + lay.R_BYTES])
        return size if size >= 8 * lay.RECORD_WORDS and self._at + size <= length else None

    def _map(self) -> None:
        try:
            mapped = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)  # all of it: its writer may cut it off just now
        except ValueError:
            msg = f"{self.path}: not a tail, it is empty"
            raise NotATailError(msg) from None
        if (size := len(mapped)) < lay.PAGE:
            msg = f"{self.path}: not a tail, it has {size} bytes"
            raise NotATailError(msg)
        self._bytes = np.frombuffer(mapped, np.uint8, size - size % 8)
        self._words = self._bytes.view(np.int64)


def record_of(raw: np.ndarray, width: int) -> TailEpoch:
    """A record's parts as views of its bytes.

    Raises:
        NotATailError: its counts and its size do not fit.
    """
    words = raw.view(np.int64)
    changed, deleted, text_bytes, count = words[lay.R_CHANGED : lay.R_POSITIONS + 1].tolist()
    ids_count, texts = changed + deleted + (text_bytes >= 0), max(text_bytes, 0)
    sizes = 8 * ids_count, padded(texts), padded(4 * changed * width), 32 * count
    if min(changed, deleted, count) < 0 or 8 * lay.RECORD_WORDS + sum(sizes) != raw.nbytes:
        msg = f"a record of {raw.nbytes} bytes: expected {sizes} for ids, text, rows and positions"
        raise NotATailError(msg)
    ids_at = 8 * lay.RECORD_WORDS
    text_at, rows_at = ids_at + sizes[0], ids_at + sizes[0] + sizes[1]
    rows = raw[rows_at : rows_at + 4 * changed * width].view(np.float32).reshape(changed, width)
    return TailEpoch(
        int(words[lay.R_EPOCH]),
        changed,
        deleted,
        words[ids_at // 8 : text_at // 8],
        raw[text_at : text_at + texts] if text_bytes >= 0 else None,
        rows,
        words[(rows_at + sizes[2]) // 8 :].reshape(count, 4),
        int(words[lay.R_ARRIVED_MS]),
        int(words[lay.R_PUBLISHED_US]),
        raw,
    )


@dataclass(frozen=True, slots=True)
class Beat:
    """Last heartbeat of a part; `visible`: the change log shows its rows up to that epoch."""

    beat_us: int
    visible: int
    failures: int
    epoch: int


def read_beat(path: Path, job: int) -> Beat | None:
    """The heartbeat of a part; None where there is none of this job and start of the machine."""
    try:
        with path.open("rb") as file:
            words = np.frombuffer(file.read(lay.PAGE), np.int64)
    except OSError:
        return None
    if len(words) * 8 < lay.PAGE or words[: lay.B_BEAT_US].tolist() != [lay.MAGIC, job, boot_word()]:
        return None
    return Beat(*words[lay.B_BEAT_US : lay.B_EPOCH + 1].tolist())
