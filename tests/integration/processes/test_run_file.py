"""The process of `run.json` is known by its number and by when it began: numbers are given out again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.folder.run_file import running_process, this_process, update_run
from freshet.job.machine.processes import began_s
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import HandJob


@pytest.fixture
def other() -> Iterator[int]:
    """A process that lives."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        yield child.pid
        child.kill()


def test_a_process_that_has_the_number_of_one_that_ended_is_another(tmp_path: Path, other: int) -> None:
    fields = this_process() | {"pids": {"client": other}}
    update_run(tmp_path, **fields | {"client_began_s": began_s(other)})
    assert running_process(tmp_path) == other
    update_run(tmp_path, client_began_s=began_s(other) - 60)
    assert running_process(tmp_path) is None
    update_run(tmp_path, client_began_s=began_s(other), host="elsewhere")
    assert running_process(tmp_path) is None, "of another machine nothing is known"
    update_run(tmp_path, **this_process())
    assert running_process(tmp_path) is None, "this one is not another one"


def test_a_job_whose_number_another_process_has_is_over(tmp_path: Path, other: int) -> None:
    """So a server says that it was killed, and does not wait for it for ever."""
    hand = HandJob(tmp_path / "O")
    job = ServedJob.read(hand.out)
    assert job is not None
    fields = this_process() | {"state": "running", "pids": {"client": other}}
    update_run(hand.out, **fields | {"client_began_s": began_s(other)})
    assert not job.is_over()
    update_run(hand.out, client_began_s=began_s(other) - 60)
    assert job.is_over()
    assert os.getpid() != other
    hand.close()
