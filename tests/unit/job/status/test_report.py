"""`freshet status` of a job that has run here, and of folders that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job import cli
from freshet.job.folder import run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.run import runner
from freshet.job.status import page
from tests.support.graphs.models import IN_WIDTH, conv, make_model


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of the local runtime that has taken in its input, with two bad records."""
    folder = tmp_path_factory.mktemp("job")
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), folder / "model")
    lines = [orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) for n in range(40)]
    (folder / "events.jsonl").write_bytes(b"\n".join([*lines, b"{", b'{"op":"fly"}']))
    options = {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / "out"}
    runner.run(load_run_config({**options, "runtime": "local", "epoch_events": 10, "epoch_ms": 0}))
    return folder / "out"


def status(out: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["status", str(out), *options])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


def told(out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code, text, _ = status(out, "--json", *options, capsys=capsys)
    assert code == 0
    found: dict[str, Any] = orjson.loads(text)
    return found


def test_a_finished_job_in_one_object(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, summary = told(finished, capsys), run_file.read_run(finished)["summary"]
    assert (found["state"], found["epoch"]) == ("ended", 4)
    for name in ("events", "rejected", "reasons", "vertices", "rows"):
        assert found[name] == summary[name], name
    assert found["events_per_s_mean"] == summary["events_per_s"]
    assert (found["events_per_s"], found["lag"], found["lag_total"]) == (0.0, {"files": 0}, 0)
    assert found["freshness_ms_p50"] == summary["latency_ms_p50"]
    assert found["freshness_ms_p99"] == summary["latency_ms_p99"]
    assert 0 <= found["checkpoint_age_s"] < 300
    assert (found["parts"], found["processes"], found["job_id"], found["servers"]) == (1, 1, None, [])
    assert list(found["operators"]) == ["parser", "partitioner", "storage0", "storage1", "sink", "commit"]
    assert all(0 <= one["busy_mean"] <= 1 and one["busy"] is None for one in found["operators"].values())


def test_the_page_says_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = status(finished, capsys=capsys)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split(maxsplit=1) == ["job", "ended: all input is taken in"]
    assert "events      42" in text
    assert any(line.split(maxsplit=1)[0] == "1" and "op: expected one of" in line for line in lines), "by reason"
    assert any(line.startswith("storage1 ") for line in lines)


def test_a_watch_ends_with_the_job(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(status(finished, "--json", "--watch", capsys=capsys)[1].splitlines()) == 1
    first = page.report(finished)
    states = iter(["running", "running", "lost"])
    monkeypatch.setattr(page, "EVERY_S", 0.01)
    monkeypatch.setattr(page, "report", lambda _out: {**first, "state": next(states)})
    code, text, _ = status(finished, "--json", "--watch", capsys=capsys)
    assert code == 0
    assert [orjson.loads(line)["state"] for line in text.splitlines()] == ["running", "running", "lost"]


def test_what_was_told_before_a_kill_is_no_present(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(run_file.read_run(finished))
    run_file.update_run(finished, state=run_file.RUNNING, pids={"client": 1 << 22}, client_began_s=1.0)
    found = told(finished, capsys)
    assert (found["state"], found["events_per_s"], found["servers"]) == ("lost", 0.0, [])
    assert {one["busy"] for one in found["operators"].values()} == {None}
    run_file.update_run(finished, **before)


def test_a_folder_that_is_no_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, errors = status(tmp_path, "--json", capsys=capsys)
    assert (code, text) == (2, "")
    assert errors.startswith(f"freshet: {tmp_path}: no job in it")
