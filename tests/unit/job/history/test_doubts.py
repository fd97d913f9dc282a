"""What an as-of join warns of: times of another unit, past the end of the log, and before the first event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshet
from freshet.job import cli
from freshet.job.folder import layout
from freshet.job.history.as_of import Joined, join_as_of
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import HandJob

DAY, T = 86_400_000, 1_700_000_000_000


def job(out: Path, parts: int = 1, **run: Any) -> Path:
    """Seven epochs, a day apart, whose `ts` are as many parts of what they are in milliseconds."""
    hand = HandJob(out)
    for epoch in range(1, 8):
        told = {"event_ts": (T + epoch * DAY) // parts, "last_arrival_ms": T + epoch * DAY}
        hand.apply(epoch, ({0: float(epoch)}, []), ({}, []), **told)
    hand.close()
    (out / layout.RUN).write_bytes(orjson.dumps(run))
    return out


def asked(out: Path, times: Any, **more: Any) -> Joined:
    if not isinstance(times, pa.Array):
        times = pa.array(times, pa.int64())
    return join_as_of(out, pa.table({"id": pa.array([0] * len(times), pa.int64()), "ts": times}), **more)


def epochs(joined: Joined) -> list[int]:
    return joined.table["epoch"].to_pylist()


def test_times_within_the_log_raise_no_doubt(tmp_path: Path) -> None:
    found = asked(job(tmp_path / "o"), [T + DAY, T + 7 * DAY])
    assert (epochs(found), found.doubts) == ([1, 7], ())


@pytest.mark.parametrize(("unit", "name"), [("s", "seconds"), ("us", "microseconds"), ("ns", "nanoseconds")])
@pytest.mark.parametrize("by", ["event", "arrival"])
def test_times_of_another_unit_are_named(tmp_path: Path, unit: Any, name: str, by: str) -> None:
    """With the unit they are right; timestamps are taken by their type."""
    parts = {"s": 1, "us": 10**6, "ns": 10**9}[unit]
    times = [(T + day * DAY) * parts // 1000 for day in (1, 4)]
    out = job(tmp_path / "o")
    assert f"in {name} it is 2023-11-15: ts_unit='{unit}'" in asked(out, times, by=by).doubts[0]
    for found in (asked(out, times, by=by, ts_unit=unit), asked(out, pa.array(times, pa.timestamp(unit)), by=by)):
        assert (epochs(found), found.doubts) == ([1, 4], ())


def test_a_log_of_another_unit_is_named(tmp_path: Path) -> None:
    found = asked(job(tmp_path / "o", 1000), [T + 3 * DAY])
    assert "the log ends at 1970-01-20 by the ts of its events (1700604800 in milliseconds); in s" in found.doubts[0]
    assert "--ts-unit s" in found.doubts[0]
    assert "1 of 1 times are past the end" in found.doubts[1]


def test_times_past_the_end_are_said_by_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = job(tmp_path / "o"), pa.table({"id": [0, 0], "ts": [T + 7 * DAY, T + 397 * DAY]})
    with pytest.warns(UserWarning, match=r"1 of 2 times are past the end .*2023-11-21.* by up to 390\.0 days"):
        assert freshet.as_of(out, table)["epoch"].to_pylist() == [7, 7]
    pq.write_table(table, tmp_path / "q.parquet")
    told = ["--as-of", str(tmp_path / "q.parquet"), "--to", str(tmp_path / "r.parquet"), "--out", str(out)]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["history", *told])
    assert "1 of 2 times are past the end" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        cli.main(["history", *told, "--ts-unit", "us"])
    assert "--ts-unit ms of freshet history" in capsys.readouterr().err


def test_what_a_snapshot_may_have_seen_is_said(tmp_path: Path) -> None:
    early = [T, T + DAY - 1, T + DAY]
    (doubt,) = asked(job(tmp_path / "a", snapshot="S"), early).doubts
    assert doubt.startswith("2 of 3 times are before the log's first event, 1700086400000 (2023-11-15)")
    assert asked(job(tmp_path / "b"), early).doubts == ()
    assert asked(tmp_path / "a", early, by="arrival").doubts == ()


def test_a_row_past_the_last_visible_epoch_is_no_history_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold rows of epochs of which other parts have not shown theirs."""
    out = job(tmp_path / "o")
    assert freshet.history(out, [0])["epoch"].to_pylist() == [*range(1, 8)]
    monkeypatch.setattr(ServedJob, "complete_epoch", lambda _: 4)
    past = freshet.history(out, [0])
    assert past["epoch"].to_pylist() == [1, 2, 3, 4]
    assert past.schema.metadata[b"epoch"] == b"4"


def test_a_time_that_no_64_bits_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        freshet.InputError, match="expected times within 64 bits in milliseconds, got 4611686018427387904"
    ):
        asked(job(tmp_path / "o"), [2**62], ts_unit="s")
