"""All rows page by page at one epoch, and changes as they come, over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pytest

from freshet.job.serving.doors.answering import Answering
from tests.support.serving.served import Served, key
from tests.unit.job.serving.test_workers import doors

MANY = range(10, 60)


@pytest.fixture(params=["int", "string"])
def served(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Served]:
    one = Served(tmp_path / "O", request.param)
    one.hand.apply(2, (dict.fromkeys(MANY, 2.0), []), ({}, []))
    one.until(2)
    yield one
    one.close()


@contextmanager
def listening(one: Served) -> Iterator[httpx.Client]:
    there = doors()
    answering = Answering(there, 0, one.lookup, one.health)
    answering.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{there.http_port}/v1", trust_env=False, timeout=60) as http:
            yield http
    finally:
        answering.stop()


def page(served: Served, **asked: Any) -> dict[str, Any]:
    answer = served.http.get("/v1/rows", params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(served: Served, status: int, kind: str, **asked: Any) -> str:
    answer = served.http.get("/v1/rows", params=asked)
    assert (answer.status_code, answer.json()["kind"]) == (status, kind), answer.text
    return str(answer.json()["error"])


def test_pages_are_of_one_epoch(served: Served) -> None:
    """Rows change, come and go meanwhile; the pages are as of the first one's epoch."""
    first = page(served, limit=20)
    assert (first["as_of"], len(first["rows"])) == (2, 20)
    served.hand.apply(3, ({2: 9.0, **dict.fromkeys(range(100, 120), 9.0)}, [59]), ({4: 9.0}, []))
    served.hand.apply(4, ({}, [3]), ({}, [4]))
    served.until(4)
    found, at = list(first["rows"]), first
    while at["next"] is not None:
        at = page(served, limit=7, after=at["next"])
        assert at["as_of"] == 2 and len(at["rows"]) <= 7
        found += at["rows"]
    want = {key(served, k): v for k, v in {2: 1.0, 3: -2.0, 4: 3.0, **dict.fromkeys(MANY, 2.0)}.items()}
    assert {one["id"]: one["embedding"][0] for one in found} == want
    assert len(found) == len(want)
    assert {"epoch", "logits", "class"} < set(found[0])
    now = page(served, limit=10_000)
    assert (now["as_of"], now["next"], len(now["rows"])) == (4, None, len(want) + 20 - 3)


def test_ids_as_strings(served: Served) -> None:
    assert all(isinstance(one["id"], str) for one in page(served, ids_as="string")["rows"])


def test_cursors_are_looked_at(served: Served) -> None:
    cursor = page(served, limit=5)["next"]
    fields = orjson.loads(base64.urlsafe_b64decode(cursor + "=="))

    def other(**changed: Any) -> str:
        names = ["version", "epoch", "first", "used", "generation", "table", "kind"]
        raw = orjson.dumps([changed.get(name, value) for name, value in zip(names, fields, strict=True)])
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    assert other() == cursor
    wrong = ["", "x", cursor[:-3], cursor + "A", "é", "[]", base64.urlsafe_b64encode(b"[1]").decode()]
    wrong += [other(version=2), other(epoch=-1), other(first=10**6), other(used=-5), other(first="0"), other(table=7)]
    wrong += [other(epoch=10**9), other(used=2**62, first=0), other(epoch=2**63), other(generation=1.5), other(kind=3)]
    for one in wrong:
        refused(served, 422, "bad-request", after=one)
    assert "another table" in refused(served, 410, "gone", after=other(table="../../etc/passwd"))
    refused(served, 410, "gone", after=other(generation=3))
    assert "leave it out" in refused(served, 400, "bad-request", after=other(kind="user"))
    assert served.http.get("/v1/rows", params={"after": cursor, "kind": "user"}).status_code == 400
    refused(served, 422, "bad-request", limit=0)
    refused(served, 422, "bad-request", limit=10_001)


