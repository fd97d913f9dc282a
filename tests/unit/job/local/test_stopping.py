"""A stop is heard while an epoch takes long: it is said, and after a while the process ends without that epoch."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.folder import run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.run import early_ends as stopping
from freshet.job.run import runner
from freshet.job.run.early_ends import bounded_stop
from freshet.operators.storage.layer import LayerStorage
from tests.support.graphs.models import IN_WIDTH, conv, make_model

_DEADLINE_S = 60.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "PATIENCE_S", 0.2)
    monkeypatch.setattr(stopping, "AT_ONCE_S", 0.1)


def test_work_that_ends_in_time_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stopping, "AT_ONCE_S", _DEADLINE_S)  # this process may wait long for a core
    dropped: list[int] = []
    with bounded_stop([signal.SIGINT], dropped.append):
        pass
    with bounded_stop([], dropped.append):
        pass
    assert not dropped
    assert not capsys.readouterr().err, "there is nothing to say of a stop that came at once"


def test_a_stop_amid_a_long_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], impatient: None
) -> None:
    """The third epoch hangs, as a kernel that no signal reaches; the two before it stay, and the state says so."""
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    lines = [orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) for n in range(8)]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    options |= {"runtime": "local", "epoch_events": 2, "epoch_ms": 0}
    left, ended, apply = threading.Event(), dict[str, Any](), LayerStorage.apply

    def hang(layer: LayerStorage, epoch: int, blocks: Any) -> Any:
        if epoch == 3 and threading.current_thread() is not threading.main_thread():  # where kernels are warmed up
            os.kill(os.getpid(), signal.SIGTERM)
            ended["in time"] = left.wait(_DEADLINE_S)
        return apply(layer, epoch, blocks)

    def leave(code: int) -> None:
        ended["code"], ended["run"] = code, run_file.read_run(tmp_path / "out")
        left.set()

    monkeypatch.setattr(LayerStorage, "apply", hang)
    monkeypatch.setattr(os, "_exit", leave)
    runner.run(load_run_config(options))
    said = capsys.readouterr()
    assert ended["in time"], "nobody heard the signal"
    assert ended["code"] == 128 + signal.SIGTERM
    assert ended["run"]["state"] == run_file.STOPPED
    assert "stopping: the epochs under way have" in said.err
    assert "stopped amid an epoch" in said.err and "--resume latest" in said.err
    assert orjson.loads(said.out.splitlines()[0])["events"] <= 4
