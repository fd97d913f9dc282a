"""The whole job through the command line: real Flink, real processes, real kills."""

from __future__ import annotations

import os
import random
import signal
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.leftovers import what_is_in
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.telemetry.load import read_loads
from tests.support.flink.state_entries import state_bytes
from tests.support.runs.elsewhere import other_flink
from tests.support.runs.jobs import (
    ROOT,
    Input,
    Job,
    asked_of_flink,
    assert_as_uninterrupted,
    epochs_shown,
    make_input,
    read_epochs,
    read_log,
)

pytestmark = pytest.mark.slow

EVENTS = 5_600
# Four parts in one process, or in two that share the layers (TWO) or the parts (SUBTASKS); small epochs, so that there
# are many. A run in two processes takes twice the processor time of one.
SHAPE = ("--parts", 4, "--hybrid-threshold", 5, "--checkpoint-interval", "500ms")
TWO = ("--parallelism", 2)
SUBTASKS = (*SHAPE, *TWO, "--pipeline", 1)
# So slow a stream that one can stop it on the way, and so small chunks that a barrier passes soon.
SLOW = {"slow": {"parser": 500}, "chunk": 100, "lull": 40}
BRISK = {"slow": {"parser": 40}, "chunk": 100}

Make = Callable[[Input], Job]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("stream"), EVENTS)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """A stream that begins with a snapshot."""
    return make_input(tmp_path_factory.mktemp("grown"), 2_000, snapshot=True, seed=2)


def has_checkpoint(job: Job) -> bool:
    """Whether the present attempt has completed one."""
    job_id = read_run(job.out).get("job_id")
    return any(state.parent.name == job_id for state in complete_states(job.out / "checkpoints"))


def assert_were_busy(loads: dict[str, dict[str, Any]]) -> None:
    """Where the machine stands still meanwhile, the share of an operator that does little is 0.000."""
    assert all(0 <= load["busy_mean"] <= 1 for load in loads.values()), loads
    assert loads["storage1"]["busy_mean"] > 0, loads


def test_a_stream_to_its_end(job: Make, grown: Input, tmp_path: Path) -> None:
    """By `hdrf`, where another Flink is; other tests have the default, tests/property and kills all partitioners."""
    one = job(grown)
    one.environ = other_flink(tmp_path / "other")
    result = one.done(*SUBTASKS, "--partitioner", "hdrf", "--epoch-events", 150, "--epoch-ms", 0)
    assert (result["events"], result["rejected"], result["epochs"]) == (grown.count, 0, 14)
    check = one.check()
    assert (check["epoch"], check["vertices"]) == (14, result["vertices"])
    assert read_log(one.out).epoch[0] == 0, "the snapshot's embeddings"
    run = read_run(one.out)
    assert (run["state"], run["epoch"]) == ("finished", 14)
    assert list(run["profile_seconds"])[:3] == ["parser", "partitioner", "storage0"]
    assert run["profile"]["sink"]["acts"] == 14 * 2, "one act an epoch for the two parts of a subtask"
    assert run["profile"]["sink"]["subtasks"] == 2
    loads = read_loads(one.out, running=False)
    assert list(loads) == list(run["profile"]), "each operator once"
    assert {load["subtasks"] for load in loads.values()} == {1, 2}
    assert_were_busy(loads)
    assert run["levels"]["in_flight_bytes"]["now"] == 0, "every byte that was handed to Flink was taken from it"
    assert sum(counts["bytes_in"] for counts in run["profile"].values()) > 0


