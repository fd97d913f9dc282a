"""The server of `freshet run --flight-port`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from freshet.job.folder.run_file import read_run
from freshet.job.serving.embedded import server_of_run


def test_a_server_that_ends_before_its_run_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said, until = "", time.monotonic() + 60
    with server_of_run(0, tmp_path / "O"):
        os.kill(read_run(tmp_path / "O")["serving"]["pid"], signal.SIGKILL)
        while "another one by" not in said and time.monotonic() < until:
            time.sleep(0.05)
            said += capfd.readouterr().err
    assert "the server of --flight-port has ended (exit code -9)" in said
    assert f"freshet serve --tables {tmp_path}/O/tables" in said


def test_the_end_of_the_run_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with server_of_run(None, tmp_path / "O"):
        pass
    assert not capfd.readouterr().err
