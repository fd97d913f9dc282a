import sys
import threading
import time
from pathlib import Path

import pytest

from freshet.operators.flink import worker as worker_module
from freshet.operators.flink.worker import Worker, WorkerError


def test_calls_run_on_one_thread_that_is_not_ours() -> None:
    worker = Worker("storage1")
    threads = {worker.call(threading.get_ident) for _ in range(5)}
    worker.stop()
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_comes_back_as_text_and_the_worker_goes_on(tmp_path: Path) -> None:
    def fail(key: str) -> None:
        raise KeyError(key)

    worker = Worker("storage1", tmp_path / "logs" / "errors.log")
    with pytest.raises(WorkerError, match=r"^storage1: KeyError: 'row 7'$") as caught:
        worker.call(fail, "row 7")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "in fail" in (tmp_path / "logs" / "errors.log").read_text()
    assert worker.call(len, "abc") == 3
    worker.stop()


def test_even_an_exit_does_not_leave_the_caller_waiting() -> None:
    worker = Worker("sink")
    with pytest.raises(WorkerError, match="SystemExit"):
        worker.call(sys.exit, 1)
    worker.stop()


def test_a_stopped_worker_refuses() -> None:
    worker = Worker("sink")
    worker.stop()
    worker.stop()
    with pytest.raises(WorkerError, match="after it was stopped"):
        worker.call(len, "abc")


def test_an_idle_worker_says_so_and_survives_what_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "IDLE_S", 0.01)
    idle: list[int] = []

    def on_idle() -> None:
        idle.append(threading.get_ident())
        message = "no space left"
        raise OSError(message)

    worker = Worker("sink", tmp_path / "errors.log", on_idle)
    deadline = time.monotonic() + 60
    while len(idle) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker.call(threading.get_ident) in set(idle), "on the worker's own thread, which goes on"
    worker.stop()
    assert len(idle) >= 3
    assert (tmp_path / "errors.log").read_text().count("OSError: no space left") == 1, "told once"
