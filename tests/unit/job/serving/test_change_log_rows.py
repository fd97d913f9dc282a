"""The newest rows between two epochs, from files of which only what is wanted is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.files.json_file import DamagedFileError
from freshet.job.folder import layout
from freshet.job.serving.tables import change_log_rows
from freshet.job.serving.tables.change_log_rows import NewestRows, positions_at, rows_between
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import embeddings_schema
from freshet.state.checksums.sealed import SealedFile

WIDTH, EPOCHS, IDS = 3, 24, 40


def write(path: Path, ids: np.ndarray, epochs: np.ndarray, deleted: np.ndarray, group: int) -> None:
    vectors = [[float(1000 * epoch + id_)] * WIDTH for id_, epoch in zip(ids, epochs, strict=True)]
    table = {"id": ids, "epoch": epochs, "embedding": vectors, "deleted": deleted}
    pq.write_table(pa.Table.from_pydict(table, embeddings_schema(WIDTH, "int")), path, row_group_size=group)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two parts of four files each, of several row groups."""
    (tmp_path / layout.EMBEDDINGS).mkdir()
    rng = np.random.default_rng(3)
    for part in range(2):
        for number in range(4):
            epochs = np.repeat(np.arange(6 * number, 6 * number + 6), 5)
            ids = np.concatenate([rng.choice(IDS // 2, 5, replace=False) * 2 + part for _ in range(6)])
            name = f"part-{part}-{number:08d}.parquet"
            write(tmp_path / layout.EMBEDDINGS / name, ids, epochs, rng.random(30) < 0.2, 7)
    return tmp_path


def expected(out: Path, after: int, upto: int) -> dict[int, tuple[int, float | None]]:
    table = pq.read_table(sorted((out / layout.EMBEDDINGS).glob("part-*.parquet"))).sort_by("epoch")
    found = {}
    for row in table.to_pylist():
        if after < row["epoch"] <= upto:
            found[row["id"]] = row["epoch"], None if row["deleted"] else row["embedding"][0]
    return found


def shown(found: NewestRows) -> dict[int, tuple[int, float | None]]:
    assert (found.rows == found.rows[:, :1]).all()
    lives = zip(found.ids.tolist(), found.epochs.tolist(), found.rows[:, 0].tolist(), strict=True)
    dead = zip(found.dead.tolist(), found.dead_epochs.tolist(), strict=True)
    return {id_: (epoch, value) for id_, epoch, value in lives} | {id_: (epoch, None) for id_, epoch in dead}


@pytest.mark.parametrize(("after", "upto"), [(-1, EPOCHS), (-1, 0), (3, 3), (5, 11), (4, 19), (20, 99), (50, 60)])
def test_every_span_of_epochs(log: Path, after: int, upto: int) -> None:
    assert shown(rows_between(LogFolders(log), after, upto, False, WIDTH)) == expected(log, after, upto)


def test_only_files_of_these_epochs_are_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, names = pq.read_table, set[str]()

    def read_table(file: SealedFile, **options: object) -> pa.Table:
        names.add(Path(file.name).name)
        return read(file, **options)

    monkeypatch.setattr(pq, "read_table", read_table)
    rows_between(LogFolders(log), 6, 11, False, WIDTH)
    assert names == {"part-0-00000001.parquet", "part-1-00000001.parquet"}


def test_a_file_that_is_another_one_before_its_vectors_are_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all is read again: rows of one file must not get vectors of another."""
    right, take, told = expected(log, -1, EPOCHS), change_log_rows._take_vectors, list[bool]()

    def take_of_another(path: Path, *args: np.ndarray) -> None:
        if not told and len(args[0]) > 2:
            told.append(True)
            table = pq.read_table(path)
            pq.write_table(table.take(np.arange(len(table))[::-1]), path)
        take(path, *args)

    monkeypatch.setattr(change_log_rows, "_take_vectors", take_of_another)
    assert shown(rows_between(LogFolders(log), -1, EPOCHS, False, WIDTH)) == right
    assert told


def test_a_base_without_positions_is_not_said_to_be_spare(log: Path) -> None:
    (log / layout.EMBEDDINGS / "part-0-00000000.parquet").rename(log / layout.EMBEDDINGS / "base-000000000005.parquet")
    with pytest.raises(DamagedFileError, match=r"base-000000000005.parquet: .* put it back from a copy") as error:
        positions_at(LogFolders(log), EPOCHS, ())
    assert "remove" not in str(error.value), "compaction has removed the files that it repeats"
