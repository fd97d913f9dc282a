"""States in an object store, which moto plays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import new_savepoint, savepoints_in
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder import run_file
from freshet.job.machine.ports import free_port
from freshet.job.run.job_states import FormerCheckpoints, JobStates
from freshet.job.stores.object_store import ObjectStore, StoreError
from freshet.job.stores.remote_states import RemoteStates
from tests.support.stores.moto_server import BUCKET, KEY_ID, SECRET, MotoServer, moto_server

JOB, OTHER = "0123456789abcdef", "fedcba9876543210"
FIRST, SECOND = "1" * 32, "2" * 32


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as found:
        yield found


@pytest.fixture(autouse=True)
def empty(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_SECRET", SECRET)
    for key in server.keys():
        server.client.delete_object(Bucket=BUCKET, Key=key)


def raw(server: MotoServer) -> dict[str, str]:
    return {"s3.endpoint": server.endpoint, "s3.access-key": KEY_ID, "s3.secret-key": "${MOTO_SECRET}"}


def resolved(server: MotoServer) -> dict[str, str]:
    return raw(server) | {"s3.secret-key": SECRET}


def put(server: MotoServer, *names: str, body: bytes = b"x") -> None:
    for name in names:
        server.client.put_object(Bucket=BUCKET, Key=name, Body=body)


def test_the_newest_complete_state_is_found(server: MotoServer) -> None:
    states = RemoteStates(f"{server.uri}/all/{JOB}", resolved(server))
    assert states.newest() is None
    assert states.written_s() is None
    put(server, f"all/{JOB}/{FIRST}/chk-9/_metadata", f"all/{JOB}/{FIRST}/chk-10/_metadata")
    put(server, f"all/{JOB}/{FIRST}/chk-11/part", f"all/{JOB}/{FIRST}/shared/sst")
    put(server, f"all/{JOB}/{FIRST}/chk-12/_metadata", body=b"")
    assert states.newest() == f"s3://{BUCKET}/all/{JOB}/{FIRST}/chk-10", "chk-11 and chk-12 are not complete"
    time.sleep(1.1)  # stores tell whole seconds
    put(server, f"all/{JOB}/{SECOND}/chk-1/_metadata")
    assert states.newest() == f"s3://{BUCKET}/all/{JOB}/{SECOND}/chk-1", "numbers begin again with every attempt"
    age_s = time.time() - (states.written_s() or 0)
    assert -2 < age_s < 60
    time.sleep(1.1)
    put(server, f"all/{JOB}/savepoints/savepoint-a-b/_metadata")
    assert states.newest() == f"s3://{BUCKET}/all/{JOB}/savepoints/savepoint-a-b"


def test_s3a_and_an_endpoint_without_a_scheme_work(server: MotoServer) -> None:
    put(server, f"all/{FIRST}/chk-1/_metadata")
    assert RemoteStates(f"s3a://{BUCKET}/all/", resolved(server)).newest() == f"s3a://{BUCKET}/all/{FIRST}/chk-1"


def test_a_store_that_does_not_answer_is_named(server: MotoServer) -> None:
    silent = resolved(server) | {"s3.endpoint": f"http://127.0.0.1:{free_port(0)}"}
    with pytest.raises(StoreError, match=f"^s3://{BUCKET}/x: .*connect") as caught:
        RemoteStates(f"s3://{BUCKET}/x", silent).newest()
    assert SECRET not in str(caught.value)
    with pytest.raises(StoreError, match="gs://b/x: only Flink can look into this store"):
        ObjectStore("gs://b/x", {})


def test_latest_is_looked_for_in_the_store(server: MotoServer, tmp_path: Path) -> None:
    states = JobStates(tmp_path, JOB, f"{server.uri}/all", "--resume", raw(server))
    assert states.latest() is None, "a job that was killed before its first checkpoint begins again"
    put(server, f"all/{JOB}/{FIRST}/chk-3/_metadata", f"all/{OTHER}/{FIRST}/chk-9/_metadata")
    assert states.latest() == f"{server.uri}/all/{JOB}/{FIRST}/chk-3"
    run_file.update_run(tmp_path, state=run_file.STOPPED, savepoint="s3://other/savepoint-1")
    assert states.latest() == "s3://other/savepoint-1"
    run_file.update_run(tmp_path, state=run_file.FAILED)
    silent = raw(server) | {"s3.endpoint": f"http://127.0.0.1:{free_port(0)}"}
    with pytest.raises(UsageError, match=rf"can't look into .*/{JOB}/JOB \(.*connect.*\); give its newest checkpoint"):
        JobStates(tmp_path, JOB, f"{server.uri}/all", "--resume", silent).latest()


def test_a_state_that_is_named(server: MotoServer, tmp_path: Path) -> None:
    states = JobStates(tmp_path, JOB, None, "--resume", raw(server))
    put(server, f"all/{JOB}/{FIRST}/chk-3/_metadata", f"all/{OTHER}/{FIRST}/chk-9/_metadata", "moved/_metadata")
    newest = f"{server.uri}/all/{JOB}/{FIRST}/chk-3"
    for given in (newest, f"{newest}/", f"{server.uri}/all", f"{server.uri}/all/{JOB}"):
        assert states.named(given) == newest
    assert states.named(f"{server.uri}/moved") == f"{server.uri}/moved"
    with pytest.raises(UsageError, match=f"is a state of job {OTHER}, the job in {tmp_path} is {JOB}"):
        states.named(f"{server.uri}/all/{OTHER}/{FIRST}/chk-9")
    with pytest.raises(UsageError, match=f"--resume {server.uri}/nowhere: no complete checkpoint or savepoint there"):
        states.named(f"{server.uri}/nowhere")
    assert states.named("gs://b/chk-1") == "gs://b/chk-1", "Flink will look"


def test_checkpoints_of_earlier_attempts_go_once_there_is_a_new_one(server: MotoServer, tmp_path: Path) -> None:
    put(server, f"all/{JOB}/{FIRST}/chk-3/_metadata", f"all/{JOB}/{SECOND}/chk-1/_metadata")
    put(server, f"all/{JOB}/savepoints/savepoint-a-b/_metadata", f"all/{JOB}/cuts/x", f"all/{OTHER}/{FIRST}/chk-1/_m")
    spec = JobSpec(out=str(tmp_path), layers=2, checkpoint_dir=f"{server.uri}/all/{JOB}", user_options=resolved(server))
    former = FormerCheckpoints(spec, "latest", JobStates(tmp_path, JOB, None, "--resume", raw(server)))
    former.look()
    assert len(server.keys()) == 5, "nothing of the new attempt is complete yet"
    former.own_away = lambda: SECOND
    former.look()
    left = [f"all/{JOB}/{SECOND}/chk-1/_metadata", f"all/{JOB}/cuts/x", f"all/{JOB}/savepoints/savepoint-a-b/_metadata"]
    assert [key for key in server.keys() if not key.endswith("/")] == [*left, f"all/{OTHER}/{FIRST}/chk-1/_m"]
    put(server, f"all/{JOB}/artifacts/abc")
    former.prune_away(keep=())
    assert [key for key in server.keys() if not key.endswith("/")] == [*left[1:], f"all/{OTHER}/{FIRST}/chk-1/_m"]


def test_a_savepoint_of_which_the_answer_was_lost(server: MotoServer) -> None:
    target, store = f"{server.uri}/points", resolved(server)
    put(server, "points/savepoint-1/_metadata", "points/savepoint-2/part")
    before = savepoints_in(target, store)
    assert before == [f"{target}/savepoint-1"]
    assert new_savepoint(target, before, store) is None
    put(server, "points/savepoint-2/_metadata")
    assert new_savepoint(target, before, store) == f"{target}/savepoint-2"


def test_states_in_a_bucket_that_does_not_exist(server: MotoServer, tmp_path: Path) -> None:
    """A job does not begin again because its bucket is gone."""
    away = "s3://nobucket7/all"
    with pytest.raises(UsageError, match=r"--resume latest: can't look into .*the store has no bucket nobucket7"):
        JobStates(tmp_path, JOB, away, "--resume", raw(server)).latest()
    with pytest.raises(UsageError, match=r"^--resume s3://nobucket7/all/chk-1: the store has no bucket nobucket7"):
        JobStates(tmp_path, JOB, away, "--resume", raw(server)).named(f"{away}/chk-1")
    with pytest.raises(StoreError, match="the store has no bucket nobucket7"):
        savepoints_in(away, resolved(server))
