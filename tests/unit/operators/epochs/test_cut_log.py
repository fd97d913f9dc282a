"""The cut log on disk: whole lines, one writer, bounded in memory and files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from freshet.operators.epochs.cut import Cut, LostCutError
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import FencedError, ForeignLogError, newest_attempt, segments_in
from freshet.operators.epochs.retention import Commits
from tests.support.stages.cuts import CUTS, lines, newest_segment, reopened, written

# -- lines ------------------------------------------------------------------------------------------------------------


def test_cuts_come_back(tmp_path: Path) -> None:
    written(tmp_path / "checkpoints" / "cuts").close()
    log = reopened(tmp_path / "checkpoints" / "cuts")
    assert list(log.cuts.values()) == CUTS
    assert log.last == 4
    assert log.cut_of(2) == CUTS[1]


def test_a_cut_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A SIGKILL right after `append` loses nothing."""
    log = written(tmp_path / "cuts")
    assert newest_segment(tmp_path / "cuts").read_text().splitlines()[1:] == [
        '[1,10,0,[[0,0,10,12]],"9ec259f7"]',
        '[2,17,1,[],"4e5d9d76"]',
        '[3,17,0,[],"bd1a897f"]',
        '[4,30,2,[],"39de9379"]',
    ]
    log.close()


