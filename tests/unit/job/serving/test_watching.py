"""`freshet watch` of a job that does something between two looks at it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from freshet.files.json_file import write_json
from freshet.job.commands.watch import watch
from freshet.job.errors import UsageError
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.folder import run_file
from freshet.job.serving.tables import served_job
from freshet.job.serving.tables.served_job import ServedJob
from freshet.job.serving.tables.watching import Watch
from tests.support.serving.hand_job import HandJob


@pytest.mark.parametrize("after", ["complete_epoch", "is_over"])
def test_the_last_epochs_of_a_job_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """It writes them, and ends, after nothing was there for a while."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), marker=1)
    hand.settle()
    job, missed, ended = ServedJob.read(hand.out), list[int](), list[bool]()
    assert job is not None
    watch, former = Watch(job, lambda first, last: missed.extend((first, last))), getattr(ServedJob, after)

    def ends(one: ServedJob, *given: float) -> object:
        monkeypatch.setattr(ServedJob, after, former)
        found = former(one, *given)
        hand.apply(2, ({2: 2.0}, []), marker=2)
        hand.close()
        ended.append(True)
        return found

    monkeypatch.setattr(ServedJob, "is_over", lambda *_: bool(ended))
    former = getattr(ServedJob, after)
    monkeypatch.setattr(ServedJob, after, ends)
    assert [epoch for epoch, _ in watch.epochs(lambda: False)] == [2]
    assert missed == []
    watch.close()


@pytest.mark.parametrize(
    ("word", "is_over"), [("RUNNING", False), ("RESTARTING", False), ("FINISHED", True), ("FAILED", True), (None, True)]
)
def test_a_job_on_a_cluster_outlives_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str | None, is_over: bool
) -> None:
    """Such as one that `run --detach` has left there."""

    def state(_rest: FlinkRest) -> str:
        if word is None:
            raise FlinkRestError("connection refused")
        return word

    monkeypatch.setattr(FlinkRest, "state", state)
    hand = HandJob(tmp_path / "O")
    job = ServedJob.read(hand.out)
    assert job is not None
    gone = {"host": socket.gethostname(), "pids": {"client": 4_000_000}, "started_ms": 1}
    write_json(hand.out / run_file.RUN, {"state": run_file.RUNNING, **gone})
    assert job.is_over()
    run_file.update_run(hand.out, cluster="c:1", rest="c:1", job_id="f" * 32)
    assert job.is_over() == is_over
    hand.close()


@pytest.mark.parametrize("below", ["tables", "tables/user"])
def test_tables_that_a_job_is_about_to_make_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    def waits(tables: Path, *_: object) -> ServedJob:
        raise UsageError(str(tables))

    monkeypatch.setattr(served_job, "await_job", waits)
    with pytest.raises(UsageError, match=f"^{tmp_path / 'O' / below}$"):
        watch(at=str(tmp_path / "O" / below))


@pytest.mark.parametrize("given", ["O", "nowhere", "O/tables"])
def test_errors_of_watch_name_its_own_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    (tmp_path / "O").mkdir()
    monkeypatch.setattr(served_job, "await_job", partial(_without_wait, served_job.await_job))
    with pytest.raises(UsageError, match=f"^--at {tmp_path / given}: ") as caught:
        watch(at=str(tmp_path / given))
    assert "--tables" not in str(caught.value)


def _without_wait(await_job: Callable[..., ServedJob], tables: Path, _timeout_s: float, *more: Any) -> ServedJob:
    return await_job(tables, 0.0, *more)
