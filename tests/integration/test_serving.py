"""Embeddings served beside real jobs: every answer is one epoch's, bit by bit, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

import freshet
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.tables.place import SHM, mark_of
from tests.support.runs.jobs import Input, Job, epochs_shown, make_input
from tests.support.serving.hand_job import HandJob
from tests.support.serving.server import Judge, Sampler, Server

pytestmark = pytest.mark.slow
EVENTS = 12_000  # minutes', and no longer slow once all was seen
IDS = np.arange(300) * 7 - 5
SLOW = {"slow": {"parser": 500}, "chunk": 100, "lull": 40}
Make = Callable[[Input], Job]


def test_kill_9_of_the_server_and_of_a_task_manager(job: Make, servers: list[Server], tmp_path: Path) -> None:
    one = job(make_input(tmp_path / "in", EVENTS, snapshot=True))
    options = ("--parts", 4, "--parallelism", 2, "--epoch-events", 40, "--epoch-ms", 5, "--checkpoint-interval", "1s")
    one.start(*options, "--stay", faults=SLOW)
    one.until_epoch(2)
    server = Server(one.out)
    servers.append(server)
    told = server.start()
    samplers = [Sampler(str(server.tables), IDS), Sampler(told["flight"], IDS[::3])]
    one.until(lambda: all(has_seen(each, one) for each in samplers))
    server.kill()
    began = time.monotonic()
    again = server.start()
    print(f"serves again after {time.monotonic() - began:.2f} s")
    samplers.append(Sampler(again["flight"], IDS[::5]))
    one.until(lambda: has_seen(samplers[2], one))
    one.until(lambda: "taken over as it stood" in server.log())
    os.kill(read_run(one.out)["pids"]["taskmanagers"][0], signal.SIGKILL)
    one.hurry()
    with EmbeddingClient(again["flight"]) as client:
        table = client.get(IDS.tolist(), min_position={"0": EVENTS - 1}, timeout=150)
        last = client.epoch()
    for each in samplers:
        each.end()
    stopped = one.stop()
    assert stopped.code == 0, stopped.errors
    one.wait()
    judge = Judge(one.out)
    assert dict(zip(table["id"].to_pylist(), table["epoch"].to_pylist(), strict=True)) == {
        id_: own for id_, (own, _) in judge.at(last, IDS).items()
    }
    seen = [judge.approve(each) for each in samplers]
    print(f"epochs seen: {len(seen[0])} mapped, {len(seen[1])} by Flight until the kill, {len(seen[2])} after it")
    assert len(seen[0]) > len(seen[1]) > 1, "the mapped table was followed from one server to the next"
    one.check()
    assert server.stop() == 0
    assert not list(SHM.glob(f"freshet-{judged_id(one)}-*")), "nothing is left in memory"


def until_ready(client: EmbeddingClient, ready: bool) -> None:
    """Wait until the server says that it is, or is not."""
    deadline = time.monotonic() + 300
    while client.health()["ready"] != ready:
        assert time.monotonic() < deadline, client.health()
        time.sleep(0.02)


def test_a_server_that_feeds_from_one_that_is_killed(servers: list[Server], tmp_path: Path) -> None:
    """Processes of their own, and no folder that both know."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    source, fed = Server(tmp_path / "O"), Server(tmp_path / "F" / "out")
    fed.tables.mkdir(parents=True)
    servers += [source, fed]
    told = source.start()
    address = told["flight"]
    here = fed.start("--from", address, "--stale-after", "1s")
    with EmbeddingClient(here["flight"], timeout=60) as client:
        assert client.get([2, 3]).num_rows == 2
        source.kill()
        hand.apply(2, ({2: 2.0}, [3]))
        until_ready(client, False)
        assert client.rows([2])[1].tolist() == [1]
        source.start("--port", address.rpartition(":")[2])
        found = client.rows([2, 3, 4], min_epoch=2, timeout=60)
        assert (found.epoch, found[0].tolist(), found[1].tolist()) == (2, [2, 4], [2, 1])
        until_ready(client, True)  # rows may come before the next heartbeat
    assert (fed.stop(), source.stop()) == (0, 0)
    hand.close()
    assert not [path for server in (fed, source) for path in SHM.glob(f"freshet-*-{mark_of(server.tables)}-*")]


def has_seen(sampler: Sampler, one: Job) -> bool:
    """Whether it has seen some epochs, or all that there will be."""
    epochs = {answer[0] for answer in sampler.answers}
    return len(epochs) > 6 or (len(epochs) > 0 and progress(one.out)["events"] == EVENTS)


def judged_id(one: Job) -> str:
    from freshet.job.folder.job_file import SavedJob

    saved = SavedJob.read(one.out)
    assert saved is not None
    return saved.settings.job_id


def test_a_run_serves_itself_and_a_server_serves_what_it_left(job: Make, servers: list[Server], tmp_path: Path) -> None:
    """The local runtime; then, after its end, from the change log alone, for the tails are gone."""
    one = job(make_input(tmp_path / "in", 6_000))
    one.start("--runtime", "local", "--parts", 2, "--epoch-events", 40, "--flight-port", 0, faults=SLOW)
    server = Server(one.out)
    servers.append(server)
    one.until(lambda: "serving" in read_run(one.out))
    told = read_run(one.out)["serving"]
    sampler = Sampler(told["flight"], IDS)
    one.until(lambda: len(sampler.answers) > 10)
    url = f"http://{told['http']}/readyz"  # which it is not for a moment where the machine stands still
    one.until(lambda: httpx.get(url, trust_env=False, timeout=60).status_code == 200)
    assert httpx.get(url, trust_env=False, timeout=60).json()["job"] == "running"
    with EmbeddingClient(told["flight"]) as client:
        client.get([2], min_position={"0": 1_500}, timeout=60)
        assert client.health()["positions"][0]["next_offset"] > 1_500
    one.until(lambda: len({answer[0] for answer in sampler.answers}) > 3)
    one.hurry()
    ended = one.wait()
    assert ended.code == 0, ended.errors
    sampler.end()
    judge = Judge(one.out)
    assert len(judge.approve(sampler)) > 3
    assert not list(SHM.glob(f"freshet-{judged_id(one)}-*")), "the run took its server along"
    for path in (server.tables / "tail").glob("*.tail"):
        path.unlink()
    server.start()
    with EmbeddingClient(server.tables) as client:
        found, table = client.rows(IDS), client.get(IDS)
    shown = epochs_shown(one.out)
    last_ms = max(row["arrived_ms"] or 0 for row in shown.values())
    assert table.schema.metadata[b"as_of_ms"] == str(last_ms).encode()
    now = freshet.as_of(one.out, pa.table({"id": IDS, "ts": [last_ms] * len(IDS)}))
    assert [one for one in now["epoch"].to_pylist() if one is not None] == table["epoch"].to_pylist()
    assert [one for one in now["embedding"].to_pylist() if one is not None] == table["embedding"].to_pylist()
    assert found.epoch == ended.result["epochs"]
    expected = judge.at(found.epoch, IDS)
    assert {int(i): (int(e), r.tobytes()) for i, e, r in zip(*found, strict=True)} == expected
