"""The change log as a table: all rows, those up to an epoch or a time, and the newest of each vertex."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshet
from freshet.errors import UsageError
from freshet.job.serving.tables.compaction import compact_log
from freshet.operators.control import PUBLISH
from tests.support.serving.hand_job import WIDTH, HandJob

DAY_MS = 86_400_000
# What each epoch does: rows by key, keys that are deleted; it arrives on the day of its number.
EPOCHS: list[tuple[dict[int, float], list[int]]] = [({1: 1.0, 2: 1.0}, []), ({1: 2.0}, [2]), ({4: 3.0, 2: 3.0}, [])]
ROWS = [(1, 1, 1.0, False), (2, 1, 1.0, False), (1, 2, 2.0, False), (2, 2, 0.0, True), (2, 3, 3.0, False)]
ROWS += [(4, 3, 3.0, False)]


def log_of(out: Path, kind: str) -> Path:
    hand = HandJob(out, kind)
    for epoch, (put, dead) in enumerate(EPOCHS, 1):
        of_part = [
            ({key: one for key, one in put.items() if key % 2 == k}, [d for d in dead if d % 2 == k]) for k in (0, 1)
        ]
        hand.apply(epoch, *of_part, last_arrival_ms=DAY_MS * epoch, flags=PUBLISH)
    hand.close()
    return out


@pytest.fixture(scope="module", params=["int", "string"])
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield log_of(tmp_path_factory.mktemp("log") / "O", request.param)


def rows(table: pa.Table) -> list[tuple[int, int, float, bool]]:
    """The rows as numbers, in the order of epochs and keys."""
    keys = [int(str(one).removeprefix("v")) for one in table["id"].to_pylist()]
    values = [one[0] for one in table["embedding"].to_pylist()]
    found = list(zip(keys, table["epoch"].to_pylist(), values, table["deleted"].to_pylist(), strict=True))
    assert [row[1] for row in found] == sorted(row[1] for row in found)
    return sorted(found, key=lambda row: (row[1], row[0]))


def test_all_rows_of_the_log(out: Path) -> None:
    table = freshet.read_changes(out)
    assert rows(table) == ROWS
    files = pq.read_table(out / "embeddings")
    assert table.num_rows == files.num_rows and table.column_names == ["id", "epoch", "embedding", "deleted"]
    assert table["embedding"].type == pa.list_(pa.float32(), WIDTH)
    assert table.schema.metadata == {b"epoch": b"3", b"known_from": b"0"}
    assert isinstance(table.to_pandas(), pd.DataFrame)


@pytest.mark.parametrize(
    ("as_of", "epoch"),
    [
        (2, 2),
        (np.int64(1), 1),
        (0, 0),
        ("1970-01-03", 2),
        ("1970-01-03T23:59:59+00:00", 2),
        ("1970-01-03 01:00+02:00", 1),
        (datetime(1970, 1, 4), 3),
        (datetime(1970, 1, 3, 12, tzinfo=UTC), 2),
        (pd.Timestamp("1970-01-02"), 1),
        (np.datetime64("1970-01-04"), 3),
    ],
)
def test_rows_up_to_an_epoch_or_a_time(out: Path, as_of: Any, epoch: int) -> None:
    assert rows(freshet.read_changes(out, as_of=as_of)) == [row for row in ROWS if row[1] <= epoch]


def test_the_newest_row_of_each_vertex_that_lives(out: Path) -> None:
    def newest(as_of: int | None) -> dict[int, tuple[int, float]]:
        table = freshet.read_changes(out, as_of=as_of, newest=True)
        keys = [int(str(one).removeprefix("v")) for one in table["id"].to_pylist()]
        values = [
            (epoch, one[0])
            for epoch, one in zip(*map(pa.Table.to_pydict(table).get, ("epoch", "embedding")), strict=True)
        ]
        return dict(zip(keys, values, strict=True))

    assert newest(None) == {1: (2, 2.0), 2: (3, 3.0), 4: (3, 3.0)}
    assert newest(2) == {1: (2, 2.0)}
    assert newest(0) == {}


def test_what_is_not_there_is_said(out: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the last visible epoch is 3") as said:
        assert rows(freshet.read_changes(out, as_of=7)) == ROWS
    assert said[0].filename == __file__
    with pytest.raises(UsageError, match="as_of: expected an epoch, a datetime or text") as caught:
        freshet.read_changes(out, as_of="yesterday")
    assert caught.value.option == "as_of"
    with pytest.raises(UsageError, match="no job in it"):
        freshet.read_changes(tmp_path)


def test_rows_that_compaction_has_removed_are_said(tmp_path: Path) -> None:
    out = log_of(tmp_path / "O", "int")
    compact_log(out, 0.0, now_s=time.time() + 10_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = freshet.read_changes(out, newest=True)
    assert sorted(found["id"].to_pylist()) == [1, 2, 4]
    assert found.schema.metadata[b"known_from"] == b"4"
    with pytest.warns(UserWarning, match="compaction has removed rows before epoch 4"):
        assert len(freshet.read_changes(out)) == 3
