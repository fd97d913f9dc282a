"""The files of epochs/: few, each epoch in one of them at every moment, the same after any kill."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.control import PUBLISH
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog, ChangeLogError
from freshet.operators.sink.epoch_files import TIMES
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from freshet.operators.stage import Stage
from freshet.state.codec import encode
from tests.support.stages.sunk import WIDTH, block, control, digest, log_of, sink_of

EPOCHS = 60
MARKER = 18  # within a file of epochs


def seen(out: Path) -> list[int]:
    """The epochs that a reader finds who lists the folder and then opens what it has found."""
    paths = sorted(path for path in (out / "epochs").glob("*.parquet") if path.name[0] not in "._")
    return [epoch for path in paths for epoch in epochs_of(path)]


def blocks() -> list:
    """Epochs of none to three positions, some of which publish, every ninth a marker."""
    rng = random.Random(5)
    out = []
    for epoch in range(EPOCHS + 1):
        marker = epoch // 9 if epoch and epoch % 9 == 0 else -1
        flags = PUBLISH if rng.random() < 0.3 else 0
        places = [(0, part, 10 * epoch, 3) for part in range(rng.randint(0, 3))]
        out.append(block(epoch, [1, 2], control=control(marker=marker, flags=flags), positions=places))
    return out


class Killed(BaseException):
    """The process is gone."""


class Life:
    """A Sink in its stage; `entries` is what survives it."""

    def __init__(self, out: Path, clock_ms: Callable[[], float] = lambda: 0.0) -> None:
        self.out, self.entries, self.clock_ms = out, dict[str, bytes](), clock_ms

    def run(self, data: list, end: int) -> None:
        """From where the state stands up to an epoch, or to a kill."""
        sink = sink_of(self.out, group_rows=10, clock_ms=self.clock_ms)
        stage = Stage("sink", sink, 1)
        stage.restore(self.entries.items())
        try:
            for epoch in range(stage.epoch + 1, end + 1):
                outcome = stage.act(stage.offer(encode(data[epoch].header, data[epoch].columns)))
                self.entries |= dict(outcome.puts)
                for key in outcome.deletes:
                    self.entries.pop(key, None)
            log_of(sink).writer.wait()
        except ChangeLogError as error:
            sink.close(write=False) if not isinstance(error.__cause__, Killed) else log_of(sink).writer._queue.put(None)
            raise
        sink.close()


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, str]:
    Life(tmp_path / "calm").run(blocks(), EPOCHS)
    assert seen(tmp_path / "calm") == sorted(seen(tmp_path / "calm"))
    return digest(tmp_path / "calm")


def test_a_group_of_log_files_shares_one(tmp_path: Path, expected: dict[str, str]) -> None:
    groups = sorted((tmp_path / "calm/epochs").iterdir())
    assert 5 < len(groups) < len(list((tmp_path / "calm/embeddings").iterdir())) / 2
    rows = [pq.read_metadata(path).num_rows for path in groups]
    assert all(10 <= count < 10 + 9 * 3 for count in rows[:-1])
    table = pa.concat_tables([pq.read_table(path) for path in groups])
    assert sorted(set(table["epoch"].to_pylist())) == list(range(1, EPOCHS + 1))


@pytest.mark.parametrize("call", ["open", "write", "fdatasync", "fsync", "replace"])
def test_a_kill_at_any_call_leaves_each_epoch_once_and_comes_to_the_same_files(
    tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Before the call and after it, at every one that the writer makes; then once more in the replay."""
    before, real = os.__dict__[call], itertools.count
    kills = 0
    for nth in range(0, 44, 4):
        out = tmp_path / f"{call}-{nth}"
        life = Life(out)
        for attempt, after in ((0, nth % 8 == 0), (1, nth % 8 == 4)):
            left = real(nth + 3 * attempt, -1)

            def dies(*args, left=left, after=after, **options):
                if threading.current_thread().name != "freshet-change-log":
                    return before(*args, **options)
                count = next(left)
                if count == 0 and after:
                    before(*args, **options)
                if count <= 0:
                    raise Killed
                return before(*args, **options)

            visible = seen(out) if attempt else []
            monkeypatch.setattr(os, call, dies)
            try:
                life.run(blocks(), EPOCHS)
            except ChangeLogError as error:
                assert isinstance(error.__cause__, Killed)
                kills += 1
            finally:
                monkeypatch.setattr(os, call, before)
            found = seen(out)
            assert sorted(set(found)) == list(range(1, max(found, default=0) + 1)), "none is missing"
            assert found == sorted(found), "none stands in two files"
            assert found[: len(visible)] == visible, "what was seen is seen for good"
        life.run(blocks(), EPOCHS)
        assert digest(out) == expected
    assert kills > 10


def test_a_reader_at_any_moment_finds_each_epoch_once(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, group_rows=25)
    done, looks = threading.Event(), []

    def look() -> None:
        while not done.is_set():
            looks.append(seen(tmp_path))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for epoch in range(1, 151):
            sink.apply(epoch, [block(epoch, [1], control=control(flags=PUBLISH))])
            enough, deadline = len(looks) + 4 * (epoch % 10 == 0), time.monotonic() + 60
            while len(looks) < enough:  # two of one reader, of which the second began now
                assert time.monotonic() < deadline
                time.sleep(0.001)
        log_of(sink).writer.wait()
    finally:
        done.set()
        for reader in readers:
            reader.join(60)
        sink.close()
    for one in looks:
        assert one == list(range(1, len(one) + 1))
    assert len({len(one) for one in looks}) > 10
    assert len(list((tmp_path / "epochs").iterdir())) == 6


