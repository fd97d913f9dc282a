"""The cut log: where each epoch ends, written before the epoch is sent, and obeyed after a restore.

So an epoch that a reader, a file or a topic has seen comes back as it was, even if the clock had cut it. On disk it is
a folder of segments (see operators/epochs/cut_segments.py). A cut is one JSON line, appended whole and handed to the
operating system, so it survives a SIGKILL. From the next marker on it is on the disk, and survives a power loss as
well.

Invariant: an epoch that any attempt has sent has one cut, which every later attempt obeys. An attempt takes the log
over by renaming its folder before it reads; an older one looks for the folder after it has written a cut and before it
sends the epoch. So either the newer attempt reads that cut, or the older one fails and has sent nothing.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from freshet.operators.epochs.cut import Cut, LostCutError
from freshet.operators.epochs.cut_segments import (
    KEPT,
    CutSegment,
    FencedError,
    SegmentWriter,
    newest_attempt,
    read_segment,
    segments_in,
    take_over,
)
from freshet.operators.epochs.retention import Retention

SEGMENT_BYTES = 1 << 20
_PENDING_MAX = 64
_COPY_TRIES = 20


class CutLog:
    """Cuts by epoch: in memory, or with a path in a folder of which memory holds one segment at most.

    Args:
        job: whose log it is ("": not asked).
        run: which `freshet run` of the job this is, so that none before it takes the log back; None: the last one.
        keep: move cuts that no state needs any more to `kept/`, instead of deleting them.
        retention: finds the states that can still be restored; None: unknown, so everything stays.
        segment_bytes: a segment of this size ends at the next marker.
    """

    def __init__(
        self,
        path: Path | None = None,
        job: str = "",
        *,
        run: int | None = None,
        keep: bool = False,
        retention: Retention | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Take the log over from the attempt before.

        Raises:
            LostCutError: it misses cuts, or is damaged.
            ForeignLogError: it is another job's.
            FencedError: a later run has begun, or the next attempt at this moment.
        """
        self.path, self.job, self.retention = path, job, retention
        self._keep, self._segment_bytes = keep, segment_bytes
        self._cuts: dict[int, Cut] = {}  # without a path all; with one those of the segment that was read last
        self._segments: list[CutSegment] = []
        self._writer: SegmentWriter | None = None
        self._pending: deque[tuple[int, object]] = deque()  # (epoch, note): a state behind the note needs none up to it
        self.attempt, self.last = 0, 0
        if path is not None:
            self.attempt, _, self._folder = take_over(path, run)
            try:
                self._open(path)
            except FileNotFoundError:
                raise FencedError.of(self._folder) from None

    def _open(self, path: Path) -> None:
        live = segments_in(self._folder)
        names = {one.path.name for one in live}  # a copy may have a segment twice
        kept = [one for one in segments_in(path / KEPT) if one.path.name not in names]
        self._segments = sorted([*kept, *live], key=lambda one: (one.first, one.attempt))
        follows = {one: following.first - 1 for one, following in pairwise(self._segments)}
        self.last = live[0].first - 1 if live else 0
        for segment in live:  # those that were kept are read when a state asks for them
            if segment.first != self.last + 1:
                msg = f"{path}: epoch {segment.first} follows epoch {self.last}; the cut log has lost an entry"
                raise LostCutError(msg)
            self._cuts = read_segment(segment, follows.get(segment), self.job)
            self.last = max(self._cuts, default=self.last)

    @property
    def cuts(self) -> dict[int, Cut]:
        """All cuts that the log has, also the kept ones; reads every file."""
        if self.path is None:
            return self._cuts
        return all_cuts(self._segments, self.job)

    @property
    def first(self) -> int:
        """The oldest epoch that the log has, 1 before the first."""
        if self.path is None:
            return min(self._cuts, default=1)
        return self._segments[0].first if self._segments else 1

    def append(self, cut: Cut) -> None:
        """Write a cut; the operating system has it when this returns, and no newer attempt had begun before.

        Raises:
            LostCutError: not the epoch after the last one.
            FencedError: another attempt has taken the log over; the epoch must not be sent.
            OSError: it can't be written whole (and then is not there at all).
        """
        if cut.epoch != self.last + 1:
            msg = f"cut of epoch {cut.epoch} can't follow that of epoch {self.last}"
            raise LostCutError(msg)
        if self.path is None:
            self._cuts[cut.epoch] = cut
        else:
            if self._writer is None:
                self._writer = SegmentWriter(self._folder, self.attempt, cut.epoch, self.job)
                self._segments.append(self._writer.segment)
            self._writer.write(cut.encode())
        self.last = cut.epoch

    def cut_of(self, epoch: int) -> Cut:
        """The cut of an epoch that the state has passed, or an earlier attempt has cut.

        Raises:
            LostCutError: the log does not have it.
            FencedError: another attempt has taken the log over.
        """
        if self.path is not None and epoch not in self._cuts and 0 < epoch <= self.last:
            at = bisect_right(self._segments, epoch, key=lambda one: one.first) - 1
            if at >= 0:
                until = self._segments[at + 1].first - 1 if at + 1 < len(self._segments) else None
                try:
                    self._cuts = read_segment(self._segments[at], until, self.job)
                except FileNotFoundError:
                    raise FencedError.of(self._folder) from None
        cut = self._cuts.get(epoch)
        if cut is None:
            raise LostCutError(self._missing(epoch))
        return cut

    def _missing(self, epoch: int) -> str:
        name = f"the cut log{f' {self.path}' if self.path else ''}"
        if epoch < self.first <= self.last:
            return (
                f"{name} begins at epoch {self.first}, but the state needs epoch {epoch}: it is older than the "
                "checkpoints that were retained, and cuts behind those are deleted unless the job runs with "
                "`keep-cuts: true` in --config; go on from a newer state, or start afresh from a snapshot"
            )
        return (
            f"{name} has no epoch {epoch}, but the state has passed it: "
            "restore the log beside the checkpoints, or start afresh from a snapshot"
        )

    def settle(self, needed: int) -> None:
        """Note a sealed marker: later states need no cut up to epoch `needed`.

        The cuts so far are synced; those that no state needs any more are deleted, in whole segments.
        """
        if self.path is None:
            return
        if self._writer is not None:
            self._writer.sync()
            if self._writer.size >= self._segment_bytes:
                self._writer.close()
                self._writer = None
        if self.retention is None:
            return
        note = self.retention.note()
        self._pending.append((needed, note))
        if len(self._pending) > _PENDING_MAX:  # no checkpoint for long
            self._pending = deque(one for number, one in enumerate(self._pending) if number % 2 == 0)
        behind = 0
        while self._pending and self.retention.has_passed(self._pending[0][1]):
            behind, _ = self._pending.popleft()
        self._release(behind)

    def _release(self, epoch: int) -> None:
        """Let go of the segments whose epochs are all up to this one."""
        gone = [one for one, following in pairwise(self._segments) if following.first <= epoch + 1]
        live = [one for one in gone if one.path.parent == self._folder]
        try:
            for segment in live:
                if self._keep:
                    kept = self.path / KEPT  # type: ignore[operator]
                    kept.mkdir(exist_ok=True)
                    segment.path.rename(kept / segment.path.name)
                else:
                    segment.path.unlink()
        except FileNotFoundError:
            raise FencedError.of(self._folder) from None
        if self._keep:
            moved = {one: one._replace(path=self.path / KEPT / one.path.name) for one in live}  # type: ignore[operator]
            self._segments = [moved.get(one, one) for one in self._segments]
        else:
            self._segments = [one for one in self._segments if one not in live]

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def all_cuts(segments: list[CutSegment], job: str = "") -> dict[int, Cut]:
    """The cuts of segments in order, each up to where the next one begins."""
    found: dict[int, Cut] = {}
    for segment, following in zip(segments, [*segments[1:], None], strict=False):
        found |= read_segment(segment, following.first - 1 if following else None, job)
    return found


def copy_log(log: Path, copy: Path) -> None:
    """Copy a log, which a running job may write to at this moment; without one, do nothing."""
    for _ in range(_COPY_TRIES):
        newest = newest_attempt(log)
        if newest is None:
            continue
        shutil.rmtree(copy, ignore_errors=True)
        with suppress(FileNotFoundError, shutil.Error):  # the job lets go of a segment, or is taken over: once more
            shutil.copytree(newest.path, copy / newest.path.name)
            if (log / KEPT).is_dir():  # after the live ones: a segment moves from there to here
                shutil.copytree(log / KEPT, copy / KEPT)
            return
