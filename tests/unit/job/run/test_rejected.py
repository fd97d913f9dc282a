"""What becomes of runs whose records are rejected: what is said, the exit code, and the state that is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job.folder.run_file import read_run, update_run
from freshet.job.options.config_file import load_run_config
from freshet.job.results import check as checking
from freshet.job.run import runner
from freshet.job.run.watching import RejectWatch
from freshet.job.status.page import page
from freshet.job.status.report import report
from freshet.operators.parser import files
from freshet.operators.parser.letter_box import LetterBox, LetterQueue, ReadCounts, read_counts
from tests.support.graphs.models import IN_WIDTH, conv, make_model

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs lines of events in the local runtime; returns the exit code."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")

    def call(lines: list[bytes] | None = None, **options: Any) -> int:
        if lines is not None:
            (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
        given = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
        return runner.run(load_run_config({**given, "runtime": "local", **options}))

    return call


def edges(count: int, bad_every: int = 0) -> list[bytes]:
    records: list[dict[str, Any]] = [{"op": "add_edge", "src": k % 50, "dst": k % 7} for k in range(count)]
    for record in records[::bad_every] if bad_every else ():
        record["weight"] = "heavy"
    return [orjson.dumps(record) for record in records]


def test_a_run_that_accepts_nothing_fails_and_fails_again(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([b'{"source":%d,"target":1}' % k for k in range(50)]) == 1
    said = capsys.readouterr().err
    assert "50 of 50 records were rejected (100.0%): op: missing; they are in" in said
    assert said.endswith("freshet: no record was accepted\n")
    assert "rejected 100.0%: op: missing\n" in said, "in the progress line"
    assert run(resume="latest") == 1


def test_an_edge_that_the_partitioner_refuses_stands_in_its_letter_as_it_came(run: Run, tmp_path: Path) -> None:
    edge = b'{"op": "add_edge", "src": 1, "dst": 2, "attr": [1.0%s], "note": "\xc3\xa4"}'
    assert run([edge % b", 2", b"", edge % b"", edge % b", 3"]) == 0
    (letter,) = map(orjson.loads, (tmp_path / "out" / "dead_letters.jsonl").read_bytes().splitlines())
    assert (letter["offset"], letter["raw"].encode()) == (2, edge % b"")


def test_the_snapshots_kind_of_ids_is_held_against_the_columns_before_the_start(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "S").mkdir()
    rows = pa.array([[0.0] * IN_WIDTH], pa.list_(pa.float32(), IN_WIDTH))
    pq.write_table(pa.table({"id": ["a"], "x": rows}), tmp_path / "S" / "vertices.parquet")
    pq.write_table(pa.table({"src": ["a"], "dst": ["b"]}), tmp_path / "S" / "edges.parquet")
    pq.write_table(pa.table({"op": ["add_edge"], "src": [1], "dst": [2]}), tmp_path / "e.parquet")
    assert run(events=[str(tmp_path / "e.parquet")], snapshot=tmp_path / "S") == 1
    assert "column src is int64: expected strings, as the job's ids: they will be rejected" in capsys.readouterr().err


def test_without_a_record_nothing_is_rejected(run: Run) -> None:
    assert run([]) == 0
    assert run(resume="latest") == 0


def test_a_few_rejected_records_are_no_matter(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(edges(400, bad_every=200)) == 0
    assert "were rejected" not in capsys.readouterr().err


def test_too_many_rejected_end_a_run_that_can_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "CHUNK_LINES", 500)
    monkeypatch.setattr("freshet.operators.parser.letter_box._INTERVAL_MS", 0.0)
    assert run(edges(30_000, bad_every=10), max_rejected="5%", epoch_events=100) == 1
    said = capsys.readouterr().err
    assert "records were rejected (10.0%): weight: expected a number" in said
    assert "freshet: more was rejected than --max-rejected 5%; the state is kept: --resume latest goes on" in said
    stopped = read_run(tmp_path / "out")
    assert stopped["state"] == "stopped"
    assert 1_000 <= read_counts(tmp_path / "out").read < 30_000, "asked from the 1,000th record on"
    letters = (tmp_path / "out" / "dead_letters.jsonl").read_bytes().splitlines()
    assert checking.check(tmp_path / "model", [str(tmp_path / "events.jsonl")], tmp_path / "out", oracle="own") == 0
    checked = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    summary = stopped["summary"]
    assert (checked["events"], checked["rejected"]) == (summary["events"], summary["rejected"])
    assert checked["rejected"] == sum(summary["reasons"].values()) == len(letters)
    assert run(resume="latest") == 1, "the option holds until another value is given"
    assert run(resume="latest", max_rejected="20%") == 0
    ended = read_run(tmp_path / "out")
    assert (ended["state"], ended["summary"]["events"], ended["summary"]["rejected"]) == ("finished", 30_000, 3_000)


def test_a_run_that_accepts_nothing_and_was_stopped_for_it_says_both(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "CHUNK_LINES", 500)
    monkeypatch.setattr("freshet.operators.parser.letter_box._INTERVAL_MS", 0.0)
    assert run(edges(30_000, bad_every=1), max_rejected="5%") == 1
    *_, nothing, why = capsys.readouterr().err.splitlines()
    assert nothing == "freshet: no record was accepted"
    assert "than --max-rejected 5%; the state is kept" in why


def test_a_run_that_was_stopped_before_its_first_epoch_has_accepted_what_it_has(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("freshet.operators.parser.letter_box._INTERVAL_MS", 0.0)
    assert run(edges(30_000, bad_every=10), max_rejected="5%", epoch_events=1_000_000, epoch_ms=0) == 1
    summary = orjson.loads(capsys.readouterr().out)
    assert checking.check(tmp_path / "model", [str(tmp_path / "events.jsonl")], tmp_path / "out", oracle="own") == 0
    said = capsys.readouterr()
    checked = orjson.loads(said.out)
    assert checked["events"] == checked["rejected"] == summary["rejected"] == summary["events"] >= 100
    assert "records were rejected (10.0%)" in said.err


def test_too_many_of_a_few_are_judged_at_the_end(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(edges(400, bad_every=10), max_rejected="5%") == 1
    assert capsys.readouterr().err.endswith("than --max-rejected 5%; the run has taken in all of its input\n")
    assert read_run(tmp_path / "out")["state"] == "finished"
    assert run(resume="latest", max_rejected="off") == 0


@pytest.mark.parametrize(
    ("read", "rejected", "code", "expected"),
    [(2000, 0, 0, 0), (2000, 100, 0, 0), (2000, 101, 0, 1), (2000, 2000, 0, 1), (2000, 2000, 143, 143), (0, 0, 0, 0)],
)
def test_the_verdict(tmp_path: Path, read: int, rejected: int, code: int, expected: int) -> None:
    partitioner(tmp_path).report({"weight: expected a number": rejected} if rejected else {}, read=read)
    watch = RejectWatch(tmp_path, "letters.jsonl", 0.05)
    assert watch.is_too_much() == (rejected > 100)
    # of a topic that was stopped, no epoch tells of what was rejected
    assert watch.verdict({"events": 0, "rejected": 0, "reasons": {}}, code) == expected


def test_a_run_that_was_stopped_for_it_fails_whatever_came_until_the_stop(tmp_path: Path) -> None:
    """What is under way goes on to the end of its epoch: behind it, the share may be small again."""
    box, watch = partitioner(tmp_path), RejectWatch(tmp_path, "letters.jsonl", 0.05)
    box.report({"op: missing": 60}, read=1_000)
    assert watch.is_too_much()
    box.report({"op: missing": 60}, read=9_000)
    assert watch.is_too_much(), "it stays so"
    told = {"events": 9_000, "rejected": 60, "reasons": {"op: missing": 60}}
    assert watch.verdict(told, 0) == 1
    update_run(tmp_path, state="finished")
    assert watch.verdict(told, 0) == 0, "it came to its end all the same"


def test_what_is_accepted_since_counts_as_well(tmp_path: Path) -> None:
    box = partitioner(tmp_path)
    box.report({}, read=900, now=False)
    assert not (tmp_path / "status" / "letters-partitioner.json").exists()
    box.report({"op: missing": 100}, read=1000, now=False)
    box.report({"op: missing": 100}, read=5000, last=True)
    assert read_counts(tmp_path) == ReadCounts(5000, 100)
    assert RejectWatch(tmp_path, "", None).is_too_much() is False


def partitioner(out: Path) -> LetterBox:
    return LetterBox(LetterQueue(), out, "partitioner")


def test_what_replaced_and_deleted_nothing_is_counted_and_checked(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(*records: dict[str, Any]) -> list[bytes]:
        return [orjson.dumps(record) for record in records]

    paid = lines(*({"op": "add_edge", "src": 1, "dst": 2, "weight": w} for w in (10, 20, 30, 30)))
    gone = lines(*({"op": "del_edge", "src": 100 + k, "dst": 2} for k in range(3)), {"op": "del_vertex", "id": 9})
    assert run([*paid, *gone, *lines({"op": "del_edge", "src": 1, "dst": 2}, {"op": "add_vertex", "id": 1})]) == 0
    said = capsys.readouterr()
    expected = {"replaced": 3, "unchanged": 2, "nothing_deleted": 4, "tombstones_skipped": 0}
    assert orjson.loads(said.out.splitlines()[-1]).items() >= expected.items()
    assert said.err.count("4 of 5 deletions were of a vertex or an edge that was not there") == 1
    out = tmp_path / "out"
    assert report(out).items() >= expected.items()
    assert "\nnoted       replaced 3, unchanged 2, nothing deleted 4\n" in page(out, report(out))
    assert checking.check(tmp_path / "model", [str(tmp_path / "events.jsonl")], out) == 0
    update_run(out, summary=read_run(out)["summary"] | {"replaced": 2})
    assert checking.check(tmp_path / "model", [str(tmp_path / "events.jsonl")], out) == 1
    assert "wrong: the run tells of replaced: 2, its input has 3" in capsys.readouterr().err


def test_deletions_that_mostly_hit_are_no_matter(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    deletion = b'{"op":"del_edge","src":0,"dst":0}'
    assert run([*edges(10), deletion, deletion]) == 0
    assert "deletions were" not in capsys.readouterr().err