def test_an_epoch_that_is_not_kept_is_gone(served: Served) -> None:
    cursor = page(served, limit=5)["next"]
    for epoch in range(3, 3 + 130):  # the ring has 4096 entries
        served.hand.apply(epoch, (dict.fromkeys(MANY, float(epoch)), []), ({}, []))
    served.until(132)
    assert "begin again" in refused(served, 410, "gone", after=cursor)
    assert served.lookup.budget.in_flight == 0


class Events:
    """Events of a stream, one after the other."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines = lines

    def next(self) -> tuple[str, str, dict[str, Any]]:
        name, mark, data = "", "", ""
        for line in self.lines:
            field, _, value = line.partition(": ")
            name, mark, data = (
                value if field == "event" else name,
                value if field == "id" else mark,
                value if field == "data" else data,
            )
            if not line and (data or mark):
                return name, mark, orjson.loads(data or b"{}")
        raise EOFError


@contextmanager
def events(http: httpx.Client, **asked: Any) -> Iterator[Events]:
    headers = asked.pop("headers", {})
    with http.stream("GET", "/changes", params=asked, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer.iter_lines())


def all_of(stream: Events) -> tuple[str, str, int]:
    """An event in all its pieces: its name, its id, and the number of rows."""
    found = [stream.next()]
    while found[-1][2]["more"]:
        found.append(stream.next())
    assert len({name for name, _, _ in found}) == 1 and not any(mark for _, mark, _ in found[:-1])
    return found[-1][0], found[-1][1], sum(len(told["rows"]) for _, _, told in found)


def rows(told: dict[str, Any]) -> dict[Any, float]:
    return {one["id"]: one["embedding"][0] for one in told["rows"]}


def test_changes_as_they_come(served: Served) -> None:
    two, three, nine = (key(served, number) for number in (2, 3, 9))
    with listening(served) as http:
        with events(http) as stream:
            assert stream.next() == ("", "2", {})
            served.hand.apply(3, ({2: 5.0}, [3]), ({}, []))
            served.until(3)
            name, mark, told = stream.next()
            assert (name, mark, told["as_of"], told["more"]) == ("change", "3", 3, False)
            assert (rows(told), told["deleted"]) == ({two: 5.0}, [three])
            served.hand.apply(4, ({9: 1.5}, []), ({}, []))
            served.until(4)
            assert rows(stream.next()[2]) == {nine: 1.5}
        for asked in ({"since_epoch": 2}, {"since_epoch": 99, "headers": {"last-event-id": "2"}}):
            with events(http, **asked, ids_as="string") as stream:  # what followed, as one change
                name, mark, told = stream.next()
                assert (name, mark, rows(told)) == ("change", "4", {str(two): 5.0, str(nine): 1.5})
                assert told["deleted"] == [str(three)]
        for wrong in ({"since_epoch": -1}, {"since_epoch": "x"}, {"headers": {"last-event-id": "x"}}, {"since": 1}):
            headers = wrong.pop("headers", {})
            answer = http.get("/changes", params=wrong, headers=headers)  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["kind"]) == (422, "bad-request")
        assert http.get("/changes", params={"kind": "user"}).status_code == 400
        assert http.head("/changes").status_code == 200


def test_what_a_table_does_not_know_any_more_is_whole(served: Served) -> None:
    """A table that has grown knows no deletions of before; whoever has seen them goes on."""
    with listening(served) as http:
        with events(http) as stream:
            stream.next()
            served.hand.apply(3, ({}, [3]), ({}, []))
            served.until(3)
            assert stream.next()[2]["deleted"] == [key(served, 3)]
            served.hand.apply(4, (dict.fromkeys(range(1000, 4000), 1.0), []), ({}, []))
            served.until(4)
            assert all_of(stream) == ("change", "4", 3000)
        with events(http, since_epoch=2) as stream:
            assert all_of(stream) == ("whole", "4", 3000 + len(MANY) + 2)


def test_a_stream_ends_with_the_server(served: Served) -> None:
    with listening(served) as http, events(http) as stream:
        stream.next()
        served.hand.apply(3, ({2: 5.0}, []), ({}, []))
        assert stream.next()[1] == "3"
    assert served.lookup.budget.in_flight == 0
