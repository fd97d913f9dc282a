"""Scores of pairs: over Flight, HTTP, from the mapped table and from the command line, at one epoch each."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

from freshet import AsyncEmbeddingClient, BadRequestError, NotYetError
from freshet.job import cli
from freshet.job.serving.protocol.wanted import PAIRS_MAX
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import ANSWER_S, Served, key

PAIRS = [(2, 3), (3, 2), (4, 4), (2, 99), (98, 97), (2, 3)]
VALUES = {2: 1.0, 3: -2.0, 4: 3.0}


def head() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Bilinear(WIDTH, WIDTH, 1)


@pytest.fixture(scope="module", params=["int", "string"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param, link_head=head())
    yield one
    one.close()


@pytest.fixture(scope="module")
def without_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    yield one
    one.close()


def expected(pairs: list[tuple[int, int]]) -> list[float | None]:
    """The module's scores of pairs, in float64; null where one of both is unknown."""
    module, found = head().double(), list[float | None]()
    for left, right in pairs:
        ends = [torch.full((1, WIDTH), VALUES[one], dtype=torch.float64) for one in (left, right) if one in VALUES]
        found.append(module(*ends).item() if len(ends) == 2 else None)
    return found


def alike(made: list[float | None], wanted: list[float | None]) -> bool:
    return [one is None for one in made] == [one is None for one in wanted] and np.allclose(
        [one for one in made if one is not None], [one for one in wanted if one is not None], rtol=1e-5, atol=1e-5
    )


def keys(served: Served, pairs: list[tuple[int, int]]) -> list[tuple[Any, Any]]:
    return [(key(served, left), key(served, right)) for left, right in pairs]


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_a_client_gets_the_scores_of_the_module(served: Served, way: str) -> None:
    pairs = keys(served, PAIRS)
    with served.client(way) as client:
        table = client.score(pairs)
        assert table.column_names == ["left", "right", "score"]
        assert list(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True)) == pairs
        assert alike(table["score"].to_pylist(), expected(PAIRS))
        metadata = table.schema.metadata
        assert (metadata[b"scored_by"], int(metadata[b"epoch"])) == (b"link_head", client.epoch())
        assert client.score([]).num_rows == 0
        assert client.score(pairs[:1], min_position={"0": 10 * client.epoch() - 1}).num_rows == 1
        if served.hand.kind == "int":
            assert client.score(np.array(PAIRS)).equals(table)
        with pytest.raises(NotYetError):
            client.score(pairs, min_epoch=10**6, timeout=0.05)
        for wrong, says in (([(2, 3, 4)], "LEFT, RIGHT"), ([(1.5, 2)], r"expected (strings|integers)")):
            with pytest.raises(BadRequestError, match=says):
                client.score(wrong)
        with pytest.raises(BadRequestError, match="100,000"):
            client.score([pairs[0]] * (PAIRS_MAX + 1))
        near = client.nearest(pairs[0][0], k=3, metric="link")
        of_all = client.score([(pairs[0][0], one) for one in near["id"].to_pylist()])
        assert near["score"].to_pylist() == of_all["score"].to_pylist() == sorted(near["score"].to_pylist())[::-1]
        assert near.num_rows == 3


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_http(served: Served, path: str) -> None:
    pairs = [list(one) for one in keys(served, PAIRS)]
    answer = served.http.post(path, json={"pairs": pairs}).json()
    assert alike(answer["scores"], expected(PAIRS))
    assert answer["unknown"] == [key(served, one) for one in (99, 98, 97)]
    assert answer["as_of"] == served.lookup.table.epoch
    assert {"as_of_ms", "event_ts"} <= answer.keys()
    assert "found" not in answer
    texts = served.http.post(path, json={"pairs": pairs, "ids_as": "string"}).json()
    assert texts["unknown"] == [str(key(served, one)) for one in (99, 98, 97)]
    late = served.http.post(path, json={"pairs": pairs, "min_epoch": 10**6, "timeout": 0.02})
    assert (late.status_code, late.json()["kind"]) == (504, "not-yet")
    for body, says in (
        ({}, "pairs: expected it"),
        ({"pairs": 7}, "pairs"),
        ({"pairs": [7]}, "LEFT, RIGHT"),
        ({"pairs": [[7]]}, "LEFT, RIGHT"),
        ({"pairs": [[None, True]]}, "expected"),
        ({"pairs": pairs, "pair": 1}, "did you mean pairs"),
        ({"pairs": [pairs[0]] * (PAIRS_MAX + 1)}, "100,000"),
    ):
        refused = served.http.post(path, json=body)
        assert refused.status_code in (400, 422)
        assert says in refused.json()["error"]
        assert refused.json()["kind"] == "bad-request"


