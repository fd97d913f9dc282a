"""History and the as-of join of a job that is driven by hand, against what was applied; before and after compaction."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshet
from freshet.errors import InputError
from freshet.job import cli
from freshet.job.folder import layout
from freshet.job.history.as_of import join_as_of
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.control import PUBLISH
from tests.support.serving.hand_job import WIDTH, HandJob

EPOCHS, KEYS = 40, 12


class Lived:
    """A job of some epochs, and what they did: (epoch, value or None) of each key, and the times of the epochs."""

    def __init__(self, out: Path, kind: str, seed: int = 3, **more: Any) -> None:
        rng = np.random.default_rng(seed)
        self.hand, self.kind, self.changes = HandJob(out, kind), kind, {key: [] for key in range(KEYS)}
        self.arrived, self.event = {}, {}
        alive: set[int] = set()
        for epoch in range(1, EPOCHS + 1):
            self.arrived[epoch] = 1_000 * epoch
            self.event[epoch] = 50 * epoch + int(rng.integers(-200, 200)) if rng.random() < 0.8 or epoch == 1 else None
            put = set(rng.choice(KEYS, rng.integers(1, 4), replace=False).tolist())
            dead = {key for key in alive - put if rng.random() < 0.1}
            rows = [
                ({key: float(epoch) for key in put if key % 2 == part}, [k for k in dead if k % 2 == part])
                for part in (0, 1)
            ]
            alive = (alive | put) - dead
            for key in put | dead:
                self.changes[key].append((epoch, None if key in dead else float(epoch)))
            told = {"last_arrival_ms": self.arrived[epoch], "flags": PUBLISH if epoch % 3 == 0 else 0} | more
            self.hand.apply(epoch, *rows, event_ts=self.event[epoch], **told)
        self.hand.close()

    def id(self, key: int) -> int | str:
        return f"v{key}" if self.kind == "string" else key

    def expected(self, key: int, at: int, by: str) -> tuple[int, float] | None:
        """Row of a key at a time."""
        latest, last = -np.inf, 0
        for epoch in range(1, EPOCHS + 1):
            one = self.event[epoch] if by == "event" else self.arrived[epoch]
            latest = max(latest, one if one is not None else -np.inf)
            last = epoch if latest <= at else last
        rows = [row for row in self.changes[key] if row[0] <= last]
        return rows[-1] if rows and rows[-1][1] is not None else None


@pytest.fixture(scope="module", params=["int", "string"])
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    yield Lived(tmp_path_factory.mktemp("lived") / "O", request.param)


def questions(lived: Lived, by: str, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, KEYS, 300)
    times = rng.integers(-300, 2_500, 300) if by == "event" else rng.integers(1_000, 45_000, 300)
    return pa.table(
        {"label": rng.random(300), "id": [lived.id(key) for key in keys.tolist()], "ts": times, "key": keys}
    )


@pytest.mark.parametrize("by", ["event", "arrival"])
def test_rows_are_as_they_were_at_their_time(lived: Lived, by: str) -> None:
    # the snapshot comes before all events, and a job began by arrival when its folder says so
    (lived.hand.out / layout.IMAGE_DONE).write_bytes(orjson.dumps({"began_ms": 900}))
    asked = questions(lived, by)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* past the end of the log")
        found = freshet.as_of(lived.hand.out, asked, by=by)
    assert found.column_names == [*asked.column_names, "epoch", "embedding"]
    assert found.select(asked.column_names).equals(asked)
    assert found.schema.field("embedding").type == pa.list_(pa.float32())
    some = 0
    for row in found.to_pylist():
        expected = lived.expected(row["key"], row["ts"], by)
        some += expected is not None
        assert row["epoch"] == (expected and expected[0])
        assert row["embedding"] == (expected and [expected[1]] * WIDTH)
    assert 50 < some < 300


def test_ways_to_ask(lived: Lived, tmp_path: Path) -> None:
    asked = questions(lived, "event")
    expected = freshet.as_of(lived.hand.out, asked)
    assert freshet.as_of(lived.hand.out, asked, by="event").equals(expected), "events have a ts"
    frame = asked.to_pandas()
    assert freshet.as_of(str(lived.hand.out), frame)["epoch"].equals(expected["epoch"])
    frame["at"] = pd.to_datetime(frame.pop("ts"), unit="ms", utc=True)
    frame["vertex"] = frame.pop("id").astype("category" if lived.kind == "string" else "int64")
    named = freshet.as_of(lived.hand.out, frame, id="vertex", time="at")
    assert named["epoch"].to_pylist() == expected["epoch"].to_pylist()
    pq.write_table(asked, tmp_path / "Q.parquet")
    assert freshet.as_of(lived.hand.out, tmp_path / "Q.parquet").equals(expected)
    assert freshet.as_of(lived.hand.out, asked.slice(0, 0))["embedding"].to_pylist() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q.drop_columns(["ts"]), "expected a column ts, got label, id, key"),
        (lambda q: q.rename_columns(["epoch", "id", "ts", "key"]), "the column epoch would be there twice"),
        (
            lambda q: q.set_column(1, "id", pa.array([0.5] * q.num_rows)),
            "column id: expected .* got double",
        ),
        (lambda q: q.set_column(2, "ts", pa.array(["a"] * q.num_rows)), "column ts: expected int64 .* got string"),
        (lambda q: q.set_column(2, "ts", pa.nulls(q.num_rows, pa.int64())), "column ts: expected no nulls, got 300"),
        (lambda q: 7, "table: expected a pyarrow Table, .* got int"),
        (lambda q: "nowhere.parquet", "nowhere.parquet: expected a Parquet file"),
    ],
)
def test_what_is_refused(lived: Lived, change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        freshet.as_of(lived.hand.out, change(questions(lived, "event")))


def test_folders_and_bases_that_are_refused(lived: Lived, tmp_path: Path) -> None:
    asked = questions(lived, "event")
    with pytest.raises(InputError, match=r"no job in it; give the --out folder"):
        freshet.as_of(tmp_path, asked)
    with pytest.raises(InputError, match=r"by: expected event or arrival, got 'ts'"):
        freshet.as_of(lived.hand.out, asked, by="ts")  # type: ignore[arg-type]
    bare = Lived(tmp_path / "O", lived.kind)
    for path in (bare.hand.out / "epochs").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.set_column(7, "event_ts", pa.nulls(table.num_rows, pa.int64())), path)
    with pytest.raises(InputError, match=r"no event has a `ts`, .*give --by arrival"):
        freshet.as_of(bare.hand.out, asked, by="event")
    assert join_as_of(bare.hand.out, asked).by == "arrival"
    for path in (bare.hand.out / "epochs").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["arrived_ms", "published_ms", "event_ts"]), path)
    with pytest.raises(InputError, match=r"its epochs have no times: an earlier version wrote them"):
        freshet.as_of(bare.hand.out, asked)


@pytest.mark.parametrize("kind", ["int", "string"])
def test_after_compaction_a_row_is_right_or_said_to_be_unknown(tmp_path: Path, kind: str) -> None:
    one = Lived(tmp_path / "O", kind, seed=5)
    asked = questions(one, "event")
    before = join_as_of(one.hand.out, asked)
    assert before.unknown == 0
    compact_log(one.hand.out)  # keeps all
    assert join_as_of(one.hand.out, asked) == before
    kept = sorted((one.hand.out / "embeddings").glob("part-*"))
    old = [path for path in kept if int(path.stem.rpartition("-")[2]) < 7]
    for path in old:
        age = time.time() - 10_000
        os.utime(path, (age, age))
    assert compact_log(one.hand.out, 3_600).removed == len(old) > 4
    with pytest.warns(UserWarning, match=r"rows have no embedding because the change log does not say it"):
        freshet.as_of(one.hand.out, asked)
    after = join_as_of(one.hand.out, asked)
    assert 0 < after.unknown < 300
    assert after.known_from > 15
    assert after.found + after.absent + after.unknown == 300
    null = 0
    for row, was in zip(after.table.to_pylist(), before.table.to_pylist(), strict=True):
        assert row["epoch"] is None or row == was, "never a wrong one"
        null += row["epoch"] is None and was["epoch"] is not None
    assert 0 < null <= after.unknown
    late = asked.set_column(2, "ts", pa.array([10**9] * 300))
    assert join_as_of(one.hand.out, late).unknown == 0, "the newest rows are in the base"
    again = compact_log(one.hand.out)
    assert (again.removed, join_as_of(one.hand.out, asked).known_from) == (0, after.known_from)


def test_a_job_may_go_on_and_be_compacted_while_its_files_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is of a later epoch than the one that was complete, and all files are gone that it covers."""
    one = Lived(tmp_path / "O", "int")
    before, epoch = freshet.history(one.hand.out, list(range(KEYS))), ServedJob.complete_epoch

    def compacted(job: ServedJob) -> int:
        monkeypatch.setattr(ServedJob, "complete_epoch", epoch)
        compact_log(job.out, 0.0, now_s=time.time() + 10_000)
        return epoch(job) - 1

    monkeypatch.setattr(ServedJob, "complete_epoch", compacted)
    found = freshet.history(one.hand.out, list(range(KEYS)))
    last = {row["id"]: row for row in before.to_pylist()}
    assert found.to_pylist() == [row for row in last.values() if not row["deleted"]]
    assert found.schema.metadata[b"epoch"] == str(EPOCHS).encode()


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def test_past_rows(lived: Lived, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, key = lived.hand.out, lived.id(3)
    expected = [
        {
            "id": key,
            "epoch": epoch,
            "arrived_ms": lived.arrived[epoch],
            "event_ts": lived.event[epoch],
            "deleted": value is None,
            "embedding": None if value is None else [value] * WIDTH,
        }
        for epoch, value in lived.changes[3]
    ]
    assert freshet.history(out, [key]).to_pylist() == expected
    monkeypatch.chdir(out)
    ways = [[key, "--out", out], [out, key], [key, out], ["--at", out / "tables", key], [key], [key, key]]
    for way in ways:
        assert call("history", "--format", "json", *way) == 0
        told = capsys.readouterr()
        assert [orjson.loads(line) for line in told.out.splitlines()] == expected
        assert told.err == f"epoch {EPOCHS}: {len(expected)} rows of 1 vertices\n"
    other = lived.id(4)
    assert call("history", other, lived.id(99), key) == 1
    told = capsys.readouterr()
    assert str(other) in told.out
    assert told.err.endswith(f"no row: {lived.id(99)}\n")
    both = freshet.history(out, [other, key])
    assert both["id"].to_pylist() == [other] * len(lived.changes[4]) + [key] * len(expected)


def test_the_command_joins(lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions(lived, "event")
    pq.write_table(asked, tmp_path / "Q.parquet")
    arguments = "history", "--as-of", tmp_path / "Q.parquet", "--to", tmp_path / "R.parquet"
    assert call(*arguments, "--out", lived.hand.out) == 0
    told = orjson.loads(capsys.readouterr().out)
    found = pq.read_table(tmp_path / "R.parquet")
    assert found.to_pylist() == freshet.as_of(lived.hand.out, asked).to_pylist()
    count = 300 - found["epoch"].null_count
    expected = {"rows": 300, "found": count, "absent": 300 - count, "unknown": 0, "by": "event"}
    assert told == expected | {"epoch": EPOCHS, "known_from": 0}
    assert call(*arguments, lived.hand.out, "--by", "arrival") == 0
    assert orjson.loads(capsys.readouterr().out)["by"] == "arrival"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["7"], "there is no job here; give its output folder"),
        (["--out", "O"], "give the ids of vertices, or --as-of"),
        (["7", "--out", "O", "--to", "R"], "--to goes with --as-of"),
        (["7", "--out", "O", "--by", "event"], "--by goes with --as-of"),
        (["--as-of", "Q", "--out", "O"], "--as-of goes with --to"),
        (["7", "--out", "nowhere"], "nowhere: no job in it"),
        (["--as-of", "Q", "--to", "no/R", "--out", "O"], "there is no folder"),
        (["seven", "--out", "O"], "its ids are integers of 64 bits, got"),
    ],
)
def test_wrong_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    HandJob(tmp_path / "O").close()
    monkeypatch.chdir(tmp_path)
    assert call("history", *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
