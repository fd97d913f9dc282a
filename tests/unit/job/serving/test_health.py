"""Whether a server is ready where it hears nothing of the job's parts: on another machine, with no folder but O."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from freshet.job.folder import run_file
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import HandJob


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandJob:
    """A job with an epoch in its log; tails and beats are of another machine."""
    made = HandJob(tmp_path / "O")
    run_file.update_run(made.out, state=run_file.RUNNING)
    made.apply(1, ({2: 1.0}, []), marker=1)
    made.settle()
    monkeypatch.setattr("freshet.operators.sink.tail.reader.boot_word", lambda: 7)
    return made


class Server:
    def __init__(self, out: Path) -> None:
        job = ServedJob.read(out)
        assert job is not None
        self.follower = Follower(job, out / "tables", 1 << 20)
        self.follower.start()
        self.health = Health(Lookup(CurrentTable(out / "tables")), stale_after_s=60.0)  # a process may stand still

    def figures(self, epoch: int) -> dict[str, object]:
        for _ in range(1000):
            self.follower._asked_at = float("-inf")
            if not self.follower.step() and self.follower.table.epoch >= epoch:
                break
        self.follower._beat(0.0)
        found = self.health.figures()
        assert found["epoch"] == epoch
        return found


def test_a_server_that_sees_the_folder_alone_is_ready(hand: HandJob) -> None:
    server = Server(hand.out)
    for epoch in (1, 2):
        if epoch == 2:
            hand.apply(2, ({3: 2.0}, []), marker=2)
            hand.settle()
        figures = server.figures(epoch)
        assert (figures["ready"], figures["job"], figures["reason"]) == (True, "running", None)
        assert figures["behind_s"] < 60
    run_file.update_run(hand.out, state=run_file.FINISHED)
    server.follower._ended_at = float("-inf")
    assert server.figures(2)["job"] == "ended"
    server.follower.close(forget=True)
    hand.close()


def test_a_job_that_nobody_works_on_is_not_waited_for_either(hand: HandJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.job.serving.tables.health._ASK_S", 1e9)
    run_file.update_run(hand.out, state=run_file.FAILED)
    server = Server(hand.out)
    figures = server.figures(1)
    assert (figures["ready"], figures["job"]) == (False, "failed")
    assert "nothing was heard" in figures["reason"]
    dead = {"host": socket.gethostname(), "pids": {"client": os.getppid()}, "client_began_s": 1.0}
    run_file.update_run(hand.out, state=run_file.RUNNING, **dead)
    assert server.figures(1)["job"] == "failed", "asked now and then"
    server = Server(hand.out)
    assert server.figures(1)["job"] == "lost"
    server.follower.close(forget=True)
    hand.close()