def stopped(out: Path, marker: int) -> tuple[Life, Path]:
    """A job that was stopped a while after a marker, and the file that goes on behind that."""
    life = Life(out)
    life.run(blocks(), marker + 13)
    (path,) = (path for path in (out / "epochs").iterdir() if {marker, marker + 1} <= set(epochs_of(path)))
    return life, path


def epochs_of(path: Path) -> list[int]:
    return pq.read_table(path)["epoch"].to_pylist()


def rows_seen(out: Path) -> list[dict]:
    return pa.concat_tables([pq.read_table(path) for path in sorted((out / "epochs").glob("*.parquet"))]).to_pylist()


def test_times_that_were_seen_stay_after_a_restore(tmp_path: Path) -> None:
    """Each attempt has its own clock; a replay does not change what a file shows, and new rows have newer times."""
    clock = itertools.count(1_000_000)
    life, data, shown = Life(tmp_path, lambda: float(next(clock))), blocks(), []
    for end in (MARKER + 3, MARKER + 8, MARKER + 8, MARKER + 30, EPOCHS):
        life.run(data, end)  # from the marker before last
        rows = rows_seen(tmp_path)
        assert rows[: len(shown)] == shown
        shown = rows
    times = [row["published_ms"] for row in shown]
    assert times == sorted(times)
    assert len(set(times)) > EPOCHS / 2
    assert [row["arrived_ms"] for row in shown] == [None] * len(shown)


def test_times_of_a_file_that_was_shown_in_part_stay(tmp_path: Path) -> None:
    """As in a pause with --epoch-ms 0, before a kill and after it."""

    def attempt(now_ms: float) -> Callable[..., None]:
        log = ChangeLog(LogFolders(tmp_path), 0, WIDTH, "int", ["a"])
        log.clock_ms = lambda: now_ms
        epochs = [EpochRows(number, [], [], 0, 0) for number in range(1, 9)]

        def write(number: int, begin: int, end: int, **options: bool) -> list[int]:
            log.write(LogFile(number, epochs[begin - 1 : end], group=0, **options))
            return [row["published_ms"] for row in rows_seen(tmp_path)]

        return write

    first, second, third = attempt(100.0), attempt(200.0), attempt(300.0)
    assert first(0, 1, 3, partial=True) == [100] * 3
    assert second(0, 1, 2, partial=True) == [100] * 3
    assert second(0, 1, 4, partial=True) == [100] * 3 + [200]
    assert second(0, 1, 5) == [100] * 3 + [200] * 2
    assert third(0, 1, 5, defers=True) == [100] * 3 + [200] * 2
    assert third(1, 6, 6, partial=True) == [100] * 3 + [200] * 2 + [300]
    assert second(1, 6, 7) == [100] * 3 + [200] * 2 + [300, 200], "another attempt has come in between"
    assert third(1, 6, 8) == [100] * 3 + [200] * 2 + [300, 200, 300]


def test_a_file_of_an_earlier_version_goes_on_without_times_of_what_it_shows(tmp_path: Path) -> None:
    clock = itertools.count(1_000_000)
    life = Life(tmp_path)
    life.run(blocks(), MARKER + 2)
    path = max((tmp_path / "epochs").iterdir())
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(number).drop_columns(TIMES) for number in range(file.num_row_groups)]
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    former = pa.concat_tables(groups)
    life.clock_ms = lambda: float(next(clock))
    life.run(blocks(), EPOCHS)
    rows, there = pq.read_table(path).to_pylist(), former.num_rows
    assert [{name: row[name] for name in former.column_names} for row in rows[:there]] == former.to_pylist()
    assert [row["published_ms"] for row in rows[:there]] == [None] * there
    assert all(row["published_ms"] >= 1_000_000 for row in rows[there:])
    assert seen(tmp_path) == sorted(seen(tmp_path))


def test_a_file_that_is_damaged_or_was_put_back_short_is_refused(tmp_path: Path) -> None:
    life, path = stopped(tmp_path, MARKER)
    table = pq.read_table(path)
    short = table.slice(0, 1)
    assert short["epoch"][0].as_py() < MARKER, "the group began before the marker"
    for data in (b"", b"PAR1 nothing PAR1", None):
        path.write_bytes(data) if data is not None else pq.write_table(short, path)
        with pytest.raises(
            ChangeLogError, match=r"expected the epochs up to 18, which the state has passed, got .*put"
        ):
            Life.run(life, blocks(), EPOCHS)


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    life, path = stopped(tmp_path, MARKER)
    moved = epochs_of(path)
    path.unlink()
    once_more = dict(life.entries)
    life.run(blocks(), MARKER + 2)
    life.entries = once_more  # killed before the next marker
    life.run(blocks(), EPOCHS)
    found = seen(tmp_path)
    assert found == sorted(found)
    assert set(range(1, EPOCHS + 1)) - set(found) == {epoch for epoch in moved if epoch <= MARKER}


def test_files_that_follow_each_other_are_told_together(tmp_path: Path) -> None:
    log = ChangeLog(LogFolders(tmp_path), 0, WIDTH, "int", ["a"])

    def write(number: int, group: int, **options: bool) -> None:
        log.write(LogFile(number, [EpochRows(number + 1, [], [], 0, 0)], group=group, **options))

    write(0, 0)
    write(1, 0, defers=True)
    write(2, 0, defers=True)
    assert seen(tmp_path) == [1]
    write(3, 0)
    assert seen(tmp_path) == [1, 2, 3, 4]
    write(4, 0, defers=True)
    write(5, 5, defers=True)
    assert seen(tmp_path) == [1, 2, 3, 4, 5], "the next file of epochs begins"
    log.write(LogFile(6))
    assert seen(tmp_path) == [1, 2, 3, 4, 5, 6], "nothing follows any more"
