"""The cut log of a simulated job, as a process finds it that starts again after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from freshet.operators.epochs.cut import Cut
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import KEPT, FencedError
from tests.support.simulation.simulator import Simulation
from tests.support.stages.cuts import newest_segment

ONE_SEGMENT = 1 << 20  # bytes: what an attempt cuts stands in one


def open_log(path: Path, segment_bytes: int = 1) -> CutLog:
    """The cut log in a folder; a marker ends each segment, and what is let go of is kept for the end, unreadable."""
    log = CutLog(path, keep=True, segment_bytes=segment_bytes)
    log._segments = [segment for segment in log._segments if segment.path.parent.name != KEPT]
    return log


def reopen(simulation: Simulation, path: Path, lost: Callable[[list[bytes]], None] | None = None) -> None:
    """What a process finds that starts anew: the cut log's files, and in turn one of two things.

    The last line is torn; or the process before, which was thought dead, cuts one epoch more and must not send it. One
    that lingers does so by itself.
    """
    before, is_dead = simulation.log, simulation.crashes % 2 == 1 and not simulation.lingers
    if before.last and not simulation.lingers:
        file = newest_segment(path)
        if lost is not None:
            lines = file.read_bytes().splitlines(keepends=True)
            cuts = lines[1:]
            lost(cuts)
            file.write_bytes(b"".join([lines[0], *cuts]))
        with file.open("ab") as torn:
            torn.write(b"[999,1" if is_dead else b"")
    end = before.cut_of(before.last).end if before.last and lost is None else None
    simulation.log = open_log(path, 1 if lost is None else ONE_SEGMENT)
    simulation.log.retention = simulation.checkpoints
    if simulation.lingers:
        return
    if is_dead or end is None:
        before.close()
        return
    try:
        before.append(Cut(before.last + 1, end, True))  # an empty epoch: a later attempt may obey it
    except FencedError:
        before.close()
    else:
        msg = "an attempt that was thought dead has cut an epoch"
        raise AssertionError(msg)
