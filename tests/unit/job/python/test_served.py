"""The server of a job from Python: that of `flight_port`, even if it comes later than the client is asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from freshet.job.folder.run_file import update_run
from freshet.job.python import served
from tests.support.serving.served import Served


def test_the_server_that_the_job_starts_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Served(tmp_path / "O", "int")
    there.hand.apply(2, ({7: 1.0}, []))
    there.until(2)

    def refuse(*_given: object) -> None:
        raise AssertionError("a second server was started")

    monkeypatch.setattr(served, "CommandProcess", refuse)
    address = {"flight": f"127.0.0.1:{there.port}", "pid": os.getpid()}
    come = threading.Timer(0.5, lambda: update_run(there.hand.out, serving=address))
    come.start()
    server = served.ServerOfJob(there.hand.out, comes=lambda: True)
    try:
        assert server.client(None, 60.0).get([7], timeout=60.0).num_rows == 1
    finally:
        come.join()
        server.close()
        there.close()