def test_a_cut_keeps_the_time_of_its_last_event(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()
    log, timed = reopened(tmp_path / "cuts"), Cut(5, 40, True, arrived_ms=1_700_000_000_123)
    log.append(timed)
    log.close()
    again = reopened(tmp_path / "cuts")
    assert [*again.cuts.values()] == [*CUTS, timed]
    assert Cut.decode(timed.encode().replace(b"123", b"124")) is None
    assert Cut.decode(b'[5,40,1,[],7,8,"00000000"]') is None


def test_the_lines_of_a_version_without_times_are_read(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()
    change(tmp_path / "cuts", lambda found: found.__setitem__(0, found[0].replace('"format":4', '"format":3')))
    assert [*CutLog(tmp_path / "cuts").cuts.values()] == CUTS


def test_the_lines_of_a_version_without_checksums_are_read(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()

    def as_before(found: list[str]) -> None:
        found[:] = [
            found[0].replace('"format":4', '"format":2'),
            *(f"{line[: line.rindex(',')]}]\n" for line in found[1:]),
        ]

    change(tmp_path / "cuts", as_before)
    assert lines(tmp_path / "cuts")[0] == "[1,10,0,[[0,0,10,12]]]"
    log = CutLog(tmp_path / "cuts")
    assert list(log.cuts.values()) == CUTS
    log.append(Cut(5, 40, True))
    log.close()
    assert reopened(tmp_path / "cuts").last == 5


@pytest.mark.parametrize("seed", range(100))
def test_no_flipped_bit_is_taken(tmp_path: Path, seed: int) -> None:
    """Only the end of the last line may be lost, as by a kill: more is an error, and no cut is another one."""
    written(tmp_path / "cuts").close()
    segment, draw = newest_segment(tmp_path / "cuts"), random.Random(seed)
    data = bytearray(segment.read_bytes())
    for at in draw.sample(range(8 * len(data)), 3):
        data[at // 8] ^= 1 << at % 8
    segment.write_bytes(data)
    try:
        found = list(CutLog(tmp_path / "cuts").cuts.values())
    except (LostCutError, ForeignLogError):
        return
    assert found in (CUTS, CUTS[:-1])


def test_a_last_line_without_its_end_alone_is_damaged(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()
    segment = newest_segment(tmp_path / "cuts")
    segment.write_bytes(segment.read_bytes()[:-1] + b"\x0b")
    with pytest.raises(LostCutError, match="the last line ends with"):
        CutLog(tmp_path / "cuts")


@pytest.mark.parametrize("path", [None, "cuts"])
def test_before_the_first_cut(tmp_path: Path, path: str | None) -> None:
    log = CutLog(tmp_path / path if path else None)
    assert (log.first, log.last, log.cuts) == (1, 0, {})
    with pytest.raises(LostCutError, match="has no epoch 1, but the state has passed it"):
        log.cut_of(1)
    log.close()


@pytest.mark.parametrize("torn", ["[", "[5,31", "[5,31,0,[]]"])
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "cuts"
    written(path).close()
    with newest_segment(path).open("a") as file:
        file.write(torn)
    log = CutLog(path)
    assert log.last == 4
    log.append(Cut(5, 40, True))
    log.close()
    again = reopened(path)
    assert (again.last, again.cut_of(4), again.cut_of(5)) == (5, CUTS[3], Cut(5, 40, True))


def test_a_segment_without_a_whole_first_line_has_no_cuts(tmp_path: Path) -> None:
    path = tmp_path / "cuts"
    written(path).close()
    newest = newest_attempt(path)
    assert newest is not None
    (newest.path / f"cuts-{newest.number:09}-{5:015}.jsonl").write_bytes(b'{"form')
    log = CutLog(path)
    log.append(Cut(5, 40, True))
    log.close()
    assert list(reopened(path).cuts.values()) == [*CUTS, Cut(5, 40, True)]


def change(path: Path, edit: Callable[[list[str]], Any]) -> None:
    found = newest_segment(path).read_text().splitlines(keepends=True)
    edit(found)
    newest_segment(path).write_text("".join(found))


def test_a_gap_is_refused_when_it_is_read(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()
    change(tmp_path / "cuts", lambda found: found.pop(2))
    with pytest.raises(LostCutError, match="epoch 3 follows epoch 1; the cut log has lost an entry"):
        CutLog(tmp_path / "cuts")


def test_a_lost_segment_is_refused(tmp_path: Path) -> None:
    for epoch in range(1, 4):  # three attempts
        log = CutLog(tmp_path / "cuts")
        log.append(Cut(epoch, epoch, True))
        log.close()
    newest = newest_attempt(tmp_path / "cuts")
    assert newest is not None
    segments_in(newest.path)[1].path.unlink()
    with pytest.raises(LostCutError, match="epoch 3 follows epoch 1; the cut log has lost an entry"):
        CutLog(tmp_path / "cuts")


def test_a_line_that_is_no_cut_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "cuts").close()
    change(tmp_path / "cuts", lambda found: found.__setitem__(2, "[2,1\x00\x00\n"))
    with pytest.raises(LostCutError, match="line 3 is no cut"):
        CutLog(tmp_path / "cuts")


def test_another_format_and_another_job_are_refused(tmp_path: Path) -> None:
    log = CutLog(tmp_path / "cuts", "one")
    log.append(CUTS[0])
    log.close()
    with pytest.raises(ForeignLogError, match="the cut log of job one, expected that of job two"):
        CutLog(tmp_path / "cuts", "two")
    change(tmp_path / "cuts", lambda found: found.__setitem__(0, found[0].replace('"format":4', '"format":5')))
    with pytest.raises(LostCutError, match="expected a cut log of format 4"):
        CutLog(tmp_path / "cuts", "one")


def test_a_folder_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.operators.epochs.cut_segments._PATIENCE_S", 0.05)
    (tmp_path / "cuts").mkdir()
    (tmp_path / "cuts" / "file").touch()
    with pytest.raises(LostCutError, match="expected a cut log"):
        CutLog(tmp_path / "cuts")
    assert [one.name for one in tmp_path.iterdir()] == ["cuts"], "nothing is left behind"


def test_only_the_next_epoch_can_be_cut(tmp_path: Path) -> None:
    log = written(tmp_path / "cuts")
    for epoch in (4, 6):
        with pytest.raises(LostCutError, match=f"cut of epoch {epoch} can't follow that of epoch 4"):
            log.append(Cut(epoch, 50, False))
    log.close()


def test_an_epoch_that_the_log_does_not_have_is_named(tmp_path: Path) -> None:
    log = written(tmp_path / "cuts")
    with pytest.raises(LostCutError, match=r"cuts has no epoch 5, but the state has passed it"):
        log.cut_of(5)
    log.close()
    log.close()


# -- a disk that is full ----------------------------------------------------------------------------------------------


class FullDisk:
    """`os.write` that has room for so many bytes more."""

    def __init__(self, room: int, then_error: bool) -> None:
        self.room, self._then_error, self._write = room, then_error, os.write

    def __call__(self, file: int, data: bytes) -> int:
        if not self.room and self._then_error:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 5, 10])
@pytest.mark.parametrize("then_error", [True, False])
def test_a_short_write_fails_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, then_error: bool
) -> None:
    log = written(tmp_path / "cuts")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(room, then_error))
        with pytest.raises(OSError, match=r"No space left|nothing more can be written"):
            log.append(Cut(5, 1000, False))
    assert log.last == 4, "the epoch was not cut"
    assert newest_segment(tmp_path / "cuts").read_bytes().endswith(Cut(4, 30, False, flush=True).encode())
    log.append(Cut(5, 31, False))  # there is room again
    log.close()
    assert reopened(tmp_path / "cuts").cut_of(5).end == 31


def test_a_segment_that_has_no_room_for_its_first_line_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CutLog(tmp_path / "cuts")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(7, then_error=True))
        with pytest.raises(OSError, match="No space left"):
            log.append(CUTS[0])
    log.append(CUTS[0])
    log.close()
    assert list(reopened(tmp_path / "cuts").cuts.values()) == CUTS[:1]


def test_a_write_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = written(tmp_path / "cuts"), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:3]))
        log.append(Cut(5, 31, False))
    log.close()
    assert reopened(tmp_path / "cuts").cut_of(5) == Cut(5, 31, False)


# -- one writer -------------------------------------------------------------------------------------------------------


def test_an_older_attempt_fails_at_its_next_cut_and_changes_nothing(tmp_path: Path) -> None:
    old = written(tmp_path / "cuts")
    new = CutLog(tmp_path / "cuts")
    assert (old.attempt, new.attempt, new.last) == (1, 2, 4)
    new.append(Cut(5, 40, False))
    with pytest.raises(FencedError, match=r"attempt 2 \(run 0\) of the job has taken over from attempt-000000001-"):
        old.append(Cut(5, 99, True))
    new.append(Cut(6, 50, False))
    for _ in range(3):
        with pytest.raises(FencedError):
            old.append(Cut(old.last + 1, 100, True))
    old.close()
    new.close()
    assert [cut.end for cut in reopened(tmp_path / "cuts").cuts.values()] == [10, 17, 17, 30, 40, 50]


