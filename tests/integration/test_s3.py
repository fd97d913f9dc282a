"""Checkpoints and savepoints on S3 (moto's), by Flink's plugin, through kills; and where its secret must not be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder.run_file import read_run
from freshet.job.machine.artifacts import s3_jars
from tests.support.runs.jobs import Input, Job, assert_as_uninterrupted, make_input
from tests.support.runs.live import paths_below
from tests.support.stores.moto_server import KEY_ID, SECRET, MotoServer, moto_server

pytestmark = pytest.mark.slow

# So slow that the stream is not over before it is stopped, on a busy machine, too.
SLOW = {"slow": {"parser": 2_000}, "chunk": 100, "lull": 20}
BRISK = {"slow": {"parser": 40}, "chunk": 100}
SHAPE = ("--parts", 2, "--hybrid-threshold", 5, "--checkpoint-interval", "500ms", "--epoch-events", 40)
PAGES = ("/jobmanager/config", "/jobmanager/environment", "/config", "/jobs/{job}/config", "/jobs/{job}/plan")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoServer]:
    with moto_server() as found:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("MOTO_SECRET", SECRET)
        yield found


def content_of(path: Path) -> bytes:
    """What is in a file, nothing if it has just gone: the job runs."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def assert_secret_is_nowhere(one: Job) -> None:
    """In no command line, no page of Flink's, and no file but the configuration of processes that run, of one owner."""
    lines = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if any(SECRET in word for word in line)]
    run = read_run(one.out)
    with httpx.Client(base_url=f"http://{run['rest']}/v1", trust_env=False, timeout=60) as http:
        pages = {page: http.get(page.format(job=run["job_id"])) for page in (*PAGES, "/taskmanagers")}
    assert pages["/jobmanager/config"].is_success
    assert "s3.secret-key" in pages["/jobmanager/config"].text, "the page that would show it"
    assert not [page for page, answer in pages.items() if SECRET in answer.text]
    files = [path for path in paths_below(one.out) if path.is_file()]
    holding = [path for path in files if SECRET.encode() in content_of(path)]
    assert {path.relative_to(one.out).as_posix() for path in holding} <= {"tmp/conf/config.yaml"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)
    assert SECRET not in one.log()


def options_of_cluster(server: MotoServer) -> dict[str, str]:
    """What stands in a cluster's own configuration."""
    return {
        "s3.endpoint": server.endpoint,
        "s3.path.style.access": "true",
        "s3.access-key": KEY_ID,
        "s3.secret-key": SECRET,
    }


def has_checkpoint(one: Job, server: MotoServer) -> bool:
    """Whether the present attempt has completed one; the server runs in this process, and is not asked all the time."""
    time.sleep(0.5)
    attempt = f"/{read_run(one.out).get('job_id')}/chk-"
    return any(attempt in key and key.endswith("/_metadata") for key in server.keys("jobs/"))


@pytest.mark.long
def test_a_job_with_its_state_on_s3_survives_kills(
    job: Callable[[Input], Job], server: MotoServer, tmp_path: Path
) -> None:
    one = job(make_input(tmp_path / "stream", 6_000))
    place = ("--checkpoint-dir", f"{server.uri}/jobs", *server.options())
    one.start(*SHAPE, *place, "--parallelism", 2, "--epoch-ms", 0, faults=SLOW)
    one.until(lambda: has_checkpoint(one, server))
    first = read_run(one.out)["job_id"]
    assert_secret_is_nowhere(one)
    one.kill()

    # Where the store is, the job knows; the secret comes from the environment again.
    one.start("--resume", "latest", "--parallelism", 1, faults=SLOW)
    one.until(lambda: has_checkpoint(one, server))
    one.until(lambda: f"/{first}/chk-" not in "".join(server.keys("jobs/")))  # they go by then
    assert "begins again" not in one.log()
    stopped = one.stop("--savepoint", f"{server.uri}/elsewhere")
    assert stopped.code == 0, stopped.errors
    savepoint = stopped.result["savepoint"]
    assert savepoint.startswith(f"{server.uri}/elsewhere/savepoint-")
    assert one.wait().code == 0
    exported = one.exported(tmp_path / "snapshot")
    assert exported.code == 0, exported.errors
    assert exported.result["epoch"] == stopped.result["epoch"]
    assert one.status()["checkpoint_age_s"] < 300

    ended = one.run("--resume", savepoint, faults=BRISK)
    assert ended.code == 0, ended.errors
    assert ended.result["events"] == one.given.count
    assert_as_uninterrupted(one, "--parts", 2, "--hybrid-threshold", 5)
    assert not [key for key in server.keys("jobs/") if "/chk-" in key], "a job that has ended needs none"


def test_processes_fetch_the_model_and_the_image_that_they_do_not_have(
    job: Callable[[Input], Job], server: MotoServer, tmp_path: Path
) -> None:
    one = job(make_input(tmp_path / "stream", 4_000, snapshot=True))
    s3_jars()
    cache, options = tmp_path / "cache", options_of_cluster(server)
    environ = {"FRESHET_CACHE": str(cache), **one.environ_of_cluster(SLOW)}
    with LocalCluster(tmp_path / "cluster", 1, environ, options) as cluster:
        place = ("--cluster", cluster.rest, "--checkpoint-dir", f"{server.uri}/jobs", *server.options())
        one.start(*SHAPE, *place, "--epoch-ms", 0, faults=SLOW)
        one.until(lambda: has_checkpoint(one, server))
        assert "s3.secret-key: no effect on the processes of --cluster" in one.log()
        assert [path for path in (cache / "artifacts").iterdir() if path.is_file()], "the list"
        assert not (cache / "artifacts" / "jobs").exists(), "they have the rest"
        moved = [(one.given.model, tmp_path / "moved-model"), (one.out / "base", tmp_path / "moved-base")]
        for here, there in moved:
            here.rename(there)
        cluster.kill(cluster.task_managers[0])
        cluster.start_task_manager()
        one.until(lambda: "restarted after" in one.log())
        one.hurry()
        ended = one.wait()
        for here, there in moved:
            there.rename(here)
        assert ended.code == 0, ended.errors
        (job_files,) = (cache / "artifacts" / "jobs").iterdir()
        assert (job_files / "model" / "model.safetensors").read_bytes()
        assert list(job_files.glob("base/*/image.json"))
    assert_as_uninterrupted(one, "--parts", 2, "--hybrid-threshold", 5)