def test_a_ticket_may_have_the_pairs_alone(served: Served) -> None:
    pairs = keys(served, PAIRS)
    with flight.connect(f"grpc://127.0.0.1:{served.port}") as client:
        for ticket in ({"score": pairs}, {"score": {"pairs": pairs}}):
            table = client.do_get(flight.Ticket(orjson.dumps(ticket))).read_all()
            assert alike(table["score"].to_pylist(), expected(PAIRS))
            assert table.schema.field("score").type == pa.float32()


def test_without_a_head_it_is_the_dot_product_and_says_so(without_head: Served) -> None:
    with without_head.client("flight") as client:
        table = client.score([(2, 3), (4, 4)])
        assert table["score"].to_pylist() == [-2.0 * WIDTH, 9.0 * WIDTH]
        assert table.schema.metadata[b"scored_by"] == b"dot"
        link, dot = (client.nearest(2, k=3, metric=one) for one in ("link", "dot"))
        assert link["id"].equals(dot["id"])


def test_calls_that_do_not_block(served: Served) -> None:
    async def asked() -> pa.Table:
        async with AsyncEmbeddingClient(f"127.0.0.1:{served.port}", timeout=ANSWER_S) as client:
            return await client.score(keys(served, PAIRS))

    assert alike(asyncio.run(asked())["score"].to_pylist(), expected(PAIRS))


def test_both_ends_are_of_one_epoch_while_rows_change(without_head: Served) -> None:
    """Of each epoch both rows have the same value, so a pair of two epochs has no square for its score."""
    hand, stop = without_head.hand, threading.Event()
    first = without_head.lookup.table.epoch

    def change() -> None:
        for epoch in itertools.count(first + 1):
            if stop.is_set():
                return
            hand.apply(epoch, ({2: float(epoch), 3: float(epoch)}, []), ({4: float(epoch)}, []))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with without_head.client("flight") as one, without_head.client("mapped") as other:
            for k in range(150):
                table = (one, other)[k % 2].score([(2, 3), (2, 4), (4, 3)])
                epoch = int(table.schema.metadata[b"epoch"])
                wanted = [-8.0, 12.0, -24.0] if epoch == 1 else [float(WIDTH * epoch**2)] * 3
                assert np.allclose(table["score"].to_pylist(), wanted, rtol=1e-5), epoch
    finally:
        stop.set()
        thread.join()
        without_head.hand.apply(without_head.lookup.table.epoch + 1, ({2: 1.0, 3: -2.0}, []), ({4: 3.0}, []))


def test_the_command_prints_scores(served: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def freshet(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(one) for one in arguments])
        return int(end.value.code or 0), *capsys.readouterr()

    at = ("--at", f"127.0.0.1:{served.port}", "--format", "json")
    pairs = keys(served, PAIRS)
    code, out, err = freshet("query", "--pairs", *at, *(f"{left}:{right}" for left, right in pairs))
    rows = [orjson.loads(line) for line in out.splitlines()]
    assert alike([one["score"] for one in rows], expected(PAIRS))
    assert code == 1
    assert f"epoch {served.lookup.table.epoch}: 4 of 6 pairs, by the model's link head" in err
    file = tmp_path / "pairs.parquet"
    left, right = zip(*pairs[:3], strict=True)
    pq.write_table(pa.table({"left": left, "right": right, "more": [1, 2, 3]}), file)
    code, out, _ = freshet("query", "--pairs-file", file, *at)
    assert (code, len(out.splitlines())) == (0, 3)
    pq.write_table(pa.table({"left": left}), file)
    for given, says in (
        (("--pairs", "7"), "expected LEFT:RIGHT, got '7'"),
        (("--pairs", "7:8:9"), "ids with a colon"),
        (("--pairs-file", file), "right"),
        (("--pairs-file", tmp_path / "none.parquet"), "none.parquet"),
        (("--pairs-file", file, "7:8"), "goes without arguments"),
        ((), "expected ids"),
    ):
        code, _, err = freshet("query", *given, *at)
        assert code == 2
        assert says in err
