"""`--name`: one name of a job in Flink, in `run.json`, in its status and in metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.flink.options import flink_options
from freshet.job.folder import layout, run_file
from freshet.job.options.config_file import load_run_config
from freshet.job.run.job_states import JobStates
from freshet.job.run.new_job import prepare
from freshet.job.run.resume import resume
from freshet.job.run.runner import run, spec_of
from freshet.job.serving.doors.job_metrics import of_job
from freshet.job.status.report import report
from tests.support.graphs.models import IN_WIDTH, conv, make_model

EVENTS = b"".join(orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) + b"\n" for n in range(20))


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    return {
        "model": tmp_path / "model",
        "events": [str(tmp_path / "events.jsonl")],
        "out": tmp_path / "jobs" / "payments",
    }


def test_flink_knows_a_job_by_its_name(given: dict[str, Any]) -> None:
    """A resume keeps it; the default is the last folder of --out."""
    out = given["out"]
    config = load_run_config(given)
    job = prepare(config, out)

    def in_flink(config: Any, job: Any) -> str:
        spec = spec_of(job, config, JobStates(out, job.settings.job_id, None, "--resume"))
        assert spec.name == run_file.read_run(out)["name"]
        return flink_options(spec)["pipeline.name"]

    assert in_flink(config, job) == "payments"
    for options, name in (({"name": "fraud-eu"}, "fraud-eu"), ({}, "fraud-eu"), ({"name": "Betrug EU"}, "Betrug EU")):
        run_file.update_run(out, pids={}, state="stopped")
        assert in_flink(*resume(load_run_config({**given, "resume": "latest", **options}), out)) == name


def test_status_and_metrics_have_the_name(given: dict[str, Any]) -> None:
    assert run(load_run_config({**given, "runtime": "local", "name": "fraud-eu"})) == 0
    found = report(given["out"])
    assert (found["state"], found["name"]) == ("ended", "fraud-eu")
    samples = [one for metric in of_job(given["out"]) for one in metric.samples]
    assert {one.name for one in samples} >= {"freshet_job_state", "freshet_events_total", "freshet_lag"}
    assert {one.labels["job_name"] for one in samples} == {"fraud-eu"}
    without = {name: value for name, value in run_file.read_run(given["out"]).items() if name != "name"}
    (given["out"] / layout.RUN).write_bytes(orjson.dumps(without))  # as a version before left it
    assert report(given["out"])["name"] == "payments"


def test_a_folder_gives_a_name_that_can_be_shown() -> None:
    assert layout.name_of_job(None, Path("/jobs/a/../b")) == "b"
    assert layout.name_of_job(None, Path("/")) == "freshet"
    assert layout.name_of_job(None, Path("caf\udce9\n1")) == "caf__1"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\udce9"])
def test_a_name_is_there_to_be_read(given: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=r"--name: got .*, expected characters that can be printed"):
        load_run_config({**given, "name": name})


def test_flinks_own_option_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"-D: pipeline\.name: can't be set: give --name"):
        load_run_config({**given, "flink": ["pipeline.name=x"]})
