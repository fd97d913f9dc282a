"""Where a job begins behind a snapshot: what matches, what is said, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from kafka import TopicPartition

from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.read_topics import _after
from freshet.job.options.config_file import load_run_config
from freshet.job.run.new_job import prepare
from freshet.job.run.positions import Position, match, read_positions
from freshet.job.run.resume import resume
from freshet.job.run.source_kinds import FileSource
from freshet.job.run.sources import FoundSources, find_sources, load_starts
from freshet.operators.parser.event_files import EventFileError
from freshet.operators.parser.stages import read_plan
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import IN_WIDTH, conv, make_model

SNAPSHOT = Path("S")
TOPIC = "kafka://old-broker:9092/changes"


def sources(folder: Path, *names: str) -> FoundSources:
    for name in names:
        if not name.startswith("kafka"):
            lines = [orjson.dumps({"op": "add_vertex", "id": k}) for k in range(10)]
            (folder / name).write_bytes(b"\n".join(lines))
    return find_sources([name if name.startswith("kafka") else str(folder / name) for name in names])


def position(source: str, following: int, partition: int = 0, records: int | None = None) -> Position:
    return Position(source=source, partition=partition, next_offset=following, records=records)


def test_files_go_by_name_and_topics_by_topic(tmp_path: Path) -> None:
    given = sources(tmp_path, "new.jsonl", "a.jsonl", "kafka://new-broker:1/changes")
    covered = [position(str(tmp_path / "a.jsonl"), 4, records=10), position(TOPIC, 7), position(TOPIC, 0, 1)]
    said: list[str] = []
    starts = match(covered, given, SNAPSHOT, said.append)
    assert starts == {1: {0: 4}, 2: {0: 7, 1: 0}}
    assert said == [
        f"{tmp_path / 'a.jsonl'}: S covers 4 records; reading on from there",
        "kafka://new-broker:1/changes: S covers what is before offset 7 in partition 0, 0 in partition 1; "
        "reading on from there",
    ]
    firsts = {0: 0, 1: 4}
    chunks = [chunk for file in given.files for chunk in FileSource.plan(file, firsts[file.source]).chunks]
    assert [(chunk.source, chunk.first, chunk.count) for chunk in chunks] == [(0, 0, 10), (1, 4, 6)]


def test_another_way_to_write_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sources(tmp_path, "a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert match([position("./a.jsonl", 4)], given, SNAPSHOT, lambda _: None) == {0: {0: 4}}


def test_what_is_covered_whole_or_not_at_all_need_not_be_given(tmp_path: Path) -> None:
    given = sources(tmp_path, "b.jsonl")
    covered = [position("a.jsonl", 10, records=10), position("c.jsonl", 0, records=5)]
    assert match(covered, given, SNAPSHOT, lambda _: None) == {}


@pytest.mark.parametrize(
    ("covered", "message"),
    [
        (position("a.jsonl", 4, records=10), r"S covers a\.jsonl up to 4 of 10, but got .*b\.jsonl: give it too"),
        (position(TOPIC, 4, 3), "S covers partition 3 of kafka://old-broker:9092/changes up to 4, but"),
    ],
)
def test_events_behind_the_snapshot_that_are_left_out(tmp_path: Path, covered: Position, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        match([covered], sources(tmp_path, "b.jsonl"), SNAPSHOT, lambda _: None)
    assert "write that into S/snapshot.json" in str(refused.value)
    assert "`ignore-positions: true` in --config" in str(refused.value)


def test_a_file_given_twice(tmp_path: Path) -> None:
    given = sources(tmp_path, "a.jsonl", "a.jsonl")
    with pytest.raises(UsageError, match="is given twice"):
        match([position(str(tmp_path / "a.jsonl"), 4)], given, SNAPSHOT, lambda _: None)


def test_positions_that_are_none() -> None:
    assert read_positions({}, SNAPSHOT) == []
    with pytest.raises(UsageError, match=r"snapshot\.json: positions\.0\.next_offset: got -1"):
        read_positions({"positions": [{"source": "a", "next_offset": -1}]}, SNAPSHOT)


def test_a_topic_goes_on_where_its_offsets_still_are() -> None:
    address = KafkaAddress.parse(TOPIC)
    first = {TopicPartition("changes", partition): 3 for partition in range(3)}
    end = dict.fromkeys(first, 9)
    begin = _after({0: 5, 1: 9}, address, first, end)
    assert [begin[place] for place in sorted(begin)] == [5, 9, 3], "a partition that came later begins at its beginning"
    for covered in ({0: 2}, {0: 10}, {7: 1}):
        with pytest.raises(UsageError, match="messages are gone, or it is another topic"):
            _after(covered, address, first, end)


# -- a job that is prepared -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, events, and a snapshot that covers four of them."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    sources(tmp_path, "a.jsonl")
    write(tmp_path, undirected=False)
    return tmp_path


def write(folder: Path, following: int = 4, **info: Any) -> None:
    covered = position(str(folder / "a.jsonl"), following, records=10).to_dict()
    x = np.ones((4, IN_WIDTH), np.float32)
    write_snapshot(folder / "S", range(4), x, [0, 1], [1, 2], info={"positions": [covered], **info})


def config_of(folder: Path, **options: Any) -> Any:
    given = {"model": folder / "model", "events": [str(folder / "a.jsonl")], "out": folder / "out"}
    return load_run_config({**given, "snapshot": folder / "S", **options})


def assert_resumes(folder: Path, records: int) -> None:
    """The job goes on with so many records; where files came or grew since it began, the way on is named."""
    run_file.update_run(folder / "out", pids={})
    _, job = resume(config_of(folder, resume="latest"), folder / "out")
    assert job.sources.records == records
    (folder / "a.jsonl").write_bytes((folder / "a.jsonl").read_bytes() + b"\n{}\n")
    (folder / "later.jsonl").write_bytes(b"{}\n")
    both = [str(folder / name) for name in ("later.jsonl", "a.jsonl")]
    way = r"Go on by `freshet export --out S .*`, then `freshet run --snapshot S`"
    with pytest.raises(UsageError, match=rf"a\.jsonl has 11 records now and had 10; .*{way}"):
        resume(config_of(folder, resume="latest"), folder / "out")
    with pytest.raises(UsageError, match=rf"had 10, .*later\.jsonl is new; .*{way}"):
        resume(config_of(folder, resume="latest", events=both), folder / "out")


def test_a_job_begins_behind_it_and_goes_on_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(config_of(folder), folder / "out").sources.records == 6
    assert "S covers 4 records; reading on from there" in capsys.readouterr().err
    assert load_starts(folder / "out") == {0: 4}
    assert_resumes(folder, records=6)


def test_all_of_a_file_may_be_covered(folder: Path) -> None:
    write(folder, 10)
    assert prepare(config_of(folder), folder / "out").sources.records == 0
    assert_resumes(folder, records=0)


def test_positions_can_be_ignored(folder: Path) -> None:
    assert prepare(config_of(folder, ignore_positions=True), folder / "out").sources.records == 10
    assert read_plan(folder / "out" / "job" / "chunks.jsonl")[0].first == 0


def test_another_file_by_that_name(folder: Path) -> None:
    write(folder, 11)
    with pytest.raises(EventFileError, match=r"a\.jsonl: has 10 records, but 11 are recorded as read"):
        prepare(config_of(folder), folder / "out")
    assert not (folder / "out" / "job" / "job.json").exists()


def test_the_graph_of_an_undirected_job_asks_for_the_flag(folder: Path) -> None:
    write(folder, undirected=True)
    with pytest.raises(UsageError, match=r"the graph of an undirected job .* give --undirected"):
        prepare(config_of(folder), folder / "out")
    assert prepare(config_of(folder, undirected=True), folder / "out").sources.records == 6
