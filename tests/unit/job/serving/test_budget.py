"""What is in flight is counted before it is made, refused past the budget, and given back, whatever becomes of it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import numpy as np
import pytest
from starlette.requests import ClientDisconnect

from freshet.job.serving.bounds import budget as rules
from freshet.job.serving.bounds.budget import (
    ALL_BYTES_MAX,
    FREE_BYTES,
    KEPT_FOR_SMALL,
    OBJECT_BYTES,
    ONE_BYTES_MAX,
    SMALL_BYTES,
    Budget,
    parsed,
    shared_memory,
)
from freshet.job.serving.doors import http_front
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.json_answers import INLINE_BYTES, Apart
from freshet.job.serving.protocol.columns import taken
from freshet.job.serving.protocol.errors import ExhaustedError
from freshet.state.served.ids import Texts

MIB = 1 << 20


def test_bytes_are_counted_until_they_are_given_back():
    budget = Budget()
    with budget.hold(200 * MIB, "one") as held:
        assert budget.in_flight == 200 * MIB
        held.resize(100 * MIB, "one")
        assert budget.in_flight == 100 * MIB
    assert budget.in_flight == 0
    never_begun = (_ for _ in [budget.hold(MIB, "a stream that nobody begins")])
    assert budget.in_flight == MIB
    del never_begun
    gc.collect()
    assert budget.in_flight == 0
    with budget.hold(FREE_BYTES, "little"):
        assert budget.in_flight == 0, "what a thread or a connection takes anyway"
    held.release()
    assert (budget.in_flight, budget.refused) == (0, 0)


def test_an_answer_that_is_cut_off_gives_its_bytes_back_without_a_collection_of_garbage():
    budget = Budget()
    answer = Apart().answer(iter([bytes(INLINE_BYTES)] * 3), 3 * INLINE_BYTES, budget.hold(3 * INLINE_BYTES, "rows"))
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}

    async def send(message):
        if message["type"] == "http.response.body":
            assert budget.in_flight == 3 * INLINE_BYTES
            msg = "the client has gone"
            raise OSError(msg)

    with pytest.raises(ClientDisconnect):
        asyncio.run(answer(scope, None, send))
    assert budget.in_flight == 0


def test_past_the_budget_is_refused():
    budget = Budget()
    with pytest.raises(ExhaustedError, match=r"^RESOURCE_EXHAUSTED: rows: up to 268,435,457 bytes") as one:
        budget.take(ONE_BYTES_MAX + 1, "rows")
    assert not one.value.again
    most = (ALL_BYTES_MAX - KEPT_FOR_SMALL) // (128 * MIB)
    held = [budget.hold(128 * MIB, "rows") for _ in range(most)]
    with pytest.raises(ExhaustedError, match=r"^RESOURCE_EXHAUSTED: rows: .* in flight .*; try again in 1 s$") as full:
        budget.take(128 * MIB, "rows")
    assert full.value.again
    assert budget.in_flight == 128 * MIB * most
    small = [budget.hold(SMALL_BYTES, "a lookup") for _ in range(KEPT_FOR_SMALL // SMALL_BYTES)]
    assert budget.in_flight == ALL_BYTES_MAX, "some is kept for small ones, and no more"
    with pytest.raises(ExhaustedError):
        budget.take(SMALL_BYTES, "a lookup")
    assert budget.figures() == {"bytes_in_flight": ALL_BYTES_MAX, "bytes_in_flight_limit": ALL_BYTES_MAX, "refused": 3}
    for one in held + small:
        one.release()
    budget.hold(ONE_BYTES_MAX, "rows").release()
    assert budget.in_flight == 0


def test_what_takes_the_place_of_something_is_not_counted_beside_it():
    budget = Budget()
    held = [budget.hold(200 * MIB, "rows") for _ in range(4)]
    held[0].resize(250 * MIB, "rows")
    assert (budget.in_flight, budget.refused) == (850 * MIB, 0)
    with pytest.raises(ExhaustedError, match="209,715,200 bytes beside the 891,289,600 in flight"):
        budget.take(200 * MIB, "rows")
    with pytest.raises(ExhaustedError):
        held[1].resize(ONE_BYTES_MAX, "rows")
    assert (budget.in_flight, held[1].size) == (850 * MIB, 200 * MIB), "what was held is held still"
    for one in held:
        one.resize(FREE_BYTES, "little")
    assert budget.in_flight == 0
    held[0].resize(FREE_BYTES + 1, "more")
    assert budget.in_flight == FREE_BYTES + 1


class _Collects:
    """Words of a budget; whoever reads one of them meets a collection of garbage, as any code may."""

    def __init__(self, words):
        self._words, self.cycle = words, None

    def __getitem__(self, at):
        if isinstance(at, slice):
            self.cycle = None
            gc.collect()
        return self._words[at]

    def __setitem__(self, at, value):
        self._words[at] = value


def test_a_collection_of_garbage_amid_a_count_gives_back():
    budget = Budget()
    words = budget._words = _Collects(budget._words)
    cycle = [budget.hold(MIB, "of a request that failed")]
    cycle.append(cycle)
    words.cycle = cycle
    del cycle
    counting = threading.Thread(target=budget.take, args=(2 * MIB, "rows"), daemon=True)
    counting.start()
    counting.join(60)
    assert not counting.is_alive(), "it waits for itself"
    assert budget.in_flight == 2 * MIB


def test_processes_share_one_budget():
    fd = shared_memory(3)
    try:
        first, second, third = (Budget(number, 3, fd) for number in range(3))
        held = [one.hold(ONE_BYTES_MAX, "rows") for one in (first, second, second)]
        for one in (first, second, third):
            assert one.in_flight == 3 * ONE_BYTES_MAX
            with pytest.raises(ExhaustedError):
                one.take(ONE_BYTES_MAX, "rows")
        assert third.refused == first.refused == 3
        first.forget(1)  # it was killed
        assert third.in_flight == ONE_BYTES_MAX
        held[0].release()
        again = Budget(1, 3, fd)
        again.hold(MIB, "rows").release()
        assert again.in_flight == 0
    finally:
        os.close(fd)


def test_what_json_becomes_is_counted():
    assert parsed(b'{"ids":[1,2]}') >= 13 + 2 * OBJECT_BYTES
    assert parsed(b"[" * (4 << 20)) > ONE_BYTES_MAX, "a list takes much more than the character that begins it"
    assert parsed(b"1," * (2 << 20)) < ONE_BYTES_MAX


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_texts_are_taken_piece_by_piece(monkeypatch, at_once):
    monkeypatch.setattr("freshet.job.serving.protocol.columns._TEXT_AT_ONCE", at_once)
    names = ["", "a", "longer than one piece", "", "b" * 20, "é", ""]
    at = np.array([6, 1, 2, 2, 5, 0, 4])
    assert taken(Texts.encode(names), at).decode() == [names[k] for k in at]
    assert taken(Texts.encode(names), at[:0]).decode() == []


class Door:
    """A front without an application behind it, and what it answered."""

    def __init__(self) -> None:
        self.budget = Budget()
        self.said: list[dict[str, object]] = []
        self.bodies: list[bytes] = []
        self.front = Front(self, None, self.app)  # type: ignore[arg-type]

    async def app(self, scope, receive, send) -> None:
        self.bodies.append((await receive())["body"])
        self.in_flight = self.budget.in_flight
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def ask(self, pieces: list[bytes], length: int, *headers: tuple[bytes, bytes]) -> int:
        async def run() -> None:
            left = list(pieces)

            async def receive() -> dict[str, object]:
                if not left:
                    await asyncio.sleep(60)
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or length > size}

            async def send(message) -> None:
                self.said.append(message)

            size = sum(map(len, pieces))
            told = [(b"content-length", b"%d" % length), *headers]
            await self.front({"type": "http", "path": "/embeddings", "headers": told}, receive, send)

        self.said = []
        asyncio.run(run())
        assert self.budget.in_flight == 0, "given back"
        return self.said[0]["status"]

    def headers(self) -> dict[bytes, bytes]:
        return dict(self.said[0]["headers"])


def test_bodies_are_counted_and_bounded(monkeypatch):
    door = Door()
    body = b'{"ids":[' + b"1," * 40_000 + b"1]}"
    assert door.ask([body[:100], body[100:]], len(body)) == 200
    assert door.bodies == [body]
    assert door.in_flight == parsed(body)
    assert door.ask([b"x"], 1, (b"content-encoding", b"gzip")) == 415
    assert door.ask([b"x"], 1, (b"Content-Encoding".lower(), b" identity ")) == 200
    assert door.ask([b"[" * (4 << 20)], 4 << 20) == 429
    assert b"retry-after" not in door.headers(), "it is too large, now and later"
    with monkeypatch.context() as impatient:
        impatient.setattr(http_front, "BODY_S", 0.05)
        assert door.ask([b"x" * 100_000], 200_000) == 408
    full = [door.budget.hold(size, "rows") for size in [ONE_BYTES_MAX] * 3 + [128 * MIB] + [SMALL_BYTES] * 127]
    with pytest.raises(AssertionError, match="given back"):  # by this request; the others hold theirs
        door.ask([body * 8], 8 * len(body))
    assert (door.said[0]["status"], door.headers()[b"retry-after"]) == (429, b"%d" % rules.RETRY_S)
    for one in full:
        one.release()
    assert door.ask([body], len(body)) == 200
