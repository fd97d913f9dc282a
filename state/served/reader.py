"""A table as its readers map it: rows of many ids at one epoch, beside a writer, in any process of the machine."""

from __future__ import annotations

import time

import numpy as np

from state.atomics import read_word
from state.served.ids import Ids, Texts, frozen
from state.served.layout import (
    I_BYTES,
    POSITION_WORDS,
    POSITIONS_MAX,
    T_ID_WORDS,
    T_IDS_AT,
    T_USED,
)
from state.served.mapped import Found, HistoryTooShortError, MappedTable, WriterGoneError
from state.served.read_kernels import (
    MISSED,
    STUCK,
    names_of,
    read_numbers,
    read_positions,
    read_slots,
    read_texts,
)

_SLOTS_AT_ONCE = 65_536
_PATIENCE_S = 5.0


class TableReader(MappedTable):
    """A mapped table beside its writer. Used by one thread at a time, but for the counts."""

    def word(self, at: int) -> int:
        """A word of the header, with all that was written before it."""
        return read_word(self.mem, at)

    def get(self, ids: Ids) -> Found:
        """The rows of these ids.

        Raises:
            HistoryTooShortError, WriterGoneError: the writer is too fast, or gone.
        """
        own = np.empty(len(ids), np.int64)
        rows = np.empty((len(ids), self.width), np.float32)
        until = 0.0
        while True:
            if isinstance(ids, Texts):
                epoch = read_texts(self.mem, self.floats, ids.offsets, ids.data, own, rows)
            else:
                epoch = read_numbers(self.mem, self.floats, ids, own, rows)
            if epoch >= 0:
                return Found(epoch, own, rows)
            until = self._again(epoch, until)

    def all(self) -> tuple[Ids, Found]:
        """All ids that live, and their rows."""
        until = 0.0
        while True:
            code, ids, found = self._all()
            if code >= 0:
                return ids, found
            until = self._again(code, until)

    def positions(self) -> np.ndarray:
        """What the input is read up to: (source, partition, next offset, epoch that reached it), (p, 4) int64."""
        out = np.empty((POSITIONS_MAX, POSITION_WORDS), np.int64)
        until = 0.0
        while (count := read_positions(self.mem, out)) < 0:
            until = self._again(count, until)
        return out[:count].copy()

    def _all(self) -> tuple[int, Ids, Found]:
        epoch, used = self.epoch, read_word(self.mem, T_USED)
        slots, own = np.empty(used, np.int64), np.empty(used, np.int64)
        rows = np.empty((used, self.width), np.float32)
        count = 0
        for first in range(0, used, _SLOTS_AT_ONCE):
            n = min(_SLOTS_AT_ONCE, used - first)
            at = slice(count, count + n)
            got = read_slots(self.mem, self.floats, first, epoch, slots[at], own[at], rows[at])
            if got < 0:
                return got, slots, Found(epoch, own, rows)
            count += got
        return 0, self._ids(slots[:count]), Found(epoch, own[:count], rows[:count])

    def _ids(self, slots: np.ndarray) -> Ids:
        words, at = int(self.mem[T_ID_WORDS]), int(self.mem[T_IDS_AT])
        if not self.strings:
            return frozen(self.mem[at + slots])
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self.mem[at + slots * words + I_BYTES], out=offsets[1:])
        text = np.empty(int(offsets[-1]), np.uint8)
        names_of(self.mem, slots, offsets, text)
        return Texts(frozen(offsets), frozen(text))

    def _again(self, code: int, until: float) -> float:
        """Wait a moment before the next try; `until` is 0 at the first one."""
        now = time.monotonic()
        if until and now > until:
            if code == STUCK:
                msg = f"{self.path}: a row is half written and its writer does not go on; start `freshet serve` again"
                raise WriterGoneError(msg)
            msg = f"{self.path}: rows change faster than they can be read at one epoch; give the server more --history"
            raise HistoryTooShortError(msg)
        self.misses += code == MISSED
        time.sleep(0.001)
        return until or now + _PATIENCE_S
