"""Requests of what if over all doors: what they wait for, the tokens that they need, and who waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet import BadRequestError, NotReadyError, NotYetError
from freshet.job.serving.doors.access import Access
from freshet.job.serving.doors.tokens import GivenToken, ServerTokens
from freshet.job.serving.tables.hypotheses import ComingAnswers, Tried
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import ANSWER_S, Served


class Engine:
    """Answers of the table's epoch, once it is let go."""

    def __init__(self, served: Served) -> None:
        self._served, self.goes, self.asked = served, threading.Event(), threading.Semaphore(0)
        self.goes.set()

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        self.asked.release()
        assert self.goes.wait(ANSWER_S)
        rows = np.zeros((len(items), WIDTH), np.float32)
        return Tried(self._served.lookup.table.epoch, [one["id"] for one in items], rows, np.arange(len(items)), [])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    one.lookup.hypotheses = Engine(one)
    yield one
    one.close()


def over(way: str, served: Served, **asked: Any) -> int | str:
    """The epoch of an answer, or the kind of the refusal."""
    if way == "http":
        answer = served.http.post("/v1/what-if", json={"id": 2, **asked})
        assert answer.status_code in (200, 503, 504), answer.text
        return answer.json()["as_of"] if answer.status_code == 200 else answer.json()["kind"]
    try:
        with served.client("flight") as client:
            return int(client.what_if(2, **asked).schema.metadata[b"epoch"])
    except (NotReadyError, NotYetError) as error:
        return error.served_as


@pytest.mark.parametrize("way", ["flight", "http"])
@pytest.mark.parametrize("condition", ["min_epoch", "min_position"])
def test_what_is_wanted_is_waited_for(served: Served, way: str, condition: str) -> None:
    coming = served.lookup.table.epoch + 1
    wanted = {condition: coming if condition == "min_epoch" else {"0": 10 * coming - 1}}
    assert over(way, served, **wanted, timeout=0.05) == "not-yet"
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(over, way, served, **wanted, timeout=ANSWER_S)
        assert over(way, served) == coming - 1
        assert not waits.done()
        served.hand.apply(coming, ({2: 1.0}, []))
        assert waits.result(ANSWER_S) == coming


@pytest.mark.parametrize("way", ["flight", "http"])
def test_a_graph_that_is_still_opened_is_waited_for(served: Served, way: str) -> None:
    engine, coming = served.lookup.hypotheses, ComingAnswers()
    served.lookup.hypotheses = coming
    try:
        assert over(way, served, timeout=0.05) == "not-ready"
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(over, way, served, timeout=ANSWER_S)
            assert not wait([waits], 0.1).done
            coming.come(engine)
            assert waits.result(ANSWER_S) == served.lookup.table.epoch
    finally:
        served.lookup.hypotheses = engine


def test_requests_that_wait_for_others_hold_up_nobody_who_asks_for_something_else(served: Served) -> None:
    engine: Any = served.lookup.hypotheses
    engine.asked, count = threading.Semaphore(0), 4
    engine.goes.clear()
    with ThreadPoolExecutor(count) as threads:
        tried = [threads.submit(over, "http", served) for _ in range(count)]
        try:
            assert all(engine.asked.acquire(timeout=ANSWER_S) for _ in tried)
            assert served.http.post("/v1/nearest", json={"id": 2, "k": 1}).status_code == 200
        finally:
            engine.goes.set()
        assert [one.result(ANSWER_S) for one in tried] == [served.lookup.table.epoch] * count


def test_any_token_may_ask_and_who_has_none_may_not(tmp_path: Path) -> None:
    given = {"reads": Access.READ, "admins": Access.ADMIN}
    tokens = ServerTokens([GivenToken("--", right.value, name, False, (name,)) for name, right in given.items()])
    one = Served(tmp_path / "O", "int", token=tokens)
    one.lookup.hypotheses = engine = Engine(one)
    try:
        for token in ("other", None):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            refused = one.http.post("/v1/what-if", json={"id": 2}, headers=headers)
            assert (refused.status_code, refused.json()["kind"]) == (401, "unauthorized")
            with one.client("flight", token=token) as client, pytest.raises(BadRequestError, match="authorization"):
                client.what_if(2)
        assert not engine.asked.acquire(blocking=False)
        for token in given:
            headers = {"authorization": f"Bearer {token}"}
            assert one.http.post("/v1/what-if", json={"id": 2}, headers=headers).status_code == 200
            with one.client("flight", token=token) as client:
                assert client.what_if(2).num_rows == 1
    finally:
        one.close()
