"""A table that nobody writes, read by numpy alone: a server that has just begun has no compiled kernel yet.

It gives the rows of given ids as `TableReader` does, at a tenth of its speed, and that one takes its place before
anybody writes.
A server that is started again after a kill answers in 0.4 s by this one, and in 0.8 s with `TableReader` alone, even
where that one is loaded before all else (the best of nine runs by turns, two cores; medians 0.63 and 0.91 s).
"""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from freshet.state.served import layout as lay
from freshet.state.served.ids import Ids, Texts
from freshet.state.served.mapped import NEWEST, Found, HistoryTooShortError, MappedTable

_ABSENT = -1
_WORD = 2**64 - 1


class Reads(Protocol):
    """Interface of a reader of a table; see TableReader."""

    def get(self, ids: Ids, upto: int = NEWEST) -> Found:
        """The rows of these ids."""

    def positions(self) -> np.ndarray:
        """Return the positions up to which the input was read."""


class PlainReader(MappedTable):
    """The table that a killed server left, its half-written row taken for what it was before; safe for threads."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            NoTableError, FileNotFoundError: there is none.
        """
        super().__init__(path)
        self._lock = threading.Lock()
        self._successor: Reads | None = None
        self._begun = int(self.mem[lay.T_RESERVED])

    def hand_over(self, successor: Reads) -> None:
        """Have another reader answer from now on; on return nobody reads by this one, and rows may change."""
        with self._lock:
            self._successor = successor

    def get(self, ids: Ids, upto: int = NEWEST) -> Found:
        """The rows of these ids at the newest epoch, or at `upto`, which was the newest before.

        Raises:
            HistoryTooShortError: an epoch that was half applied is larger than the ring.
        """
        with self._lock:
            if self._successor is None:
                return self._read(self._slots(ids), min(self.epoch, upto))
        return self._successor.get(ids, upto)

    def few(self, ids: Ids, wanted: int) -> None:
        """There is no quick way."""

    def positions(self) -> np.ndarray:
        """Return the positions up to which the input was read, (p, 4) int64; none while they are being written."""
        with self._lock:
            if self._successor is None:
                count = 0 if self.mem[lay.T_POSITION_SEQ] & 1 else int(self.mem[lay.T_POSITION_COUNT])
                first = int(self.mem[lay.T_POSITIONS_AT])
                return self.mem[first : first + count * lay.POSITION_WORDS].reshape(-1, lay.POSITION_WORDS).copy()
        return self._successor.positions()

    def _read(self, slots: np.ndarray, epoch: int) -> Found:
        """The rows of slots as of an epoch; slot -1 has none."""
        mem, words = self.mem, int(self.mem[lay.T_ROW_WORDS])
        own, rows = np.full(len(slots), _ABSENT), np.zeros((len(slots), self.width), np.float32)
        which = np.flatnonzero(slots >= 0)
        at = mem[lay.T_ROWS_AT] + slots[which] * words
        torn = np.flatnonzero(mem[at + lay.R_SEQ] & 1)
        newer = mem[at + lay.R_EPOCH] > epoch
        newer[torn] = True  # it was being set for an epoch that is not complete
        before = mem[at + lay.R_BEFORE]
        before[torn] = self._kept(slots[which[torn]], before[torn])
        while len(which):
            self._take(which[~newer], at[~newer], own, rows)
            left = newer & (before >= 0)
            which, before = which[left], before[left]
            if (self._begun - before > mem[lay.T_RING]).any():
                msg = f"{self.path}: an epoch of which a part was applied is larger than --history"
                raise HistoryTooShortError(msg)
            at = mem[lay.T_RING_AT] + (before % mem[lay.T_RING]) * words
            newer, before = mem[at + lay.R_EPOCH] > epoch, mem[at + lay.R_BEFORE]
        return Found(epoch, own, rows)

    def _kept(self, slots: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return ring entries with previous versions of half-written rows: the last one, or the one before (kept)."""
        last = self._begun - 1
        entry = self.mem[lay.T_RING_AT] + (last % self.mem[lay.T_RING]) * self.mem[lay.T_ROW_WORDS]
        return np.where((last >= 0) & (self.mem[entry + lay.U_SLOT] == slots), last, before)

    def _take(self, which: np.ndarray, at: np.ndarray, own: np.ndarray, rows: np.ndarray) -> None:
        lives = self.mem[at + lay.R_LIVES] != 0
        which, at = which[lives], at[lives]
        own[which] = self.mem[at + lay.R_EPOCH]
        rows[which] = self.floats[(2 * (at + lay.ROW_HEAD))[:, None] + np.arange(self.width)]

    def _slots(self, ids: Ids) -> np.ndarray:
        """The slot of each id; -1: it has none."""
        mem, mask = self.mem, self.mem[lay.T_INDEX] - 1
        hashed = self._hashes(ids)
        found, left, at = np.full(len(hashed), -1), np.arange(len(hashed)), hashed & mask
        while len(left):
            slots = mem[mem[lay.T_INDEX_AT] + at] - 1
            same = self._same(ids, hashed, left, slots)
            found[left[same]] = slots[same]
            on = ~same & (slots >= 0)
            left, at = left[on], (at[on] + 1) & mask
        return found

    def _hashes(self, ids: Ids) -> np.ndarray:
        salt = self.mem[lay.T_SALT : lay.T_SALT + 3].view(np.uint64)
        if not isinstance(ids, Texts):
            z = ids.view(np.uint64) ^ salt[0]
            z = (z ^ (z >> np.uint64(32))) * salt[1]
            z = (z ^ (z >> np.uint64(29))) * salt[2]
            return (z >> np.uint64(32)).view(np.int64)
        words, raw, ends = [int(one) for one in salt], ids.data.tobytes(), ids.offsets.tolist()
        hashes = [_hash_text(words, raw[a:b]) for a, b in pairwise(ends)]
        return np.array(hashes, np.uint64).view(np.int64)

    def _same(self, ids: Ids, hashed: np.ndarray, which: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return whether slots (-1: none) have ids `which`."""
        mem, names = self.mem, self.mem[lay.T_IDS_AT] + np.maximum(slots, 0) * self.mem[lay.T_ID_WORDS]
        if not isinstance(ids, Texts):
            return (slots >= 0) & (mem[names] == ids[which])
        same = (slots >= 0) & (mem[names + lay.I_HASH] == hashed[which])
        heap = mem[mem[lay.T_HEAP_AT] :].view(np.uint8)
        for k in np.flatnonzero(same).tolist():
            first, size = int(mem[names[k] + lay.I_AT]), int(mem[names[k] + lay.I_BYTES])
            begin, end = ids.offsets[which[k]], ids.offsets[which[k] + 1]
            same[k] = heap[first : first + size].tobytes() == ids.data[begin:end].tobytes()
        return same


def _hash_text(salt: list[int], text: bytes) -> int:
    """SipHash-1-3, as `hash_text` of state/salt.py has it."""
    a, b = salt[0] ^ 0x736F6D6570736575, salt[2] ^ 0x646F72616E646F6D
    c, d = salt[0] ^ 0x6C7967656E657261, salt[2] ^ 0x7465646279746573
    whole = len(text) & ~7
    words = [int.from_bytes(text[at : at + 8], "little") for at in range(0, whole, 8)]
    for word in [*words, (len(text) & 0xFF) << 56 | int.from_bytes(text[whole:], "little")]:
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a, c = (a + b) & _WORD, (c + d) & _WORD
    b, d = _rotated(b, 13) ^ a, _rotated(d, 16) ^ c
    c, a = (c + b) & _WORD, (_rotated(a, 32) + d) & _WORD
    return a, _rotated(b, 17) ^ c, _rotated(c, 32), _rotated(d, 21) ^ a


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _WORD
