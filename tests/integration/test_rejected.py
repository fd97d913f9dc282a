"""A job on Flink that rejects too much: it is stopped with a savepoint, and goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.job.folder.run_file import read_run
from tests.support.runs.jobs import Input, Job, make_input

pytestmark = pytest.mark.slow


def test_too_much_rejected_ends_a_job_with_its_state_kept(job: Callable[[Input], Job], tmp_path: Path) -> None:
    """By itself it would stay for ever; in the locale C, with letters in its paths."""
    stream = make_input(tmp_path / "ströme", 1_500)
    lines = stream.events.read_bytes().splitlines()
    lines[::10] = [b'{"source":1,"target":2}'] * len(lines[::10])
    stream.events.write_bytes(b"\n".join(lines))
    one = job(stream)
    one = replace(one, out=tmp_path / "größe", environ={"LC_ALL": "C"})
    ended = one.run("--stay", "--max-rejected", "5%")
    assert ended.code == 1, ended.errors
    assert ended.last_line.startswith("freshet: more was rejected than --max-rejected 5%; the state is kept")
    assert "150 of 1,500 records were rejected (10.0%): op: missing" in ended.errors
    run = read_run(one.out)
    assert (run["state"], bool(run["savepoint"])) == ("stopped", True)
    result = one.done("--resume", "latest", "--max-rejected", "off")
    assert (result["events"], result["rejected"]) == (1_500, 150)
