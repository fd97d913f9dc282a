"""Share of each lane of the input in an epoch, as the cut log records it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import orjson
from crc32c import crc32c

from freshet.errors import InputError

Lane = tuple[int, int]  # source and partition of a Kafka topic
FILES: Lane = (-1, 0)  # all files, which are read one after the other
UNKNOWN = -1  # position of a share that says none


def lane_of(source: int, partition: int, topics: frozenset[int]) -> Lane:
    """The lane that a partition of a source is in; `topics` are the sources that are Kafka topics."""
    return (source, partition) if source in topics else FILES


class LostCutError(InputError):
    """Epochs can't be cut again as they were: the cut log misses one, or the input has changed since."""


class ForeignStateError(InputError):
    """A checkpoint or savepoint belongs to another job."""


def refuse_foreign(owner: str, job: str) -> None:
    """Make sure that a state is this job's, as far as both say whose they are.

    Raises:
        ForeignStateError: it is not.
    """
    if owner and job and owner != job:
        msg = f"the state is that of job {owner}, expected one of job {job}: give --resume a state of this job"
        raise ForeignStateError(msg)


class Share(NamedTuple):
    """Number of events of a lane in an epoch; the record of the last of them ends before `position`.

    `source` and `partition` are those of that last event. For a partition of a topic that is the lane; an epoch has one
    share of all files together, whichever of them it ends in. The number decides the contents of the epoch, since a
    message may have many events and an epoch may end within it; the position shows that these are the same events as
    before.
    """

    source: int
    partition: int
    events: int
    position: int = UNKNOWN


class Cut(NamedTuple):
    """Epoch `epoch` holds the accepted events up to number `end` since the job began; a `marker` is swept after.

    `shares`: how many of them each lane has, in ascending order; lanes without are not named. Without any share all
    are of files. `flush`: it ends an interval of the coalesced output. `publish`: the files of the change log close
    after it, whether it is a marker or not. `arrived_ms`: when the last of its events came to the Parser, 0 where it
    has none or an earlier version has cut it. Events that are read again come later, and the epoch keeps its time.
    """

    epoch: int
    end: int
    marker: bool
    shares: tuple[Share, ...] = ()
    flush: bool = False
    publish: bool = False
    arrived_ms: int = 0

    def encode(self) -> bytes:
        """The cut as a line, with its checksum at the end."""
        flags = self.marker | self.flush << 1 | self.publish << 2
        entry = [self.epoch, self.end, flags, [tuple(share) for share in self.shares]]
        fields = orjson.dumps([*entry, self.arrived_ms] if self.arrived_ms else entry)
        return b'%b,"%08x"]\n' % (fields[:-1], crc32c(fields))

    @staticmethod
    def decode(line: bytes) -> Cut | None:
        """Return the inverse of `encode`; None if it is no cut, or damaged.

        Earlier versions wrote no times, and those before them no checksums.
        """
        try:
            fields = orjson.loads(line)
            checksum = [fields.pop()] if isinstance(fields[-1], str) else []
            if checksum and checksum != [f"{crc32c(orjson.dumps(fields)):08x}"]:
                return None
            epoch, end, flags, shares, *times = fields
            (arrived_ms,) = times or [0]
            found = tuple(Share(*map(int, share)) for share in shares)
            marks = bool(flags & 1), found, bool(flags & 2), bool(flags & 4)
            return Cut(int(epoch), int(end), *marks, int(arrived_ms))
        except (ValueError, TypeError, LookupError, AttributeError):
            return None


class AnyCutLog(Protocol):
    """Log of cuts: a cut is in it before its epoch is sent, and decides after a restore.

    Contract: one attempt writes; an older one fails at its next `append`, which no later attempt then reads.
    """

    job: str
    last: int
    """The newest epoch that it has."""

    def append(self, cut: Cut) -> None:
        """Write the cut of the next epoch, so that every later attempt reads it.

        Raises:
            FencedError: another attempt has taken the log over; the epoch must not be sent.
            OSError: it can't be written.
        """

    def cut_of(self, epoch: int) -> Cut:
        """The cut of an epoch.

        Raises: LostCutError where the log does not have it.
        """

    def settle(self, needed: int) -> None:
        """Note a sealed marker: later states need no cut up to epoch `needed`."""

    def close(self) -> None:
        """Let go of its files or connections."""
