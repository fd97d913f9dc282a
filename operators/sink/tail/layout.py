"""Files of a folder of tails: tail files and beat files, both mapped, and a note of the job.

A tail file holds the epochs of one file of the change log, by its number, as one attempt has written them: what it
holds is the same in every attempt, so a reader may take an epoch from whichever it sees first.

Layout of a tail file:
    header   PAGE bytes: the words below; LENGTH is published last, by a release store
    records  one per epoch, each a multiple of 8 bytes:
             RECORD_WORDS words (below)
             ids: n + d int64, or for strings n + d + 1 int64 offsets and the bytes, padded to 8
             rows: n x width float32, padded to 8
             positions: p x 4 int64 (source, partition, next_offset, events); in the row of the source EVENT_TS the
             third is the largest `ts` of the epoch's events, and earlier versions overlook it
A beat file is one page of words: the part's heartbeat and counts. All words are little-endian int64. A server on the
machine needs no other folder than that of the tails: `job.json`, the note beside them, identifies their job.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from freshet.files.json_file import DamagedFileError, read_json, write_json

MAGIC, VERSION = 0x4C49415446, 1  # "FTAIL"
PAGE = 4096

# Words of the header; what is written again and again has a cache line of its own.
W_MAGIC, W_VERSION, W_JOB, W_BOOT, W_PART, W_NUMBER, W_WIDTH, W_STRINGS, W_FIRST = range(9)
W_LENGTH = 16  # bytes that are published, the header among them
W_LAST = 24  # the last epoch that is published
W_STATE = 32
OPEN, SEALED, FAILED = 0, 1, 2

# Words of a record.
R_BYTES, R_EPOCH, R_CHANGED, R_DELETED, R_TEXT, R_POSITIONS, R_ARRIVED_MS, R_PUBLISHED_US = range(8)
RECORD_WORDS = 8
EVENT_TS = -2  # in place of a source, which is never negative

# Words of a beat file.
B_MAGIC, B_JOB, B_BOOT, B_BEAT_US, B_VISIBLE, B_FAILURES, B_EPOCH = range(7)

_NAME = re.compile(r"part-(\d+)-(\d{8})\.([0-9a-f]{8})\.tail")
_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_WORD = 2**63 - 1
_NOTE = "job.json"


class TailName(NamedTuple):
    """Fields in the name of a tail file."""

    part: int
    number: int
    attempt: str

    def __str__(self) -> str:
        return f"part-{self.part}-{self.number:08d}.{self.attempt}.tail"

    @staticmethod
    def parse(name: str) -> TailName | None:
        """The inverse; None for the name of anything else."""
        found = _NAME.fullmatch(name)
        return TailName(int(found[1]), int(found[2]), found[3]) if found else None


def beat_name(part: int) -> str:
    """The name of a part's beat file."""
    return f"part-{part}.beat"


def job_word(job_id: str) -> int:
    """A job's id as a word; 0 of none."""
    return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:8], "little") & _WORD if job_id else 0


@cache
def boot_word() -> int:
    """This start of this machine as a word: what was mapped before it, or elsewhere, may lack pages."""
    try:
        return uuid.UUID(_BOOT_FILE.read_text().strip()).int & _WORD
    except (OSError, ValueError):
        return 0


def padded(size: int) -> int:
    """The next multiple of 8."""
    return -(-size // 8) * 8


@dataclass(frozen=True, slots=True)
class TailNote:
    """The job that the tails of a folder are of; every part and attempt writes the same."""

    job_id: str
    parts: int
    width: int
    strings: bool
    sources: tuple[str, ...] = ()
    model_folder: str = ""
    begins_empty: bool = False  # epoch 0 has no rows
    kind_name: str = ""  # of the vertices: of one of several kinds, or of the only one that the model returns

    def write(self, folder: Path) -> None:
        """Have it beside the tails; readers find a whole one.

        Raises:
            OSError: there is no space for it.
        """
        write_json(folder / _NOTE, asdict(self), synced=False)

    @staticmethod
    def read(folder: Path) -> dict[str, Any] | None:
        """Return its fields, by name; None if there is none, or one damaged by a power loss."""
        try:
            found = read_json(folder / _NOTE, TailNote, "the job writes another one")
        except DamagedFileError:
            return None
        return None if found is None else asdict(found) | {"sources": list(found.sources)}
