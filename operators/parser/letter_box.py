"""Target of rejected records: counted by reason, then sent to a file, or to a queue that fills a topic."""

from __future__ import annotations

import base64
import fcntl
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from freshet.operators.limits import RECORD_BYTES, RECORD_SPARE
from freshet.operators.record_blocks import KafkaRecord, blocks_of
from freshet.operators.telemetry.figures import NOTED_AND_ALL
from freshet.operators.telemetry.status_file import LAST_STATUS, REASONS_PREFIX, StatusFile, read_statuses
from freshet.operators.telemetry.traffic import Traffic

FILES = 8  # the one that grows, and those that were put aside


class DeadLetter(NamedTuple):
    """A rejected record: why, where it stood (0-based line or row of a file, or Kafka's offset), and its bytes.

    `records`: how many it stands for; more than one are the rest of a message with very many bad records.
    """

    error: str
    source: str
    partition: int
    offset: int
    raw: bytes
    records: int = 1

    def to_json(self) -> bytes:
        """One JSON object without a line end."""
        return orjson.dumps(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the fields of that object; bytes that are not UTF-8 are in `raw_base64`."""
        record: dict[str, Any] = {
            # a file name may hold bytes that are no text
            "error": self.error.encode(errors="replace").decode(),
            "source": self.source.encode(errors="replace").decode(),
            "partition": self.partition,
            "offset": self.offset,
        }
        if self.records != 1:
            record["records"] = self.records
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return record


class DeadLetterFile:
    """A JSON Lines file that rejected records are appended to, flushed after each batch; it is made at the first one.

    Past an eighth of `bytes_max` it is put aside as NAME.1.jsonl, what was that before as NAME.2.jsonl, and so on; the
    one that would be the eighth is dropped, and its letters are counted. Several operators may write to one file, each
    in a process of its own: a lock beside it (`.NAME.jsonl.lock`) lets one of them write or put aside at a time.

    Units: bytes_max bytes, 0: no limit.
    Invariant: the files have `bytes_max` together at most, save for a letter that is larger than an eighth of that.

    Raises:
        OSError: the file cannot be written; name another by `--dead-letters`.
    """

    def __init__(self, path: Path | str, bytes_max: int = 0) -> None:
        self.path = Path(path)
        self.dropped = 0  # letters
        self._file_bytes = bytes_max // FILES

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append the letters; they are in the file (of the operating system) when this returns."""
        lines = [letter.to_json() + b"\n" for letter in letters]
        if not lines:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.is_file():  # a pipe, or /dev/null
            self._append(b"".join(lines))
        else:
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                for block in self._blocks(lines):
                    self._append(block)

    def _append(self, block: bytes) -> None:
        # opened for each batch: rejects are rare, and a file that is moved away by hand is begun anew
        with self.path.open("ab") as file:
            file.write(block)

    def _blocks(self, lines: list[bytes]) -> Iterator[bytes]:
        """The lines in blocks, each for the file as it then is."""
        size = self.path.stat().st_size if self.path.exists() else 0
        block: list[bytes] = []
        for line in lines:
            if self._file_bytes and size and size + len(line) > self._file_bytes:
                if block:
                    yield b"".join(block)
                self._put_aside()
                block, size = [], 0
            block.append(line)
            size += len(line)
        yield b"".join(block)

    def _put_aside(self) -> None:
        names = [self.path, *(self.path.with_suffix(f".{k}{self.path.suffix}") for k in range(1, FILES))]
        if names[-1].exists():
            self.dropped += _lines_of(names[-1])
            names[-1].unlink()
        for k in range(FILES - 1, 0, -1):
            if names[k - 1].exists():
                names[k - 1].rename(names[k])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among all who lock this file; a process that is killed gives the lock back."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


STATUS_PREFIX = "letters-"
_INTERVAL_MS = 100.0  # --max-rejected ends a run by these counts
_KEPT_BYTES = 64 << 10
_ERROR_LENGTH = 400
_PARTICULARS = re.compile(
    r",? got .*| as one more$| at index \d+|: .*\(char \d+\)$| at byte \d+$"
    r"|(?<=^not an Arrow IPC stream): .*|(?<=events_map does not apply): .*",
    re.DOTALL,
)
_REASON_LENGTH = 80
# Reasons stand in the status file and the summary line: whatever a record can make of one, they stay few.
REASONS_MAX = 200
OTHER_REASONS = "other reasons"
_NOTHING: Mapping[str, int] = {}
NOTED_LATE = "late"  # beside the counts of NOTED: 1 where a version before these has begun the job


def reason_of(error: str) -> str:
    """Return the common part of all errors of a kind, without the actual value: `x: expected 8 numbers`."""
    return _PARTICULARS.sub("", error)[:_REASON_LENGTH]


class ReadCounts(NamedTuple):
    """Counts since the job began; `rejected` is part of `read`."""

    read: int = 0
    rejected: int = 0

    @property
    def share(self) -> float:
        """Share of rejected records among those read, from 0 to 1."""
        return self.rejected / self.read if self.read else 0.0


class LetterQueue:
    """Rejected records as Kafka records for a topic (see operators/record_blocks.py), until they are taken.

    The key is SOURCE/PARTITION/OFFSET, the value the JSON object of the file form, in ASCII; of a record that Kafka
    would not take for its length only the beginning is kept (`raw_base64`), with its `raw_bytes` and a `note` that
    says so.

    Units: record_bytes is what the topic takes, key and value together.
    """

    def __init__(self, record_bytes: int = RECORD_BYTES) -> None:
        self._record_bytes = record_bytes - RECORD_SPARE
        self._records: list[KafkaRecord] = []
        self.traffic = Traffic()

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append letters."""
        for letter in letters:
            record = letter.fields()
            text = json.dumps(record)
            key = f"{record['source']}/{letter.partition}/{letter.offset}".encode()
            if len(key) + len(text) > self._record_bytes:
                text = _cut(record, letter.raw, self._record_bytes - len(key))
            value = text.encode()
            self.traffic.add(1, len(key) + len(value))
            self._records.append(KafkaRecord(key, value))

    def take(self) -> list[bytes]:
        """All records since the last call, in blocks."""
        blocks, self._records = list(blocks_of(self._records)), []
        return blocks


def _cut(record: dict[str, Any], raw: bytes, size: int) -> str:
    """Return a letter as JSON of about `most` bytes at most, with only the beginning of the record."""
    record.pop("raw", None)
    record["error"] = record["error"][:_ERROR_LENGTH]
    record |= {"raw_base64": "", "raw_bytes": len(raw), "note": ""}
    left = size - len(json.dumps(record)) - 100  # the note itself
    kept = max(0, min(_KEPT_BYTES, left * 3 // 4))
    record["note"] = f"raw_base64 holds the first {kept} of {len(raw)} bytes: the topic takes no more"
    record["raw_base64"] = base64.b64encode(raw[:kept]).decode()
    return json.dumps(record)


def add_reasons(counts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    """Add to counts by reason, which stay few."""
    for reason, records in more:
        name = reason if reason in counts or len(counts) < REASONS_MAX else OTHER_REASONS
        counts[name] = counts.get(name, 0) + records


class LetterBox:
    """Accepts a stage's rejected records; `dropped` counts those that no longer fit into the files.

    The Partitioner counts the reasons, since its durable state has each record once, and reports them here.
    """

    def __init__(self, target: DeadLetterFile | LetterQueue, out: Path | None = None, operator: str = "") -> None:
        """Without `out` nothing is reported; with it the counts are in the status file of the operator."""
        self._target = target
        self._status = None if out is None else StatusFile(out, f"{STATUS_PREFIX}{operator}", _INTERVAL_MS)
        self._reasons: Mapping[str, int] = {}
        self._attrs = self._read = 0
        self._noted: Mapping[str, int] = {}
        self.is_behind = False  # not all counts are in the file
        before = {} if self._status is None else self._status.read()
        self._dropped_before, self._has_counts = _dropped_in(before), bool(before)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Pass letters on; those for a file are in it when this returns."""
        letters = list(letters)
        if not letters:
            return
        dropped = self.dropped
        self._target.write(letters)
        if self.dropped > dropped:  # at once: nobody can count it later
            self._write(time.time() * 1e3, last=False)

    def report(
        self,
        reasons: Mapping[str, int],
        attrs: int = 0,
        read: int = 0,
        noted: Mapping[str, int] = _NOTHING,
        *,
        now: bool = True,
        last: bool = False,
    ) -> None:
        """Report the counts since the job began.

        `reasons`: rejected records by reason; `attrs`: edges that lost their attr; `read`: records read; `noted`: what
        else is said of events. If there never was anything, nothing is reported. `now`: even if it is not due.
        """
        self._has_counts = self._has_counts or bool(reasons or attrs or noted)
        if not self._has_counts:
            return
        self._reasons, self._attrs, self._read, self._noted = reasons, attrs, read, noted
        now_ms = time.time() * 1e3
        self.is_behind = self._status is not None
        if self._status is not None and (now or self._status.is_due(now_ms)):
            self._write(now_ms, last)

    def take(self) -> list[bytes]:
        """Blocks of records for the topic; none where there is a file."""
        return self._target.take() if isinstance(self._target, LetterQueue) else []

    @property
    def traffic(self) -> Traffic:
        """Messages for the topic."""
        return self._target.traffic if isinstance(self._target, LetterQueue) else Traffic()

    @property
    def dropped(self) -> int:
        """Letters that were dropped, across restarts too."""
        return self._dropped_before + (self._target.dropped if isinstance(self._target, DeadLetterFile) else 0)

    def _write(self, now_ms: float, last: bool) -> None:
        if self._status is not None:
            self.is_behind = False
            counts = {"reasons": self._reasons, "attrs": self._attrs, "read": self._read, "dropped": self.dropped}
            self._status.write({**counts, "noted": self._noted, LAST_STATUS: last, "time": now_ms / 1e3}, now_ms)


def _dropped_in(status: Mapping[str, Any]) -> int:
    return _count_in(status, "dropped")


def _count_in(status: Mapping[str, Any], name: str) -> int:
    found = status.get(name)
    return found if type(found) is int else 0


def read_reasons(out: Path) -> dict[str, int]:
    """Return the number of rejected records by reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for status in read_statuses(out, REASONS_PREFIX):
        found = status.get("reasons")
        counts.update({name: n for name, n in found.items() if type(n) is int} if isinstance(found, dict) else {})
    return dict(counts.most_common())


def read_noted(out: Path) -> dict[str, int]:
    """Return the counts of NOTED_AND_ALL since the job began; NOTED_LATE is 1 where they are not of all its life."""
    noted = [status.get("noted") for status in read_statuses(out, REASONS_PREFIX)]
    found = [one for one in noted if isinstance(one, dict)]
    return {name: sum(_count_in(one, name) for one in found) for name in (*NOTED_AND_ALL, NOTED_LATE)}


def read_counts(out: Path) -> ReadCounts:
    """Return the number of records read and rejected; nothing is counted before the first one is rejected."""
    read = sum(_count_in(status, "read") for status in read_statuses(out, REASONS_PREFIX))
    return ReadCounts(read, sum(read_reasons(out).values())) if read else ReadCounts()


def read_attrs(out: Path) -> int:
    """Return the number of edges with attr, which is checked and not kept."""
    return sum(_count_in(status, "attrs") for status in read_statuses(out, REASONS_PREFIX))


def read_dropped(out: Path) -> int:
    """Return the number of rejected records that are in no file any more, since the files have a limit."""
    return sum(_dropped_in(status) for status in read_statuses(out, STATUS_PREFIX))
