"""A job that begins from an export knows what the export covers: positions and times, from epoch 0 on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet import EmbeddingClient
from freshet.files.json_file import read_json, write_json
from freshet.job.embed.runner import STREAMING, EmbedOptions, embed
from freshet.job.errors import UsageError
from freshet.job.history.epoch_at import UNKNOWN, By, epochs_at
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.results.check import check
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.protocol.errors import NotYetError
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.state.served.times import Moment
from tests.unit.job.results.test_export import EVENTS, Given, exported

FILES = ("events.jsonl", "quiet.jsonl")


@contextmanager
def served(out: Path) -> Iterator[Lookup]:
    """The table of a job that has ended."""
    job = ServedJob.read(out)
    assert job is not None
    follower = Follower(job, out / "tables", 1 << 20)
    follower.start()
    try:
        yield Lookup(CurrentTable(out / "tables", JobHere.of(job)))
    finally:
        follower.close(forget=True)


def given_in(folder: Path) -> Given:
    """A stream with times, and a second file that has nothing after the export."""
    given = Given(folder)
    lines = [orjson.dumps({**record, "ts": 1000 + at}) for at, record in enumerate(given.records)]
    (folder / FILES[0]).write_bytes(b"\n".join(lines[: EVENTS - 50]))
    (folder / FILES[1]).write_bytes(b"\n".join(lines[EVENTS - 50 :]))
    return given


def both(given: Given) -> dict[str, Any]:
    return {"events": [str(given.folder / name) for name in reversed(FILES)]}  # the quiet one is read first


@pytest.mark.parametrize("embeds", [False, True])
def test_it_has_the_positions_and_times_of_the_export_from_its_first_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, embeds: bool
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 50)
    given = given_in(tmp_path)
    first = given.run("O", stop_after=6, parts=2, **both(given))
    line = exported(given, "S", first, capsys)
    reached = {row["source"].rpartition("/")[2]: row["next_offset"] for row in line["positions"]}
    assert reached[FILES[1]] == 50
    assert 0 < reached[FILES[0]] < EVENTS - 50
    with served(first) as lookup:
        before = lookup.served.so_far(lookup.table.epoch)
    assert None not in before
    snapshot = "S"
    if embeds:
        snapshot = "E"
        asked = EmbedOptions(given.folder / "model", given.folder / "S", given.folder / "E", memory=1 << 28,
                             made_for=STREAMING, placement=PartitioningOptions(parts=1))  # fmt: skip
        assert embed(asked) == 0
    idle = given.run("O2", snapshot, stop_after=1, parts=1, epoch_events=10_000, **both(given))
    known = {(row["source"], row["next_offset"], row["epoch"]) for row in positions(idle)}
    assert known == {("quiet.jsonl", 50, 0), ("events.jsonl", reached[FILES[0]], 0)}
    goes_on(idle, reached, before)

    done = given.run("O3", snapshot, parts=1, **both(given))
    last = {row["source"]: (row["next_offset"], row["epoch"]) for row in positions(done)}
    assert last["quiet.jsonl"] == (50, 0)
    assert last["events.jsonl"][0] == EVENTS - 50 > reached[FILES[0]]
    goes_on(done, reached, before)
    assert check(given.folder / "model", both(given)["events"], done, given.folder / snapshot, "own") == 0
    compact_log(done, keep_s=0.0, now_s=2**40)
    goes_on(done, reached, before)
    assert ChangeLogReader(done).positions().epoch.min() == 1, "what it has read itself"
    again = exported(given, "S2", done, capsys)
    assert {row["next_offset"] for row in again["positions"]} == {50, EVENTS - 50}


def positions(out: Path) -> list[dict[str, Any]]:
    with served(out) as lookup:
        rows = Health(lookup).figures()["positions"]
    return [{**row, "source": row["source"].rpartition("/")[2]} for row in rows]


def goes_on(out: Path, reached: dict[str, int], before: Moment) -> None:
    """A record that the export covers is covered, and times are no earlier than the export's."""
    with served(out) as lookup, EmbeddingClient(out / "tables", timeout=0.0) as client:
        number = {name.rpartition("/")[2]: at for at, name in enumerate(lookup.job.sources)}
        covered = {f"{lookup.job.sources[number[name]]}:0": offset - 1 for name, offset in reached.items()}
        assert client.get([], min_position=covered, timeout=0.0).num_rows == 0
        ahead = {key: 10_000 for key in covered}
        with pytest.raises(NotYetError, match="expected offset 10000"):
            client.get([], min_position=ahead, timeout=0.0)
        now = lookup.served.so_far(lookup.table.epoch)
        assert now.arrived_ms is not None
        assert before.arrived_ms is not None
        assert now.arrived_ms >= before.arrived_ms
        assert now.event_ts is not None
        assert before.event_ts is not None
        assert now.event_ts >= before.event_ts


def test_history_by_arrival_still_begins_with_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = given_in(tmp_path)
    first = given.run("O", parts=1, **both(given))
    exported(given, "S", first, capsys)
    times = orjson.loads((given.folder / "S" / "snapshot.json").read_bytes())["times"]
    assert times["event_ts"] == 1000 + EVENTS - 1
    out = given.run("O2", "S", parts=1, **both(given))
    asked = np.array([times["as_of_ms"], 2**45])
    assert epochs_at(LogFolders(out), asked, By.ARRIVAL, 0).epochs.tolist() == [UNKNOWN, 0]
    assert epochs_at(LogFolders(out), asked[:1], By.EVENT, 0).epochs.tolist() == [0]


@pytest.mark.parametrize("times", [{"as_of_ms": -1}, {"event_ts": 2**63}, {"as_of_ms": "now"}, []])
def test_times_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], times: Any) -> None:
    given = given_in(tmp_path)
    exported(given, "S", given.run("O", parts=1, **both(given)), capsys)
    path = given.folder / "S" / "snapshot.json"
    info = read_json(path, dict[str, Any], "") or {}
    write_json(path, {**{name: one for name, one in info.items() if name != "crc32"}, "times": times})
    with pytest.raises(UsageError, match=r"snapshot\.json: times"):
        given.run("O2", "S", parts=1, **both(given))


def test_positions_that_are_ignored_are_not_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = given_in(tmp_path)
    exported(given, "S", given.run("O", parts=1, **both(given)), capsys)
    out = given.run("O2", "S", stop_after=1, parts=1, epoch_events=10_000, ignore_positions=True, **both(given))
    assert not [row for row in positions(out) if row["epoch"] == 0]
