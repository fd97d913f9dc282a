"""Neighbours every way: what they are, among which ids, by an index that follows the job, and what is refused."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.job.serving.bounds import approximate
from freshet.job.serving.bounds.approximate import ApproximateRows, Neighbourhoods
from freshet.job.serving.bounds.budget import ALL_BYTES_MAX, ONE_BYTES_MAX, Budget
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.tables.nearest import Vector, Wish, neighbours_of
from freshet.state.served.ids import plain_ids
from freshet.state.served.layout import SHM, TableShape
from freshet.state.served.near_kernels import COSINE, DOT
from freshet.state.served.nearest import Target, best_of
from freshet.state.served.reader import TableReader
from freshet.state.served.writer import TableWriter
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import Served, key

WAYS = ("flight", "mapped", "http")


@pytest.fixture(scope="module", params=["int", "string"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)  # with the rows 2: 1, 3: -2 and 4: 3
    yield one
    one.close()


def ask(served: Served, way: str, **asked: Any) -> dict[str, Any]:
    """What is found, the scores, and what the answer says of itself, in the same form every way."""
    if way == "http":
        reply = served.http.post("/v1/nearest", json=asked)
        assert reply.status_code == 200, reply.text
        answer = reply.json()
        found = answer.pop("found")
        return answer | {"ids": [one["id"] for one in found], "scores": [one["score"] for one in found]}
    with served.client(way) as client:
        table = client.nearest(asked.pop("id", None), **asked)
    told = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    told |= {name: json.loads(told[name]) for name in ("approximate", "recall", "unknown", "epoch") if name in told}
    return told | {"ids": table["id"].to_pylist(), "scores": table["score"].to_pylist()}


def refused(served: Served, way: str, **asked: Any) -> tuple[str, str]:
    """The kind and the text of an error."""
    if way == "http":
        reply = served.http.post("/nearest", json=asked)
        assert reply.status_code == {"unknown": 404, "bad-request": 400}[reply.json()["kind"]]
        return reply.json()["kind"], reply.json()["error"]
    with served.client(way) as client, pytest.raises(BadRequestError) as error:
        client.nearest(asked.pop("id", None), **asked)
    return error.value.served_as, str(error.value)


@pytest.mark.parametrize("way", WAYS)
def test_metrics_and_candidates(served: Served, way: str) -> None:
    two, three, four, none = (key(served, number) for number in (2, 3, 4, 99))
    near = ask(served, way, id=two, metric="euclidean")
    assert (near["ids"], near["scores"]) == ([two, four, three], [0.0, 4.0, 6.0])
    assert "approximate" not in near
    assert ask(served, way, id=two, metric="dot", exclude_self=True)["ids"] == [four, three]
    assert ask(served, way, id=two, metric="link", exclude_self=True, k=1)["ids"] == [four]
    among = ask(served, way, id=two, metric="dot", among=[none, three, two, none])
    assert (among["ids"], among["unknown"]) == ([two, three], [none])
    assert ask(served, way, id=two, metric="link", among=[four, none])["scores"] == [12.0]
    assert ask(served, way, vector=[1.0] * WIDTH, metric="dot", among=[three], k=5)["scores"] == [-8.0]
    assert ask(served, way, vector=[1.0] * WIDTH, among=[])["ids"] == []


@pytest.mark.parametrize("way", WAYS)
def test_approximate_neighbours_say_so(served: Served, way: str) -> None:
    two, three, four = (key(served, number) for number in (2, 3, 4))
    for metric in ("cosine", "dot", "euclidean"):
        deadline = time.monotonic() + 60  # a machine with much to do makes the lists later than a call waits for
        while not (near := ask(served, way, id=two, metric=metric, approximate=True, exclude_self=True))["approximate"]:
            assert time.monotonic() < deadline
        assert (near["approximate"], near["recall"], near["ids"]) == (True, 1.0, [four, three])
        assert near["epoch"] == served.lookup.table.epoch
    near = ask(served, way, id=two, approximate=True, among=[three])
    assert (near["approximate"], near["recall"], near["ids"]) == (False, 1.0, [three]), "few are scored, all of them"


@pytest.mark.parametrize("way", WAYS)
def test_what_is_refused(served: Served, way: str) -> None:
    two, none = key(served, 2), key(served, 99)
    kind, text = refused(served, way, id=none)
    assert (kind, text) == ("unknown" if way == "http" else "bad-request", f"nearest: no vertex {str(none)!r}")
    for asked, says in (
        (
            {"id": two, "metric": "link", "approximate": True},
            "approximate: goes with the metrics cosine, dot,",
        ),
        ({"vector": [1.0] * WIDTH, "exclude_self": True}, "exclude_self: goes with an id"),
        ({"id": two, "metric": "l2"}, "metric: expected cosine, dot, euclidean or link, got 'l2'"),
        ({"id": two, "kinds": ["a", "b"]}, "kind: this server has "),
        ({"id": two, "k": 0}, "k: expected 1 to 10000, got 0"),
    ):
        kind, text = refused(served, way, **asked)
        assert kind == "bad-request"
        assert text.startswith(says)
    wrong = 5 if served.hand.kind == "string" else "five"
    if way == "http":
        assert "ids: expected" in refused(served, way, id=two, among=[wrong])[1]


@pytest.mark.parametrize("way", WAYS)
def test_the_index_follows_the_job(tmp_path: Path, way: str) -> None:
    """New, changed and deleted rows are right in the first answer of each epoch."""
    served = Served(tmp_path / "O", "int")
    rows = {number: float(number) for number in range(10, 400)}
    served.hand.apply(2, (dict(rows), []))
    served.until(2)
    rows |= {2: 1.0, 3: -2.0, 4: 3.0}
    rng = np.random.default_rng(3)
    try:
        ask(served, way, id=2, metric="dot", approximate=True)
        for epoch in range(3, 9):
            put = {int(one): float(rng.integers(-500, 500)) for one in rng.integers(10, 600, 80)}
            dead = [one for one in rng.permutation([*rows])[:20].tolist() if one not in put and one > 9]
            served.hand.apply(epoch, (put, dead))
            served.until(epoch)
            rows = {one: value for one, value in (rows | put).items() if one not in dead}
            near = ask(served, way, vector=[1.0] * WIDTH, metric="dot", k=5, approximate=True)
            assert (near["approximate"], near["epoch"]) == (True, epoch)
            assert near["scores"] == sorted((WIDTH * one for one in rows.values()), reverse=True)[:5]
            assert [rows[one] * WIDTH for one in near["ids"]] == near["scores"]
    finally:
        served.close()


class Clusters:
    """A table of rows around some centres."""

    def __init__(self, rows: int, width: int, centres: int, history: int = 4 << 20) -> None:
        self.path = SHM / f"freshet-test-{time.monotonic_ns()}"
        self.writer = TableWriter(self.path, TableShape.of(width, False, 2 * rows, 0, history), 1, 1)
        self.rng, self.epoch = np.random.default_rng(5), 0
        self.centres, self.count = self.rng.standard_normal((centres, width)), rows
        self.put(np.arange(rows))
        self.reader = TableReader(self.path)

    def put(self, ids: np.ndarray, away: float = 0.0) -> None:
        of = self.centres[self.rng.integers(0, len(self.centres), len(ids))] + away
        rows = of + 0.3 * self.rng.standard_normal(of.shape)
        self.writer.put(self.epoch, ids.astype(np.int64), rows.astype(np.float32))
        self.writer.publish(self.epoch)
        self.epoch += 1


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    one = Clusters(6000, 16, 50)
    yield one
    one.path.unlink()


def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def recall(one: ApproximateRows, clusters: Clusters, times: int = 40) -> float:
    """The true recall of neighbours of random rows, without themselves."""
    shares = []
    for slot in clusters.rng.integers(0, clusters.count, times).tolist():
        _, _, rows = clusters.reader.rows_of(np.array([slot]), clusters.reader.epoch)
        target = Target(rows[0], one.metric, slot)
        found = one.search(lambda _, target=target: target, 10)
        assert found is not None
        shares.append(np.isin(best_of(clusters.reader, found.epoch, target, 10).slots, found.slots).mean())
    return float(np.mean(shares))


@pytest.mark.parametrize("metric", [COSINE, DOT])
def test_recall_is_measured_and_kept(clusters: Clusters, metric: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that move elsewhere make lists uneven: they are made again."""
    monkeypatch.setattr(approximate, "SAMPLES", 6000)  # a sample in 10 ms
    one = ApproximateRows(clusters.reader, metric, budget := Budget())
    assert one.wait(60)
    assert budget.in_flight > 4 * 2 * clusters.count
    assert 0.9 <= one.recall <= 1.0
    assert recall(one, clusters) >= 0.9
    before = len(one.lists())
    for _ in range(10):
        clusters.put(clusters.rng.integers(0, clusters.count, 3000), away=6.0)
        one.search(lambda _: Target(clusters.centres[0].astype(np.float32), metric), 10)
    slots = np.sort(np.concatenate(one.lists()))
    assert np.array_equal(slots, np.arange(clusters.count)), "each slot is in one list"
    one.rebuild()
    monkeypatch.setattr(approximate, "WINDOW_S", 0.5)
    until(lambda: abs(one.recall - recall(one, clusters)) < 0.08 and one.recall >= 0.9)
    assert len(one.lists()) == before
    one.end()
    assert budget.in_flight == 0


