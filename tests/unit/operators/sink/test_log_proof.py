"""What a change log proves of itself, where status files and heartbeats are lost, torn or wrong."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet.files.json_file import DamagedFileError
from freshet.job.serving.tables.change_log_rows import positions_at, rows_between, times_upto
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink import log_proof
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from freshet.operators.sink.log_proof import NOTHING, complete_epoch, last_of_part, last_recorded

PARTS = 2


def write(out: Path, part: int, number: int, epochs: range, rows: int = 1) -> None:
    log = ChangeLog(LogFolders(out), part, 3, "int", ["a.jsonl"])
    found = [EpochRows(n, [np.arange(rows)], [np.ones((rows, 3), np.float32)], rows, 0) for n in epochs]
    log.write(LogFile(number, found))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Part 0 has come to epoch 5, part 1 to epoch 3; epochs/ has 5."""
    for part in range(PARTS):
        write(tmp_path, part, 0, range(1))
        write(tmp_path, part, 1, range(1, 4))
    write(tmp_path, 0, 2, range(4, 6))
    return tmp_path


def proven(out: Path, told: dict[int, int], *, has_finished: bool = False, noted: int | None = None) -> int:
    return complete_epoch(LogFolders(out), PARTS, told, has_finished=has_finished, noted=noted)


def test_where_nothing_is_told_the_files_say_it(out: Path) -> None:
    assert (last_recorded(LogFolders(out)), last_of_part(LogFolders(out), 0), last_of_part(LogFolders(out), 1)) == (
        5,
        5,
        3,
    )
    assert proven(out, {}) == 3
    assert proven(out, {0: 5}) == 3
    assert proven(out, {0: 5, 1: 4}) == 4, "epoch 4 has no rows in part 1, and its part says that it has passed"


def test_of_a_finished_job_epochs_have_the_last_word(out: Path) -> None:
    assert proven(out, {}, has_finished=True) == 5
    assert proven(out, {0: 0, 1: 0}, has_finished=True) == 5, "a status of long ago"
    assert proven(out, {0: 99, 1: 99}, has_finished=True) == 5


def test_nothing_is_believed_that_no_file_has(out: Path) -> None:
    assert proven(out, {0: 10**12, 1: 10**12}) == 5
    assert proven(out, {}, noted=10**12) == 5
    assert proven(out, {}, noted=4) == 4, "what was noted when a run ended stays true"


def test_rows_may_be_visible_before_their_epoch_is_recorded(out: Path) -> None:
    write(out, 1, 2, range(4, 9))
    assert proven(out, {0: 8, 1: 8}) == 8


def test_before_epoch_0_nothing_is_proven(tmp_path: Path) -> None:
    assert proven(tmp_path, {}) == NOTHING
    assert proven(tmp_path, {}, has_finished=True) == NOTHING
    write(tmp_path, 0, 0, range(1))
    assert proven(tmp_path, {}) == NOTHING, "part 1 has written nothing"


@pytest.mark.parametrize("after", ["last_recorded", "newest_base"])
def test_files_that_go_while_it_is_proven_are_covered_by_a_base(
    out: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    write(out, 1, 2, range(4, 9))
    read = getattr(log_proof, after)

    def compacted(log: LogFolders) -> int:
        found: int = read(log)
        (out / "embeddings" / "base-000000000008.parquet").touch()
        for path in (out / "embeddings").glob("part-*"):
            path.unlink()
        return found

    monkeypatch.setattr(log_proof, after, compacted)
    assert proven(out, {0: 8, 1: 8}) == 8


@pytest.mark.parametrize("how", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: bytes(len(data))])
def test_a_damaged_file_that_decides_is_named(out: Path, how: object) -> None:
    path = out / "epochs" / "epochs-00000002.parquet"
    data = path.read_bytes()
    path.write_bytes(how(data))  # type: ignore[operator]
    with pytest.raises(DamagedFileError, match=r"epochs-00000002.parquet is damaged .*: put it back from a copy"):
        proven(out, {}, has_finished=True)
    path.write_bytes(data)
    pq.write_table(pq.read_table(path).drop_columns(["epoch"]), path)
    with pytest.raises(DamagedFileError, match=r"epochs-00000002.parquet is damaged .*columns source"):
        proven(out, {}, has_finished=True)


def test_a_bit_that_flips_in_epochs_is_seen(tmp_path: Path) -> None:
    log = ChangeLog(LogFolders(tmp_path), 0, 3, "int", ["a.jsonl"])
    rows = [np.arange(1)], [np.ones((1, 3), np.float32)], 1, 0
    log.write(LogFile(1, [EpochRows(n, *rows, positions=np.array([[0, 0, 10 * n, 3]])) for n in range(1, 40)]))
    (path,) = (tmp_path / "epochs").glob("*.parquet")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")

    def read() -> list[list[list[int]]]:
        told = ChangeLogReader(tmp_path).positions()
        return [
            positions_at(LogFolders(tmp_path), 39, ("a.jsonl",)).tolist(),
            [told.next_offset.tolist(), told.events.tolist()],
        ]

    whole, refused = read(), 0
    for at in range(4, footer, 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            assert read() == whole, f"byte {at}"
        except DamagedFileError:
            refused += 1
    assert refused


def test_a_file_that_compaction_removes_meanwhile_is_not_missed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = out / "embeddings" / "part-0-00000002.parquet"
    real = log_proof.epochs_of

    def removed(path: Path) -> tuple[int, int]:
        if path == newest:
            path.unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(log_proof, "epochs_of", removed)
    assert last_of_part(LogFolders(out), 0) == 3
    assert proven(out, {}) == 3


def test_metadata_of_files_is_freed_at_once(out: Path) -> None:
    """Not by the garbage collector, which runs seldom in a server that looks at the files many times a second."""
    log = LogFolders(out)

    def look() -> None:
        assert proven(out, {}) == 3
        assert len(rows_between(log, 0, 3, False, 3).ids) == 1
        positions_at(log, 3, ("a.jsonl",))
        times_upto(log, 3)

    look()  # the first time more is loaded
    gc.collect()
    gc.disable()
    try:
        before = metadata_in_memory()
        for _ in range(5):
            look()
        assert metadata_in_memory() == before
    finally:
        gc.enable()


def metadata_in_memory() -> int:
    return sum(isinstance(one, pq.FileMetaData) for one in gc.get_objects())