def test_stop_resume_signal_and_an_older_savepoint_with_other_parallelism(job: Make, stream: Input) -> None:
    one = job(stream)
    one.start(*SHAPE, "--epoch-events", 40, "--epoch-ms", 0, faults=SLOW)
    one.until_epoch(30)
    now = one.status()
    assert (now["state"], now["job_id"], now["parts"]) == ("running", read_run(one.out)["job_id"], 4)
    assert now["processes"] == 1
    assert 1200 <= now["events"] == stream.count - now["lag_total"]
    assert now["events_per_s"] > 0 and 0 < now["freshness_ms_p50"] <= now["freshness_ms_p99"]
    assert {"parser", "storage1", "tail1", "sink"} <= now["operators"].keys()
    assert all(0 <= load["busy"] <= 1 for load in now["operators"].values())
    stopped = one.stop()
    assert stopped.code == 0, stopped.errors
    first = stopped.result
    assert one.wait().code == 0
    assert Path(first["savepoint"]).is_dir()
    assert 30 <= first["epoch"] == read_epochs(one.out)[-1][0] < EVENTS // 40
    assert one.check()["epoch"] == first["epoch"], "complete up to the stated epoch"
    assert one.stop().code == 2, "nothing runs any more"
    now = one.status()
    assert (now["state"], now["epoch"], now["events_per_s"]) == ("stopped", first["epoch"], 0)
    assert 0 <= now["checkpoint_age_s"] < 300

    # The job waits for the last files of its sinks, also where Flink calls it ended before it drops them: its processes
    # must live until then.
    process = one.start("--resume", "latest", *TWO, faults={**SLOW, "late": 2_500})
    one.until_epoch(first["epoch"] + 20)
    assert one.status()["processes"] == 2
    os.killpg(process.pid, signal.SIGINT)
    ended = one.wait()
    assert ended.code == 130, ended.errors
    assert not (one.out / "logs" / "python-errors.log").exists(), "no operator took the signal"
    second = read_run(one.out)
    assert f"with savepoint {second['savepoint']}; the output is complete up to epoch {second['epoch']}" in ended.errors
    assert first["epoch"] + 20 <= second["epoch"] == read_epochs(one.out)[-1][0] < EVENTS // 40
    assert one.check()["epoch"] == second["epoch"]

    # From the older of the two: what was cut since is cut again as it was, and only then by the new size.
    result = one.done("--resume", first["savepoint"], "--parallelism", 1, "--epoch-events", 100)
    after = -(-(stream.count - 40 * second["epoch"]) // 100)
    assert (result["events"], result["epochs"]) == (stream.count, second["epoch"] + after)
    assert_as_uninterrupted(one, "--parts", 4, "--hybrid-threshold", 5)
    again = one.run("--resume", "latest")
    assert (again.code, again.result) == (0, result)
    assert again.last_line.startswith("nothing left to do")


@pytest.mark.long
def test_operators_that_fail_on_the_way(job: Make, stream: Input, tmp_path: Path) -> None:
    one = job(stream)
    # In the order of the flow: nothing after an operator that fails gets as far as to fail in the same attempt.
    places = [("storage1", 1, 30), ("tail2", 0, 70), ("sink", 1, 110)]
    fail = [{"operator": o, "part": p, "epoch": e, "folder": str(tmp_path)} for o, p, e in places]
    # It tells of restarts while the job runs: the end waits for the last one.
    one.start(*SUBTASKS, "--epoch-events", 40, "--epoch-ms", 3, faults={**BRISK, "lull": 46, "fail": fail})
    one.until(lambda: one.log().count("restarted after: ") >= 3)
    one.hurry()
    ended = one.wait()
    assert ended.code == 0, ended.errors
    assert all((tmp_path / f"failed-{o}-{p}-{e}").exists() for o, p, e in places)
    assert ended.errors.count("restarted after: ") == 3
    assert "restarted after: storage1: RuntimeError: on purpose" in ended.errors
    assert ended.result["events"] == stream.count
    assert_as_uninterrupted(one, "--parts", 4, "--hybrid-threshold", 5)


@pytest.mark.long
def test_epochs_that_adapt_come_back_as_they_were(job: Make, stream: Input, tmp_path: Path) -> None:
    """After a restart within the processes, and after a kill; what was under way then counts no more."""
    one = job(stream)
    fail = [{"operator": "storage2", "part": 0, "epoch": 20, "folder": str(tmp_path)}]
    one.start(*SHAPE, *TWO, "--latency-target", "50ms", "--epoch-events", 60, faults={**SLOW, "fail": fail})
    one.until(lambda: has_checkpoint(one))
    one.until_epoch(40)
    one.kill()
    ended = one.run("--resume", "latest", "--parallelism", 1, faults=BRISK)
    assert ended.code == 0, ended.errors
    assert (tmp_path / "failed-storage2-0-20").exists()
    saved = SavedJob.read(one.out)
    assert saved is not None
    assert (saved.settings.sealing.latency_target_ms, saved.settings.sealing.epoch_events) == (50, 60)
    assert ended.result["events"] == stream.count
    assert max(events for *_, events in read_epochs(one.out)) <= 60
    assert read_run(one.out)["levels"]["partitioner.epochs_under_way"]["peak"] >= 1
    assert_as_uninterrupted(one, "--parts", 4, "--hybrid-threshold", 5)


def test_epochs_adapt_in_the_local_runtime_too(job: Make, stream: Input) -> None:
    one = job(stream)
    one.start("--runtime", "local", "--parts", 2, "--latency-target", "50ms", "--epoch-events", 60, faults=SLOW)
    one.until_epoch(20)
    one.kill()
    assert one.done("--resume", "latest")["events"] == stream.count
    sizes = {events for *_, events in read_epochs(one.out)}
    assert max(sizes) == 60
    assert len(sizes) > 1, "some were not full when nothing else was under way"
    one.check()
    loads = read_loads(one.out, running=False)
    assert list(loads)[:4] == ["parser", "partitioner", "storage0", "storage1"]
    assert_were_busy(loads)


def test_kill_9_at_random_moments_with_epochs_cut_by_time(job: Make, stream: Input) -> None:
    seed = int(os.environ.get("FRESHET_SEED", "7"))
    print("FRESHET_SEED", seed)
    rng = random.Random(seed)
    one = job(stream)
    options: tuple[object, ...] = (*SHAPE, *TWO, "--epoch-events", 60, "--epoch-ms", 5)
    moments: list[int] = []
    shown: dict[int, Any] = {}
    for attempt in range(2):
        one.start(*options, faults=SLOW)
        options = ("--resume", "latest", "--parallelism", 1)
        if attempt == 0:  # while it streams; else while it starts
            reached = progress(one.out)["epoch"] + 20
            one.until(lambda: has_checkpoint(one))
            one.until_epoch(reached)
            one.until(lambda: len(epochs_shown(one.out)) > 10)
            time.sleep(rng.uniform(0, 1))
        else:
            time.sleep(rng.uniform(2, 12))
        before, shown = shown, epochs_shown(one.out)
        assert before.items() <= shown.items(), "what was seen has not changed"
        one.kill()
        moments.append(progress(one.out)["epoch"])
        if attempt == 1:  # checkpoints know their files by absolute paths
            one.out = one.out.rename(one.out.with_name("moved to another place"))
    print("killed at epochs", moments)
    result = one.done(*options)
    assert result["events"] == stream.count
    epochs = read_epochs(one.out)
    assert len(shown) > 10 and shown.items() <= epochs_shown(one.out).items()
    assert [row[0] for row in epochs] == list(range(len(epochs)))
    sizes = [row[3] for row in epochs[1:]]
    assert sum(sizes) == stream.count
    assert epochs[-1][2] == stream.count, "each epoch names the input that it ends with"
    assert min(sizes[:-1]) < 60, "some were cut by time"
    assert_as_uninterrupted(one, "--parts", 4, "--hybrid-threshold", 5)


def test_kill_9_of_the_local_runtime(job: Make, stream: Input) -> None:
    seed = int(os.environ.get("FRESHET_SEED", "7"))
    print("FRESHET_SEED", seed)
    rng = random.Random(seed)
    one = job(stream)
    options: tuple[object, ...] = ("--runtime", "local", "--parts", 3, "--epoch-events", 40)
    options += ("--checkpoint-interval", "300ms")
    for _ in range(2):
        one.start(*options, faults=SLOW)
        options = ("--resume", "latest")
        before = progress(one.out)["epoch"]
        one.until(lambda before=before: progress(one.out)["epoch"] > before)
        time.sleep(rng.uniform(0, 0.7))
        one.kill()
        assert one.status()["state"] == "lost"
    process = one.start(*options, faults=SLOW)
    one.until(lambda: read_run(one.out)["pids"]["client"] == process.pid and read_run(one.out)["state"] == "running")
    stopped = one.stop()
    assert stopped.code == 0, stopped.errors
    assert stopped.result["savepoint"] is None
    ended = one.wait()
    assert ended.code == 143
    assert f"complete up to epoch {stopped.result['epoch']}; go on with --resume latest" in ended.errors
    assert one.check()["epoch"] == stopped.result["epoch"]
    assert one.done(*options)["events"] == stream.count
    assert_as_uninterrupted(one, "--parts", 3)


@pytest.mark.long
def test_two_jobs_share_a_folder_for_checkpoints(job: Make, tmp_path: Path) -> None:
    """One is killed while the other comes to its end: it has its own log and state, and they are there."""
    stream = make_input(tmp_path / "small", 3_000)
    shared, epochs = tmp_path / "shared", ("--epoch-events", 60, "--epoch-ms", 5)
    options = (*SHAPE, *epochs, "--checkpoint-dir", shared)
    one, other = job(stream), job(stream)
    other.out = one.out.with_name("other")
    one.start(*options, faults={**SLOW, "lull": 10})
    one.until(lambda: read_run(one.out).get("state") == "running")
    saved = SavedJob.read(one.out)
    assert saved is not None
    folder = shared / saved.settings.job_id
    one.until_epoch(5)
    one.until(lambda: bool(complete_states(folder)))
    one.kill()
    reached, states = progress(one.out)["epoch"], complete_states(folder)
    assert states
    assert other.done(*options, faults={"chunk": 500})["events"] == stream.count
    assert sorted(complete_states(folder)) == sorted(states), "the end of the other job removed nothing of this one"
    refused = other.run("--resume", states[0])
    assert refused.code == 2
    assert f"is a state of job {folder.name}, the job in {other.out} is" in refused.last_line
    assert one.done("--resume", "latest")["events"] == stream.count
    assert read_epochs(one.out)[-1][0] > reached > 0
    assert complete_states(folder) == []
    assert len(list(shared.iterdir())) == 2
    assert (folder / "cuts").is_dir()
    one.check()


def test_a_signal_while_it_prepares(job: Make, tmp_path: Path) -> None:
    one = job(make_input(tmp_path / "large", 500, vertices=10_000, snapshot=True))
    process = one.start("--runtime", "local", "--parts", 2, faults={"placed": 60_000})
    one.until(lambda: "partitioning the snapshot" in one.log())
    process.terminate()
    ended = one.wait()
    assert ended.code == 143, ended.errors
    assert ended.last_line.startswith("stopped before the first epoch; go on with --resume latest")
    assert what_is_in(one.out) is None, "the same command would begin again"
    assert one.done("--resume", "latest")["events"] == 500
    one.check()


def bytes_of(checkpoint: Path) -> int:
    """The size of a checkpoint with the files that it shares with others of its job."""
    folders = [checkpoint, checkpoint.parent / "shared"]
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())


