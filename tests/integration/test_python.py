"""Jobs from Python: a graph of PyTorch Geometric to served embeddings, and the ends of kernels."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import freshet
from freshet.errors import CheckFailedError, JobTimeoutError, UsageError
from freshet.job.folder.run_file import read_run
from freshet.job.status.report import report
from tests.support.runs.jobs import Input, make_input

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"runtime": "local", "epoch_events": 1, "epoch_ms": 0}  # some 500 events a second
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("given"), 60_000)


def inputs(given: Input) -> dict[str, Any]:
    return {"model": given.model, "events": given.events}


def test_from_data_and_a_module_to_served_embeddings(tmp_path: Path) -> None:
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
    torch.manual_seed(1)
    edge_index = torch.tensor([[0, 1, 1, 3, 2], [1, 2, 2, 0, 3]])  # one of which is there twice
    data = pyg.data.Data(x=torch.randn(4, 3), edge_index=edge_index)
    module = pyg.nn.GraphSAGE(3, 8, num_layers=2, out_channels=2).eval()
    freshet.export_model(module, tmp_path / "M")
    snapshot = freshet.write_snapshot(data, tmp_path / "S", ids=["a", "b", "c", "d"])
    (tmp_path / "e.jsonl").write_bytes(orjson.dumps({"op": "add_edge", "src": "a", "dst": "d"}) + b"\n")
    embedded = freshet.embed(model=tmp_path / "M", snapshot=snapshot, out=tmp_path / "S2", memory=1 << 30)
    assert embedded.vertices == 4

    job = freshet.run(
        model=tmp_path / "M",
        snapshot=tmp_path / "S2",
        events=[tmp_path / "e.jsonl"],
        out=tmp_path / "O",
        runtime="local",
    )
    summary = job.wait(timeout=DEADLINE_S)
    assert summary.events == 1 and summary.rejected == 0 and summary == job.summary and job.state == "ended"
    assert "ended" in repr(job) and "<progress value='1.0000'" in job._repr_html_()
    more = torch.cat([edge_index, torch.tensor([[0], [3]])], 1)
    for as_of, edges in ((0, edge_index), (None, more)):
        rows = freshet.read_changes(job, as_of=as_of, newest=True).sort_by("id")
        assert rows["id"].to_pylist() == ["a", "b", "c", "d"]
        with torch.no_grad():
            expected = module(data.x, edges).numpy()
        np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), expected, rtol=1e-5, atol=1e-6)
    with job.client() as client:
        np.testing.assert_allclose(client.get(["d"])["embedding"][0].as_py(), expected[3], rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match="--kind shop: the embeddings of") as wrong:
        job.client(kind="shop")
    assert wrong.value.option == "--kind"
    job.close()
    asked: dict[str, Any] = {
        "model": tmp_path / "M",
        "snapshot": snapshot,
        "events": [tmp_path / "e.jsonl"],
        "out": job,
    }
    checked = freshet.check(**asked, oracle="own")
    assert checked.ok and checked.missing == checked.extra == 0 and checked.vertices == 4
    with pytest.raises(CheckFailedError, match="not those of a full pass") as caught:
        freshet.check(**asked, oracle="own", tolerance=0)
    assert not caught.value.result.ok and caught.value.result.vertices == 4


def test_wrong_use_that_the_job_finds_is_raised_at_the_call(given: Input, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(UsageError, match="not empty: it has notes; give a new folder") as caught:
        freshet.run(**inputs(given), out=tmp_path, runtime="local")
    assert caught.value.option == "--out"


KERNEL = """
import sys, time, freshet
model, events, out = sys.argv[1:4]
freshet.run(model=model, events=events, out=out, runtime="local", epoch_events=1, epoch_ms=0, detach=len(sys.argv) > 4)
print("begun", flush=True)
time.sleep(600)
"""


def test_a_job_ends_with_a_killed_kernel_unless_it_is_detached(given: Input, tmp_path: Path) -> None:
    ends, goes_on = tmp_path / "ends", tmp_path / "goes_on"
    kernels = [
        subprocess.Popen(
            [sys.executable, "-c", KERNEL, str(given.model), str(given.events), str(out), *more],
            stdout=subprocess.PIPE,
            text=True,
        )
        for out, more in ((ends, ()), (goes_on, ("detached",)))
    ]
    for kernel in kernels:
        assert kernel.stdout is not None and kernel.stdout.readline() == "begun\n"
        kernel.send_signal(signal.SIGKILL)
        kernel.communicate()
    job = freshet.run(**inputs(given), out=goes_on, resume="auto", **LONG)
    assert job.state == "running" and job.log == "", "another handle of the job that goes on"
    with pytest.raises(JobTimeoutError, match="it goes on"):
        job.wait(timeout=0.1)
    until_stopped(ends)
    until_events(goes_on)
    assert job.stop().state == "stopped" and job.state == "stopped"
    assert job.wait().events == job.summary.events > 0
    again = freshet.run(**inputs(given), out=ends, resume="latest", **LONG)
    with again:
        assert again.state == "running"
    assert again.state == "stopped" and again.stop() == again.stop()


def until_events(out: Path) -> None:
    """Wait until a job has read events; one that is stopped earlier has no figures to sum up."""
    deadline = time.monotonic() + DEADLINE_S
    while not report(out)["events"]:
        assert time.monotonic() < deadline, read_run(out)
        time.sleep(0.1)


def until_stopped(out: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while read_run(out).get("state") != "stopped":
        assert time.monotonic() < deadline, read_run(out)
        time.sleep(0.1)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, even where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_kernel_stops_a_flink_job_with_a_savepoint(given: Input, tmp_path: Path) -> None:
    job = freshet.run(**inputs(given), out=tmp_path / "O", stay=True, checkpoint_interval=3600)

    def interrupt() -> None:
        while job.status().get("epoch", 0) < 1:
            time.sleep(0.1)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        job.progress(timeout=DEADLINE_S * 3)
    assert job.state == "stopped" and job.stop().savepoint is not None
    assert job.summary is not None and job.summary.events > 0
