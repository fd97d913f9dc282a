"""A server of two kinds of a service: all scores of an answer are of one job and one epoch."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from freshet import EmbeddingClient
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables import place
from tests.support.serving.hand_job import JOB_ID
from tests.support.serving.kinds_job import LastOfBoth, LastOfBothNegated
from tests.support.serving.served_kinds import hand_kinds, score_of
from tests.support.serving.server import Server

PAIRS = [*itertools.product(range(2, 6), range(2, 8))]
HEADS = {"a1": LastOfBoth, "b2": LastOfBothNegated}
EPOCHS_MAX = 4_000  # which the heads can tell apart
NAMES = ["a1", "b2", "a1"]  # of generations


class Jobs(threading.Thread):
    """Two jobs of the same input, in step; each epoch sets all rows."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.jobs = [
            hand_kinds(folder / name, job_id=f"{JOB_ID[:-2]}{name}", seed=k, link_head={("user", "item"): head()})
            for k, (name, head) in enumerate(HEADS.items())
        ]
        self.stop, self.epoch = threading.Event(), 1

    def run(self) -> None:
        users, items = (dict.fromkeys(range(2, end), 1.0) for end in (6, 8))
        while not self.stop.wait(0.01) and self.epoch < EPOCHS_MAX:
            self.epoch += 1
            for job in self.jobs:
                job.apply_kinds(self.epoch, user=users, item=items)

    def close(self) -> None:
        self.stop.set()
        self.join()
        for job in self.jobs:
            job.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    found = Jobs(tmp_path)
    found.start()
    yield found
    found.close()


def score_at(epoch: int) -> float:
    """The score of all pairs at a served epoch."""
    number, own = divmod(epoch, GENERATION)
    return 4097.0 * own * (1 if NAMES[number] == "a1" else -1)


class Reader(threading.Thread):
    """Scores pairs over and over, and checks each answer."""

    def __init__(self, read: Any) -> None:
        super().__init__()
        self._read, self.stop = read, threading.Event()
        self.wrong, self.epochs = list[Any](), list[int]()

    def run(self) -> None:
        while not self.stop.is_set():
            epoch, scores = self._read()
            if set(scores) != {score_at(epoch)} or (self.epochs and epoch < self.epochs[-1]):
                self.wrong.append((epoch, scores[:3], self.epochs[-1:]))
            self.epochs.append(epoch)


def until_all_read(readers: list[Reader], generation: int) -> None:
    deadline = time.monotonic() + 120
    while not all(one.epochs and one.epochs[-1] >= generation * GENERATION for one in readers):
        assert time.monotonic() < deadline, [one.wrong[:3] for one in readers]
        time.sleep(0.05)


def http_read(address: str) -> Any:
    client = httpx.Client(base_url=f"http://{address}", timeout=60, trust_env=False)

    def read() -> tuple[int, list[float]]:
        answer = client.post("/v1/score", json={"pairs": PAIRS}).json()
        return answer["as_of"], answer["scores"]

    return read


def tables_of(folder: Path) -> Path:
    return folder / "V" / "tables"


def change(how: Any, *given: Any) -> None:
    found = how(*given, wait_s=60.0, force=True)
    assert found.readable, found


@pytest.mark.parametrize("workers", [1, 2])
def test_scores_are_of_one_job_after_the_other(jobs: Jobs, tmp_path: Path, workers: int) -> None:
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = kinds_server(tmp_path / "V", workers)
    try:
        at = server.start()
        clients = [EmbeddingClient(one, timeout=60) for one in (at["flight"], tables_of(tmp_path))]
        score_of(clients[0], *PAIRS, min_epoch=1)  # tables begin with the change log, which has epoch 0: nothing yet
        reads = [*((lambda one=one: score_of(one, *PAIRS)[:2]) for one in clients), http_read(at["http"])]
        readers = [Reader(read) for read in reads]
        for one in readers:
            one.start()
        until_all_read(readers, 0)
        change(promote, service, tmp_path / "b2")
        until_all_read(readers, 1)
        change(rollback, service, None)
        until_all_read(readers, 2)
        health = clients[0].health()
        assert (health["generation"], health["next"], [*health["kinds"]]) == (2, None, ["user", "item"])
        for one in readers:
            one.stop.set()
            one.join()
        assert [one.wrong[:3] for one in readers] == [[]] * len(readers)
        assert [sorted({epoch // GENERATION for epoch in one.epochs}) for one in readers] == [[0, 1, 2]] * len(readers)
        for client in clients:
            for number in range(3):  # the earlier ones are kept
                epoch, scores, _ = score_of(client, *PAIRS, generation=number)
                assert (epoch // GENERATION, set(scores)) == (number, {score_at(epoch)})
                near = client.nearest(2, k=2, metric="link", generation=number)
                assert near["score"].to_pylist() == [score_at(int(near.schema.metadata[b"epoch"]))] * 2
            client.close()
    finally:
        server.end()


def kinds_server(folder: Path, workers: int = 1) -> Server:
    """A server of users and items of a service."""
    of = ("--service", str(folder), "--kind", "user,item", "--keep", "1h", "--workers", str(workers))
    return Server(folder, of=of, kind="item")


def test_a_server_that_was_killed_between_both_tables_goes_on_with_the_newer_one(jobs: Jobs, tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "a1")
    server = kinds_server(tmp_path / "V")
    try:
        server.start()
        server.kill()
        change(promote, service, tmp_path / "b2")
        user = Server(tmp_path / "V", of=("--service", str(tmp_path / "V"), "--kind", "user"))
        user.launch()
        deadline = time.monotonic() + 120
        while place.shown_generation(tables_of(tmp_path) / "user") < 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        user.kill()
        assert place.shown_generation(tables_of(tmp_path) / "item") == 0
        with EmbeddingClient(server.start()["flight"], timeout=60) as client:
            epoch, scores, _ = score_of(client, *PAIRS)
            assert epoch > GENERATION
            assert set(scores) == {-4097.0 * (epoch - GENERATION)}
    finally:
        server.end()
        for path in place.SHM.glob(f"freshet-*-{place.mark_of(tables_of(tmp_path) / 'user')}-*.table"):
            path.unlink(missing_ok=True)


def test_one_that_lacks_a_kind_names_what_to_start(jobs: Jobs, tmp_path: Path) -> None:
    change(promote, Service(tmp_path / "V"), tmp_path / "a1")
    server = kinds_server(tmp_path / "V")
    server.of = (*server.of[:2], "--kind", "item")
    try:
        at = server.start()
        reply = httpx.post(f"http://{at['http']}/score", json={"pairs": [[2, 2]]}, trust_env=False, timeout=60)
        assert reply.status_code == 400
        assert "this server has the embeddings of item, and the model scores [user, item]" in reply.json()["error"]
        assert "`freshet serve --kind user,item`" in reply.json()["error"]
    finally:
        server.end()