@pytest.mark.long
def test_state_grows_with_the_graph_and_not_with_the_events(job: Make, tmp_path: Path) -> None:
    """In RocksDB, the default; its files keep for longer what has been replaced."""
    churn = make_input(tmp_path / "churn", 24_000, vertices=200)
    one = job(churn)
    shape = ("--stay", "--checkpoint-interval", "250ms")
    one.start(*shape, "--epoch-events", 50, faults={"slow": {"parser": 40}, "chunk": 200})
    one.until(lambda: progress(one.out)["events"] >= churn.count // 4)
    early = state_bytes(savepoint_of(one))
    largest = 0
    while progress(one.out)["events"] < churn.count:
        one.until(lambda: has_checkpoint(one))
        with suppress(FileNotFoundError):  # one was replaced by the next while we looked
            largest = max([largest, *map(bytes_of, complete_states(one.out / "checkpoints"))])
        time.sleep(0.2)
    stopped = one.stop()
    assert stopped.code == 0, stopped.errors
    late = state_bytes(Path(stopped.result["savepoint"]))
    print(f"savepoint of {early.total // 1024} KiB after {churn.count // 4} events or more: {early}")
    print(f"{late.total // 1024} KiB after {churn.count}: {late}")
    print(f"largest checkpoint with the files that it shares {largest // 1024} KiB")
    markers = [cut.end for cut in cuts_of(one) if cut.marker]
    assert len(markers) > 8
    # What a marker takes away again depends on the moment: 220 to 390 KiB in all between two markers, of which the
    # newest version of every page, and all that is no page, are 140 to 175.
    assert late.graph < 1.3 * early.graph, "as much as the graph holds, not as the stream had events"
    assert late.older < 2 * late.graph, "at most two older versions of a page"
    # A slow machine may have written all that it keeps at once.
    *_, first = late.journal_firsts[:2]
    assert late.journal_block < 1.3 * early.journal_block, "what has no name counts to what stands before it"
    assert first > markers[-2], "nothing from before the marker before the last"
    # RocksDB keeps pages that have been replaced in up to four files of an operator before it merges them.
    assert largest < 6 * late.total


def savepoint_of(job: Job) -> Path:
    """A savepoint of a job that runs on."""
    with asked_of_flink(job.out) as http:
        target = {"target-directory": f"file://{job.out}/between", "cancel-job": False}
        trigger = http.post("/savepoints", json=target).json()["request-id"]
        answers: list[dict[str, Any]] = []

        def is_done() -> bool:
            answers.append(http.get(f"/savepoints/{trigger}").json())
            return bool(answers[-1]["status"]["id"] == "COMPLETED")

        job.until(is_done)
    return Path(answers[-1]["operation"]["location"].removeprefix("file:"))


@pytest.fixture
def kept(job: Make, tmp_path: Path) -> Job:
    """A job that scripts/tools/make_savepoint_fixture.py stopped with a savepoint, unpacked elsewhere."""
    with tarfile.open(ROOT / "tests" / "data" / "savepoint" / "job.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return job(Input(tmp_path / "model", tmp_path / "events.jsonl", 1500))


def test_a_savepoint_that_was_kept(kept: Job) -> None:
    before = read_epochs(kept.out)[-1][0]
    assert 0 < before < 75
    result = kept.done("--resume", "latest")
    assert (result["events"], result["epochs"]) == (1500, 75)
    assert kept.check()["epoch"] == 75


def cuts_of(job: Job) -> list[Any]:
    log = CutLog(job.out / "checkpoints" / "cuts")
    log.close()
    return list(log.cuts.values())
