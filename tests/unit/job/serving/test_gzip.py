"""Answers as gzip: the same content, whole or in parts, and none that is small."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from freshet.job.serving.doors import gzipped, json_answers
from freshet.job.serving.doors.gzipped import takes_gzip
from tests.support.serving.served import Served

MANY = list(range(10, 2000))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    one.hand.apply(2, (dict.fromkeys(MANY, 2.0), []), ({}, []))
    one.until(2)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (b"gzip", True),
        (b"deflate, GZIP;q=0.5", True),
        (b"*", True),
        (b"br, x-gzip", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0, *", False),
        (b"*;q=0", False),
        (b"gzip;q=x", False),
        (b"identity", False),
        (b"", False),
        (b"\xff", False),
    ],
)
def test_who_takes_it(accepted: bytes, takes: bool) -> None:
    assert takes_gzip(accepted) is takes


@pytest.mark.parametrize("in_parts", [False, True])
def test_the_content_is_the_same(served: Served, in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_parts:
        for name in ("FREE_BYTES", "INLINE_BYTES", "PART_BYTES"):
            monkeypatch.setattr(json_answers, name, 300)
        monkeypatch.setattr(gzipped, "INLINE_BYTES", 0)
    for ids in (MANY[:40], MANY):
        asked = {"json": {"ids": ids}, "headers": {"accept-encoding": "gzip"}}
        plain = served.http.post("/v1/embeddings", json={"ids": ids}, headers={"accept-encoding": "identity"})
        with served.http.stream("POST", "/v1/embeddings", **asked) as packed:  # type: ignore[arg-type]
            raw = b"".join(packed.iter_raw())
            assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
            assert packed.headers.get("content-length") in (None, str(len(raw)))
        assert "content-encoding" not in plain.headers and plain.headers["vary"] == "Accept-Encoding"
        assert gzip.decompress(raw) == plain.content
        assert len(raw) < len(plain.content) / 2
    assert served.lookup.budget.in_flight == 0


def test_small_answers_are_left_alone(served: Served) -> None:
    for path in ("/v1/embeddings/10", "/v1/embeddings/99999", "/v1/healthz"):
        answer = served.http.get(path, headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in answer.headers and answer.json()
    head = served.http.head("/openapi.json", headers={"accept-encoding": "gzip"})
    assert (head.headers["content-encoding"], head.content) == ("gzip", b"")
    assert served.http.get("/docs", headers={"accept-encoding": "gzip"}).headers["content-encoding"] == "gzip"
