"""A job as a Flink application: the JobManager runs its program, as Flink's operator for Kubernetes has it."""

from pathlib import Path

from freshet.job.folder import run_file
from freshet.job.lifecycle.job_state import ENDED, state_of
from tests.support.flink.high_availability import application, await_true, write_events
from tests.support.runs.jobs import ROOT, Input, Job

MODEL = ROOT / "tests" / "data" / "state" / "format-2" / "model"


def test_the_program_takes_a_job_to_its_end(tmp_path: Path) -> None:
    events, out = tmp_path / "e.jsonl", tmp_path / "out"
    write_events(events, 50, 950, 6, 1)
    options = {"model": str(MODEL), "events": [str(events)], "out": str(out), "epoch-events": 100, "epoch-ms": 0}
    cluster = application(tmp_path / "application", ROOT, options)
    with cluster:
        await_true(lambda: "summary" in run_file.read_run(out), 300, "the end of the job")
        assert (cluster.folder / "tmp" / "pyflink").is_dir(), "what Flink's client copies goes with the cluster"
        run = run_file.read_run(out)
        assert (state_of(out).state, run["cluster"], run["summary"]["epochs"]) == (ENDED, cluster.rest, 10)
    assert Job(Input(MODEL, events, 1000), out).check("--oracle", "own")["epoch"] == 10
