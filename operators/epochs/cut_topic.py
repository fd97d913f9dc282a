"""The cut log in a topic: where each epoch ends, committed before the epoch is sent, and obeyed after a restore.

For jobs whose checkpoints are on an object store: such a job may go on on another machine, and so must its cuts. The
topic has one partition. A record is a line that says whose it is, and a line for each of its cuts:

    {"format":1,"job":"0123456789abcdef","attempt":7,"run":2,"last":951,"release":4711}
    [951,40212,0,[[0,0,812,40212],[1,3,188,7731]],"5c0f2a91"]

`last` is the newest epoch of the log with this record. Records before the offset `release` hold cuts that no state
needs that is begun after this record. An attempt begins with a record without cuts.

Invariant: an epoch that any attempt has sent has one cut, which every later attempt obeys. An attempt fences the
channel before it reads: from then on nothing that an older one writes is ever committed. An older one hears of it
before it sends the epoch. Memory holds the cuts of one record: the others are read when a restore asks for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import orjson

from freshet.operators.epochs.cut import Cut, LostCutError
from freshet.operators.epochs.cut_segments import FencedError, ForeignLogError

FORMAT = 1
_LOOK_BACK = 8  # offsets: commits and aborts have some, too


class CutChannel(Protocol):
    """Records in order by offset, not all of which have one; one attempt writes, the newest that has fenced."""

    name: str

    def fence(self) -> None:
        """Take the right to write; what others have written and not committed is undone.

        Raises: OSError when nobody answers.
        """

    def write(self, record: bytes) -> int:
        """Commit a record; returns its offset.

        Raises:
            FencedError: another attempt has the right by now; the record will never be read.
            OSError: it can't be written.
        """

    def bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one after the last committed record."""

    def read(self, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The committed records from one offset to another."""

    def close(self) -> None:
        """Let go of all connections."""


class CutRecord(NamedTuple):
    """A record of the topic: whose it is, and its cuts."""

    offset: int
    attempt: int
    run: int
    last: int
    release: int
    cuts: tuple[Cut, ...]

    @property
    def first(self) -> int:
        """The first epoch that it has; of a record without cuts, the one after it."""
        return self.last + 1 - len(self.cuts)


def encode_record(job: str, record: CutRecord) -> bytes:
    """The record as bytes."""
    fields = {"format": FORMAT, "job": job} | {name: getattr(record, name) for name in _FIELDS}
    return orjson.dumps(fields) + b"\n" + b"".join(cut.encode() for cut in record.cuts)


_FIELDS = "attempt", "run", "last", "release"


def decode_record(name: str, job: str, offset: int, value: bytes) -> CutRecord:
    """Return the inverse of `encode_record`.

    Raises:
        LostCutError: it is no such record, or damaged.
        ForeignLogError: the log of another job.
    """
    header, *lines = value.split(b"\n")[:-1] or [b""]
    try:
        fields = orjson.loads(header)
        owner, (attempt, run, last, release) = fields["job"], [int(fields[one]) for one in _FIELDS]
        cuts = [Cut.decode(line) for line in lines]
        if fields["format"] != FORMAT or None in cuts:
            raise ValueError
        record = CutRecord(offset, attempt, run, last, release, tuple(cut for cut in cuts if cut is not None))
        if [cut.epoch for cut in record.cuts] != list(range(record.first, record.last + 1)):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        msg = f"{name}: the record at offset {offset} is none of a cut log of format {FORMAT}: {value[:80]!r}"
        raise LostCutError(msg) from None
    if job and owner != job:
        msg = f"{name}: the cut log of job {owner or '(without id)'}, expected that of job {job}"
        raise ForeignLogError(msg)
    return record


def newest_record(channel: CutChannel, job: str, before: int | None = None) -> CutRecord | None:
    """Return the last committed record, of those before an offset; None: there is none."""
    first, end = channel.bounds()
    end = end if before is None else min(end, before)
    back = _LOOK_BACK
    while end > first:
        begin = max(first, end - back)
        found = list(channel.read(begin, end))
        if found:
            return decode_record(channel.name, job, *found[-1])
        if begin == first:
            break
        back *= _LOOK_BACK
    return None


class CutTopic:
    """Cuts by epoch, in a topic.

    Args:
        channel: the topic; nothing was written by it.
        job: whose log it is.
        run: which `freshet run` of the job this is, so that none before it takes the log back; None: the last one.
    """

    retention = None  # the process that started the job deletes what no state needs

    def __init__(self, channel: CutChannel, job: str, run: int | None = None) -> None:
        """Take the log over from the attempt before.

        Raises:
            LostCutError, ForeignLogError: a record that is not this log's.
            FencedError: a later run has begun, or the next attempt at this moment.
            OSError: the brokers do not answer.
        """
        self.channel, self.job = channel, job
        self._of_later_run(run)  # before it is fenced: it would have to begin again
        channel.fence()
        newest = self._of_later_run(run)
        self.attempt = 1 if newest is None else newest.attempt + 1
        self.run = run if run is not None else newest.run if newest else 0
        self.last = 0 if newest is None else newest.last
        self._release = 0 if newest is None else newest.release
        self._settled: deque[tuple[int, int]] = deque()  # (epoch, offset of the record after it)
        self._record: CutRecord | None = None  # the one that was read last
        self._reading: Iterator[CutRecord] = iter(())
        self._next = self._write(())

    def _of_later_run(self, run: int | None) -> CutRecord | None:
        newest = newest_record(self.channel, self.job)
        if newest is not None and run is not None and newest.run > run:
            msg = f"run {newest.run} of the job has taken over {self.channel.name}; this is run {run}, and ends"
            raise FencedError(msg)
        return newest

    def append(self, cut: Cut) -> None:
        """Commit a cut: every later attempt reads it.

        Raises:
            LostCutError: not the epoch after the last one.
            FencedError: another attempt has taken the log over; the epoch must not be sent.
            OSError: it can't be written.
        """
        if cut.epoch != self.last + 1:
            msg = f"cut of epoch {cut.epoch} can't follow that of epoch {self.last}"
            raise LostCutError(msg)
        self._next = self._write((cut,))
        self.last = cut.epoch

    def _write(self, cuts: tuple[Cut, ...]) -> int:
        """Commit a record; returns the offset after it."""
        record = CutRecord(0, self.attempt, self.run, self.last + len(cuts), self._release, cuts)
        return self.channel.write(encode_record(self.job, record)) + 1

    def cut_of(self, epoch: int) -> Cut:
        """The cut of an epoch that the state has passed, or an earlier attempt has cut.

        Raises:
            LostCutError: the log does not have it.
        """
        if not 0 < epoch <= self.last:
            raise LostCutError(self._missing(epoch))
        if self._record is None or not self._record.first <= epoch <= self._record.last:
            self._record = self._read_on(epoch)
        return self._record.cuts[epoch - self._record.first]

    def _read_on(self, epoch: int) -> CutRecord:
        """The record of an epoch, which is mostly the next one."""
        if self._record is None or epoch != self._record.last + 1:
            at, end = self._find(epoch), self.channel.bounds()[1]
            self._reading = (self._decoded(one) for one in self.channel.read(at, end))
        for record in self._reading:
            if record.cuts and record.last >= epoch:
                if record.first > epoch:
                    raise LostCutError(self._missing(epoch, record.first))
                return record
        raise LostCutError(self._missing(epoch))

    def _find(self, epoch: int) -> int:
        """An offset from which on the first record with cuts has the epoch, or a later one."""
        low, end = self.channel.bounds()
        high = end
        while low < high:
            middle = (low + high) // 2
            found = next(iter(self.channel.read(middle, end)), None)
            if found is None or (record := self._decoded(found)).last >= epoch:
                high = middle
            else:
                low = record.offset + 1
        return low

    def _decoded(self, found: tuple[int, bytes]) -> CutRecord:
        return decode_record(self.channel.name, self.job, *found)

    def _missing(self, epoch: int, following: int | None = None) -> str:
        name = f"the cut log {self.channel.name}"
        if 0 < epoch <= self.last:
            gap = "" if following is None else f" (epoch {following} comes first)"
            return (
                f"{name} has no epoch {epoch} any more{gap}, and the state needs it: it is older than the checkpoints "
                "that were retained, or records of the topic were deleted; go on from a newer state, or start afresh "
                "from a snapshot"
            )
        return (
            f"{name} has no epoch {epoch}, but the state has passed it: records of the topic were lost; go on from an "
            "older state, or start afresh from a snapshot"
        )

    def settle(self, needed: int) -> None:
        """Note a sealed marker: later states need no cut up to epoch `needed`; the next records say so."""
        self._settled.append((self.last, self._next))
        while self._settled and self._settled[0][0] <= needed:
            self._release = self._settled.popleft()[1]

    def close(self) -> None:
        """Let go of the topic."""
        self.channel.close()
