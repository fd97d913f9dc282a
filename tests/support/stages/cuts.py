"""What a cut log says, for tests: running ends, copies, and files to break."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from freshet.operators.epochs.cut import FILES, Cut, Lane, Share
from freshet.operators.epochs.cut_log import CutLog, copy_log
from freshet.operators.epochs.cut_segments import newest_attempt, segments_in

CUTS = [Cut(1, 10, False, (Share(0, 0, 10, 12),)), Cut(2, 17, True), Cut(3, 17, False), Cut(4, 30, False, flush=True)]


def written(path: Path) -> CutLog:
    """A log of `CUTS`, still open."""
    log = CutLog(path)
    for cut in CUTS:
        log.append(cut)
    return log


def reopened(path: Path) -> CutLog:
    """The log as the next attempt finds it."""
    log = CutLog(path)
    log.close()
    return log


def ends_by_epoch(log: CutLog, topics: Sequence[int]) -> dict[int, dict[Lane, int]]:
    """How many events of each lane the epochs up to each one hold."""
    found: dict[int, dict[Lane, int]] = {0: {FILES: 0}}
    ends = dict(found[0])
    for epoch, cut in log.cuts.items():
        ends = dict(ends)
        for share in cut.shares:
            lane = (share.source, share.partition) if share.source in topics else FILES
            ends[lane] = ends.get(lane, 0) + share.events
        ends[FILES] += cut.end - sum(ends.values())  # a cut without shares is one of files
        found[epoch] = ends
    return found


def copied(log: CutLog, last: int | None = None) -> CutLog:
    """The same cuts in memory, up to epoch `last`."""
    copy = CutLog()
    for cut in log.cuts.values():
        if last is None or cut.epoch <= last:
            copy.append(cut)
    return copy


def lay(source: Path, target: Path, job: str) -> None:
    """Give a new job the cuts of another one's log, which is left as it is."""
    with TemporaryDirectory() as folder:
        copy_log(source, Path(folder) / "cuts")
        log, laid = CutLog(Path(folder) / "cuts"), CutLog(target, job)
        for cut in log.cuts.values():
            laid.append(cut)
        log.close()
        laid.close()


def newest_segment(log: Path) -> Path:
    """The file that was written to last."""
    newest = newest_attempt(log)
    assert newest is not None
    return segments_in(newest.path)[-1].path


def lines(log: Path) -> list[str]:
    """The cuts in the segments that are not kept aside, as they are written, without their checksums."""
    newest = newest_attempt(log)
    assert newest is not None
    found = [line for one in segments_in(newest.path) for line in one.path.read_text().splitlines()[1:]]
    return [re.sub(r',"[0-9a-f]{8}"]$', "]", line) for line in found]