def test_an_older_attempt_that_has_cut_nothing_yet_creates_nothing(tmp_path: Path) -> None:
    old = CutLog(tmp_path / "cuts")
    new = CutLog(tmp_path / "cuts")
    with pytest.raises(FencedError):
        old.append(CUTS[0])
    new.append(Cut(1, 3, False))
    assert list(new.cuts.values()) == [Cut(1, 3, False)]
    new.close()


def test_what_was_cut_before_the_takeover_is_obeyed_and_what_comes_after_it_is_not(tmp_path: Path) -> None:
    """The old attempt wrote epoch 5 and was stopped before it could send it; it goes on much later."""
    old = written(tmp_path / "cuts")
    os.write(old._writer._file, Cut(5, 33, False).encode())  # type: ignore[union-attr]
    new = CutLog(tmp_path / "cuts")
    assert new.cut_of(5).end == 33
    os.write(old._writer._file, Cut(6, 66, False).encode())  # type: ignore[union-attr]
    new.append(Cut(6, 44, False))
    new.close()
    third = reopened(tmp_path / "cuts")
    assert [cut.end for cut in third.cuts.values()] == [10, 17, 17, 30, 33, 44]


def test_an_older_attempt_lets_nothing_go(tmp_path: Path) -> None:
    commits = Commits()
    old = CutLog(tmp_path / "cuts", retention=commits, segment_bytes=1)
    for epoch in range(1, 6):
        old.append(Cut(epoch, epoch, True))
        old.settle(0)
    new = CutLog(tmp_path / "cuts")
    old.settle(4)
    commits.begin()
    commits.commit(1)
    with pytest.raises(FencedError):
        old.settle(4)
    assert list(new.cuts) == [1, 2, 3, 4, 5]


def test_an_earlier_run_that_is_restarted_does_not_take_the_log_back(tmp_path: Path) -> None:
    """A job on a cluster, whose client was killed, lives on beside the one that was resumed."""
    CutLog(tmp_path / "cuts", run=3)
    new = CutLog(tmp_path / "cuts", run=4)
    with pytest.raises(FencedError, match=r"run 4 of the job has taken over .* this is run 3, and ends"):
        CutLog(tmp_path / "cuts", run=3)
    new.append(CUTS[0])
    new.close()
    assert CutLog(tmp_path / "cuts", run=4).last == 1
    assert CutLog(tmp_path / "cuts").last == 1, "who does not say is of the last run"


def cuts_in_a_process(path: Path, pipe: Connection) -> None:
    """Cuts epochs as fast as it can, each of one event more; tells of each before it would be sent."""
    try:
        log = CutLog(path)
        end = log.cut_of(log.last).end if log.last else 0
        while True:
            end += log.attempt
            log.append(Cut(log.last + 1, end, False))
            pipe.send(("sent", log.last, end))
    except FencedError as error:
        pipe.send(("fenced", str(error)))


def test_processes_that_were_thought_dead(tmp_path: Path) -> None:
    """Each is stopped by SIGSTOP and goes on after the next one has begun: what any of them has sent comes back."""
    spawn, sent = multiprocessing.get_context("fork"), dict[int, int]()
    running: list[tuple[Any, Connection]] = []
    fenced = 0

    def hear(pipe: Connection) -> None:
        nonlocal fenced
        while pipe.poll(0):
            try:
                kind, *told = pipe.recv()
            except EOFError:
                return
            if kind == "sent":
                assert sent.setdefault(told[0], told[1]) == told[1], f"epoch {told[0]} was sent with two ends"
            fenced += kind == "fenced"

    try:
        for _ in range(6):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=cuts_in_a_process, args=(tmp_path / "cuts", theirs))
            process.start()
            theirs.close()
            running.append((process, ours))
            before = len(sent)
            while len(sent) < before + 10:  # it has begun: else the ones before it would not be fenced
                assert ours.poll(60) and process.is_alive()
                hear(ours)
            os.kill(process.pid, signal.SIGSTOP)
            for other, pipe in running[:-1]:
                hear(pipe)
                with suppress(ProcessLookupError):  # it has found out, and ended
                    os.kill(other.pid, signal.SIGCONT)
        for process, pipe in running[:-1]:
            deadline = time.monotonic() + 60
            while process.is_alive() and time.monotonic() < deadline:
                hear(pipe)
                time.sleep(0.01)
            assert not process.is_alive(), "it goes on cutting"
            hear(pipe)
    finally:
        for process, _ in running:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()
    hear(running[-1][1])  # who comes to its end, also where something has had it go on
    assert fenced == 5
    log = reopened(tmp_path / "cuts")
    assert len(sent) > 20
    assert {epoch: log.cut_of(epoch).end for epoch in sent} == sent
