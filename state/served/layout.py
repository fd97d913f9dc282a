"""The byte layout of the versioned table: one mapped file of int64 words.

Layout:
    header     PAGE words: the words below
    positions  POSITIONS_MAX x 4: source, partition, next offset, the epoch that reached it
    times      TIMES x 5: an epoch and its times (see times.py); not in tables of earlier versions
    index      a power of two of words: slot + 1 at the place of an id's hash or after it, 0 where nothing is
    ids        one word a slot; of strings three: where in the heap, how many bytes, their hash
    rows       ROW_HEAD words a slot, and the vector as float32: sequence (odd while the writer is in it), epoch,
               undo entry before it (or -1), whether it lives
    ring       ROW_HEAD words an entry, and the vector: slot, epoch, entry before it, whether it lived
    heap       the bytes of string ids, one after the other
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

MAGIC, VERSION = 0x4C4254465246, 1  # "FRFTBL"
PAGE = 512
POSITIONS_MAX = 4096
POSITION_WORDS = 4
TIMES, TIME_WORDS = 1 << 16, 5

# Words of the header that never change. Places count in words.
T_MAGIC, T_VERSION, T_WIDTH, T_STRINGS, T_CAPACITY, T_INDEX, T_RING, T_HEAP = range(8)
T_ROW_WORDS, T_ID_WORDS, T_POSITIONS_AT, T_INDEX_AT, T_IDS_AT, T_ROWS_AT, T_RING_AT, T_HEAP_AT = range(8, 16)
T_SALT, T_JOB, T_BOOT = 16, 20, 21
T_TIMES_AT, T_TIMES = 22, 23  # both 0 in a table of an earlier version
# Words that change, on cache lines of their own.
T_EPOCH = 64  # the newest complete epoch
T_USED = 72  # slots
T_RESERVED = 80  # ring entries ever begun
T_SUPERSEDED = 88  # not 0: another file has taken its place
T_BEAT_US = 96  # when the writer lived last
T_POSITION_SEQ, T_POSITION_COUNT = 104, 105
T_HEAP_USED, T_LIVE = 112, 113
# Of the newest epoch: when its last event arrived, when the job published it, when it became readable here.
T_ARRIVED_US, T_PUBLISHED_US, T_READABLE_US = 120, 121, 122
T_SOURCE_BEAT_US, T_TAIL_FAILURES, T_ENDED = 128, 129, 130
RUNS, ENDED, STOPPED = 0, 1, 2  # how the job has ended, in T_ENDED: it may be taken up again where it was stopped
# One more than the greatest epoch that a row may have, set before the row is; 0 of an earlier version. A table whose
# rows may be past the epoch after its newest complete one is not gone on with: of that epoch alone all comes again.
T_REACH = 136
# One more than the epoch that the table was first shown with; 0 where it is not known. Deleted ids keep their slots, so
# that all that changed after that epoch can be found in the slots, however long ago.
T_BEGAN = 144
# The folder whose table it is, as UTF-8 and zeros; all zeros of an earlier version, or where the path is too long.
T_FOLDER, FOLDER_BYTES = 256, 2048

R_SEQ, R_EPOCH, R_BEFORE, R_LIVES = range(4)  # of a row; in the ring the first is its slot
U_SLOT = R_SEQ
ROW_HEAD = 4
I_AT, I_BYTES, I_HASH = range(3)  # of a string id

SHM = Path("/dev/shm")
HISTORY_BYTES = 256 << 20  # of the ring, where nothing else is said
RING_MIN = 4096
_ROUND = 4096


class TableShape(NamedTuple):
    """Sizes of the regions of a table: slots, index words, ring entries, bytes of the heap."""

    width: int
    strings: bool
    capacity: int
    places_of_ids: int
    ring: int
    heap: int

    @staticmethod
    def of(width: int, strings: bool, capacity: int, heap_bytes: int, history_bytes: int) -> TableShape:
        """Return the shape for this many ids; the ring takes at most `history_bytes`, less for few ids."""
        capacity = max(1024, capacity)
        entry = 8 * row_words(width)
        ring = max(RING_MIN, min(history_bytes // entry, 4 * capacity))
        heap = max(_ROUND, heap_bytes) if strings else 0
        return TableShape(width, strings, capacity, 1 << (2 * capacity - 1).bit_length(), ring, heap + -heap % 8)

    @property
    def places(self) -> dict[int, int]:
        """The words of the header that say where the regions begin."""
        words, ids = row_words(self.width), 3 if self.strings else 1
        found, at = {T_ROW_WORDS: words, T_ID_WORDS: ids}, PAGE
        for name, size in (
            (T_POSITIONS_AT, POSITIONS_MAX * POSITION_WORDS),
            (T_TIMES_AT, TIMES * TIME_WORDS),
            (T_INDEX_AT, self.places_of_ids),
            (T_IDS_AT, self.capacity * ids),
            (T_ROWS_AT, self.capacity * words),
            (T_RING_AT, self.ring * words),
            (T_HEAP_AT, self.heap // 8),
        ):
            found[name] = at
            at += size + -size % 8
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        size = 8 * (self.places[T_HEAP_AT] + self.heap // 8)
        return size + -size % _ROUND


def row_words(width: int) -> int:
    """Words of a row and of a ring entry."""
    return ROW_HEAD + (width + 1) // 2
