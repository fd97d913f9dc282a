"""A table as its readers map it: rows of many ids at one epoch, beside a writer, in any process of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshet.kernels.atomics import read_word
from freshet.state.served import layout as lay
from freshet.state.served.ids import Ids, Texts, frozen
from freshet.state.served.mapped import NEWEST, Found, HistoryTooShortError, MappedTable, WriterGoneError
from freshet.state.served.read_kernels import (
    MISSED,
    STUCK,
    names_of,
    read_few,
    read_few_texts,
    read_numbers,
    read_positions,
    read_slots,
    read_texts,
    read_these,
    slots_in_ring,
    slots_of_numbers,
    slots_of_texts,
)

_SLOTS_AT_ONCE = 65_536
_PATIENCE_S = 5.0
_TRIES_MIN = 20  # a machine may stand still for as long, with its writers


class Tries(NamedTuple):
    """Number of tries so far, and the time from which on there are no more."""

    made: int = 0
    until: float = 0.0


NO_TRIES = Tries()


class TableReader(MappedTable):
    """A mapped table beside its writer. Used by one thread at a time, but for the counts."""

    def word(self, at: int) -> int:
        """A word of the header, with all that was written before it."""
        return read_word(self.mem, at)

    def get(self, ids: Ids, upto: int = NEWEST) -> Found:
        """The rows of these ids at the newest epoch, or at `upto`, which was the newest of this table before.

        Raises:
            HistoryTooShortError, WriterGoneError: the writer is too fast, or gone.
        """
        own = np.empty(len(ids), np.int64)
        rows = np.empty((len(ids), self.width), np.float32)
        tries = NO_TRIES
        while True:
            if isinstance(ids, Texts):
                epoch = read_texts(self.mem, self.floats, upto, ids.offsets, ids.data, own, rows)
            else:
                epoch = read_numbers(self.mem, self.floats, upto, ids, own, rows)
            if epoch >= 0:
                return Found(epoch, own, rows)
            tries = self.again(epoch, tries, upto)

    def few(self, ids: Ids, wanted: int) -> Found | None:
        """The rows of a few ids, if all of them are there and the table is as far as `wanted`; one look.

        It keeps the interpreter's lock: getting it back would take longer than the rows.
        """
        own, rows = np.empty(len(ids), np.int64), np.empty((len(ids), self.width), np.float32)
        epoch = self.few_into(ids, wanted, own, rows)
        return Found(epoch, own, rows) if epoch >= 0 else None

    def few_into(self, ids: Ids, wanted: int, own: np.ndarray, rows: np.ndarray) -> int:
        """Like `few`, into the caller's arrays: return their epoch, or a negative number if some are absent."""
        if isinstance(ids, Texts):
            return read_few_texts(self.mem, self.floats, wanted, ids.offsets, ids.data, own, rows)
        return read_few(self.mem, self.floats, wanted, ids, own, rows)

    def all(self, upto: int = NEWEST) -> tuple[Ids, Found]:
        """All ids that live, and their rows; see `get`."""
        tries = NO_TRIES
        while True:
            code, ids, found = self._all(upto)
            if code >= 0:
                return ids, found
            tries = self.again(code, tries, upto)

    def positions(self) -> np.ndarray:
        """Return the positions up to which input was read: (source, partition, next offset, epoch), (p, 4) int64."""
        out = np.empty((lay.POSITIONS_MAX, lay.POSITION_WORDS), np.int64)
        tries = NO_TRIES
        while (count := read_positions(self.mem, out)) < 0:
            tries = self.again(count, tries)
        return out[:count].copy()

    def part(self, epoch: int, first: int, count: int) -> tuple[int, Ids, Found]:
        """Return the live rows of `count` slots from `first` on as of `epoch`, and their ids; preceded by 0 or MISSED.

        Raises: WriterGoneError.
        """
        slots, own = np.empty(count, np.int64), np.empty(count, np.int64)
        rows = np.empty((count, self.width), np.float32)
        tries = NO_TRIES
        while (got := read_slots(self.mem, self.floats, first, epoch, slots, own, rows)) == STUCK:
            tries = self.again(STUCK, tries)
        alive = max(got, 0)
        return min(got, 0), self.ids_in(slots[:alive]), Found(epoch, own[:alive], rows[:alive])

    def rows_of(self, slots: np.ndarray, epoch: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Return 0, MISSED or STUCK, and the epochs (negative: no row) and rows of slots as of an epoch."""
        own, rows = np.empty(len(slots), np.int64), np.empty((len(slots), self.width), np.float32)
        return read_these(self.mem, self.floats, slots, epoch, own, rows), own, rows

    def slots_of(self, ids: Ids) -> np.ndarray:
        """Return the slots of ids, negative where the table has none."""
        slots = np.empty(len(ids), np.int64)
        if isinstance(ids, Texts):
            slots_of_texts(self.mem, ids.offsets, ids.data, slots)
        else:
            slots_of_numbers(self.mem, ids, slots)
        return slots

    def _all(self, upto: int) -> tuple[int, Ids, Found]:
        epoch, used = min(self.epoch, upto), read_word(self.mem, lay.T_USED)
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
        return 0, self.ids_in(slots[:count]), Found(epoch, own[:count], rows[:count])

    def fitting(self, first: int, count: int, text_bytes: int) -> int:
        """Return how many of `count` slots from `first` on fit into `text_bytes` of id text; at least one."""
        if not self.strings or not count:
            return count
        words, at = int(self.mem[lay.T_ID_WORDS]), int(self.mem[lay.T_IDS_AT])
        begin = at + first * words + lay.I_BYTES
        ends = np.cumsum(self.mem[begin : begin + count * words : words])
        return max(1, int(np.searchsorted(ends, text_bytes, "right")))

    def ids_in(self, slots: np.ndarray) -> Ids:
        """The ids of these slots."""
        words, at = int(self.mem[lay.T_ID_WORDS]), int(self.mem[lay.T_IDS_AT])
        if not self.strings:
            return frozen(self.mem[at + slots])
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self.mem[at + slots * words + lay.I_BYTES], out=offsets[1:])
        text = np.empty(int(offsets[-1]), np.uint8)
        names_of(self.mem, slots, offsets, text)
        return Texts(frozen(offsets), frozen(text))

    def again(self, code: int, tries: Tries, upto: int = NEWEST) -> Tries:
        """Wait a moment before the next try; an earlier epoch that the ring no longer has does not come back.

        Raises: HistoryTooShortError, WriterGoneError
        """
        now, is_past = time.monotonic(), code == MISSED and upto < self.epoch
        if is_past or (tries.made >= _TRIES_MIN and now > tries.until):
            if code == STUCK:
                msg = f"{self.path}: a row is half written and its writer does not go on; start `freshet serve` again"
                raise WriterGoneError(msg)
            msg = f"{self.path}: rows change faster than they can be read at one epoch; give the server more --history"
            raise HistoryTooShortError(msg)
        self.misses += code == MISSED
        time.sleep(0.001)
        return Tries(tries.made + 1, tries.until or now + _PATIENCE_S)


class Change(NamedTuple):
    """Rows that are newer than a former epoch, as of a later one; if `whole`, all rows instead.

    Shapes: own (n,) int64, the epochs of the rows that live; rows (n, width) float32
    """

    epoch: int
    whole: bool
    ids: Ids
    own: np.ndarray
    rows: np.ndarray
    dead: Ids


class _From(NamedTuple):
    """Start of the search for changes: in the ring, in the slots, and in further slots."""

    ring: int
    used: int
    slots: np.ndarray


_NOWHERE = np.empty(0, np.int64)


class ChangeReader:
    """Takes what has changed in a table, again and again: `next`.

    Invariant: of every epoch past the one that was taken last, each entry of the ring lies behind `_from`, or its slot
    is in it. Entries of the epoch E + 1 come after E is published, so a look at the ring's end, made before a look
    that still found an epoch older than E, will do for all that follows E.
    """

    def __init__(self, table: TableReader) -> None:
        """Follow a table that its writer continues."""
        self.table, self.epoch = table, -1
        self._from: _From | None = None
        self._later: _From | None = None
        self._newest: _From | None = None  # of the last look

    @property
    def lost(self) -> bool:
        """True if all rows must be read, at first or because the ring has moved on: call `next` or `start_at`."""
        return self._from is None

    @property
    def behind(self) -> int:
        """Number of entries of the ring that `slots` and `newer` will look at."""
        return 0 if self._from is None else self.table.word(lay.T_RESERVED) - self._from.ring

    def next(self) -> Change | None:
        """The next change, at first the whole table; None while there is none."""
        found = None if self.lost else self.newer()
        return self._whole() if self.lost else found

    def newer(self, room: Callable[[int], None] = lambda rows: None) -> Change | None:
        """Like `next`, but None and `lost` mean all rows; `room` gets the number of rows that are about to be read."""
        found = self._look()
        if found is None:
            return None
        epoch, slots = found
        room(len(slots))
        code, own, rows = self.table.rows_of(slots, epoch)
        if code < 0:
            self._from = None
            return None
        word, ids_in = self.table.word, self.table.ids_in
        touched = self.table.mem[word(lay.T_ROWS_AT) + lay.R_EPOCH + slots * word(lay.T_ROW_WORDS)]
        newer, gone = own > self.epoch, (own < 0) & (touched > self.epoch)  # once, though an entry may be read again
        self._take(epoch)
        return Change(epoch, False, ids_in(slots[newer]), own[newer], rows[newer], ids_in(slots[gone]))

    def slots(self) -> tuple[int, np.ndarray] | None:
        """Return the newest epoch, and the slots whose rows may have changed up to it; None: no news, or `lost`."""
        found = self._look()
        if found is not None:
            self._take(found[0])
        return found

    def _look(self) -> tuple[int, np.ndarray] | None:
        assert self._from is not None
        word = self.table.word
        here, epoch = _From(word(lay.T_RESERVED), word(lay.T_USED), _NOWHERE), self.table.epoch
        if epoch <= self.epoch:
            self._later = here
            return None
        self._newest = here
        found = self._since(self._from, word(lay.T_RESERVED), word(lay.T_USED))
        if found is None:  # too slow: the ring has moved on
            self._from = None
            return None
        return epoch, found

    def _take(self, epoch: int) -> None:
        # This look has found an epoch that is older than the next one.
        self.epoch, self._from, self._later = epoch, self._later or self._from, self._newest

    def start_at(self, epoch: int) -> None:
        """Continue after an epoch that was the newest a moment ago, whose rows the caller has or reads separately."""
        table = self.table
        ring, used = table.word(lay.T_RESERVED), table.word(lay.T_USED)
        # What is being applied already; the row of the last entry may not show it yet.
        words, at = table.word(lay.T_ROW_WORDS), table.word(lay.T_ROWS_AT)
        epochs = table.mem[at + lay.R_EPOCH : at + used * words : words]
        self._from = _From(max(0, ring - 1), used, np.flatnonzero(epochs > epoch))
        self._later, self.epoch = None, epoch

    def go_on_after(self, epoch: int) -> bool:
        """Continue after any epoch whose rows the caller has; False where the table does not know all that followed."""
        began = self.table.word(lay.T_BEGAN)
        if not began or epoch + 1 < began:
            return False
        self.start_at(epoch)
        return True

    def nothing(self) -> Change:
        """No change."""
        ids = self.table.ids_in(_NOWHERE)
        return Change(self.epoch, False, ids, _NOWHERE, np.empty((0, self.table.width), np.float32), ids)

    def _whole(self) -> Change:
        ids, found = self.table.all()
        self.start_at(found.epoch)
        return Change(found.epoch, True, ids, found.own, found.rows, self.table.ids_in(_NOWHERE))

    def _since(self, begin: _From, ring: int, used: int) -> np.ndarray | None:
        entries = np.empty(ring - begin.ring, np.int64)
        if slots_in_ring(self.table.mem, begin.ring, entries) < 0:
            return None
        return np.unique(np.concatenate([entries, begin.slots, np.arange(begin.used, used)]))