def test_lists_that_nobody_asks_for_are_dropped(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    known, budget = Neighbourhoods(), Budget()
    one = known.of(clusters.reader, COSINE, budget)
    assert known.of(clusters.reader, COSINE, budget) is one
    assert one.wait(60)
    monkeypatch.setattr(approximate, "IDLE_S", 0.0)
    until(lambda: one.ended and budget.in_flight == 0)
    monkeypatch.undo()
    other = known.of(clusters.reader, COSINE, budget)
    assert other is not one
    assert other.wait(60)
    of_threads = sum(thread.name == "freshet-neighbours" for thread in threading.enumerate())
    del other, known
    gc.collect()
    until(lambda: sum(thread.name == "freshet-neighbours" for thread in threading.enumerate()) < of_threads)
    assert budget.in_flight == 0


def test_without_room_or_lists_answers_are_exact(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = served.lookup.budget
    monkeypatch.setattr(approximate, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(approximate.InvertedLists, "bytes_for", lambda _: ONE_BYTES_MAX + 1)
    wish, of = Wish(2, "dot", approximate=True), Vector(np.ones(WIDTH, np.float32))
    monkeypatch.setattr(type(served.lookup), "neighbourhoods", Neighbourhoods())
    for _ in range(2):
        found = neighbours_of(served.lookup, of, wish)
        assert (found.is_approximate, found.recall) == (False, 1.0)
        assert plain_ids(found.answer.ids) == [key(served, 4), key(served, 2)]
    assert budget.in_flight < ALL_BYTES_MAX // 100


def test_many_at_once_beside_a_writer(clusters: Clusters) -> None:
    """Each answer is of one epoch, exact or not, in whichever order they come."""
    one = ApproximateRows(clusters.reader, DOT, Budget())
    assert one.wait(60)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            clusters.put(clusters.rng.integers(0, clusters.count, 50))
            time.sleep(0.002)

    def look(seed: int) -> int:
        rng, last = np.random.default_rng(seed), 0
        for _ in range(60):
            slot = int(rng.integers(0, clusters.count))

            def target_at(epoch: int, slot: int = slot) -> Target:
                return Target(clusters.reader.rows_of(np.array([slot]), epoch)[2][0], DOT)

            found = one.search(target_at, 5)
            if found is None:
                continue
            assert found.epoch >= last
            last = found.epoch
            vector = target_at(found.epoch).vector.astype(np.float64)
            scores = (found.rows.astype(np.float64) * vector).sum(axis=1).astype(np.float32)
            np.testing.assert_array_equal(scores, found.scores)
        return last

    writing = threading.Thread(target=write)
    writing.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            assert min(pool.map(look, range(3))) > 1
    finally:
        stop.set()
        writing.join()
    assert np.array_equal(np.sort(np.concatenate(one.lists())), np.arange(clusters.count))
    one.end()
