"""How `freshet run` ends badly: the exit code is in the exception, the root cause in run.json."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import JobFailed
from freshet.job.flink import runtime
from freshet.job.flink.gateway import GatewayError
from freshet.job.folder.run_file import RUNNING, STARTING, STOPPED, read_run, this_process, update_run
from freshet.job.machine.java import JavaNotFoundError
from freshet.job.options.config_file import load_run_config
from freshet.job.run import early_ends, runner
from freshet.state.rocks_backend import RocksStore
from freshet.state.sweep import Mutations
from tests.support.graphs.models import IN_WIDTH, conv, make_model


@pytest.mark.parametrize("error", [JobFailed, GatewayError, JavaNotFoundError])
def test_what_fails_on_flink_fails_the_job(tmp_path: Path, monkeypatch: Any, error: type[Exception]) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_vertex","id":1}\n')

    def run_job(*_: object) -> None:
        msg = "the root\ncause"
        raise error(msg)

    monkeypatch.setattr(runtime, "run_job", run_job)
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    with pytest.raises(JobFailed, match="the root cause"):
        runner.run(load_run_config(options))
    run = read_run(tmp_path / "out")
    assert (run["state"], run["error"]) == ("failed", "the root cause")


def test_the_local_runtime_names_the_options_of_flink_that_it_ignores(tmp_path: Path, capfd: Any) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_vertex","id":1}\n')
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    options |= {"runtime": "local", "flink": ["s3.endpoint=http://s", "metrics.latency.interval=1 s"]}
    assert runner.run(load_run_config(options)) == 0
    assert "-D metrics.latency.interval: no effect with --runtime local" in capfd.readouterr().err


def test_state_that_can_not_be_opened_fails_the_local_job(tmp_path: Path) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_vertex","id":1}\n')
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    options |= {"runtime": "local"}
    assert runner.run(load_run_config(options)) == 0
    store = RocksStore(tmp_path / "out" / "state")
    store.commit({"partitioner": Mutations([("journal/000000000007/0", b"a block")])})
    store.close()
    update_run(tmp_path / "out", state=STOPPED)  # a job that has finished has nothing left to open it for
    with pytest.raises(JobFailed, match="7 bytes are no pointer into a value log"):
        runner.run(load_run_config(options | {"resume": "latest"}))
    run = read_run(tmp_path / "out")
    assert run["state"] == "failed"
    assert f"the state in {tmp_path}/out/state is damaged: 7 bytes are no pointer into a value log" in run["error"]
    assert "begin again in a new folder" in run["error"]


@pytest.mark.parametrize(
    ("state", "said", "becomes"),
    [
        (None, "stopped before anything was made; start it again", None),
        (STARTING, "stopped before the first epoch; go on with --resume latest", STOPPED),
        (RUNNING, "ended at once; go on with --resume latest", RUNNING),
    ],
)
def test_a_signal_that_nobody_waits_for_ends_the_process_with_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any, state: str | None, said: str, becomes: str
) -> None:
    """Of a run that is prepared and not begun `run.json` said starting; a second Ctrl-C printed a traceback."""

    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr("os._exit", leave)
    if state is not None:
        update_run(tmp_path, state=state, **this_process())
    with pytest.raises(Left) as left, early_ends.ended_by_signals(tmp_path):
        signal.raise_signal(signal.SIGINT)
    assert left.value.args == (130,)
    assert said in capfd.readouterr().err
    assert read_run(tmp_path).get("state") == becomes


def test_a_job_runs_where_kernels_could_not_be_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(progress: object, jobs: object) -> None:
        raise JobFailed("the rehearsal ended with 1")

    monkeypatch.setattr(runner, "are_ready", lambda jobs: False)
    monkeypatch.setattr(runner, "compile_ahead", fail)
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b'{"op":"add_vertex","id":1}\n')
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    assert runner.run(load_run_config(options | {"runtime": "local"})) == 0
    assert "the rehearsal ended with 1; the job will compile by itself" in capsys.readouterr().err
