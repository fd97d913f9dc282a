"""Changed rows by the clients: over Flight, from the mapped table, and as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from freshet import AsyncEmbeddingClient, BadRequestError
from tests.support.serving.served import ANSWER_S, Served, key


@pytest.fixture(params=["int", "string"])
def served(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Served]:
    one = Served(tmp_path / "O", request.param)
    yield one
    one.close()


def told(table: pa.Table) -> tuple[int, bool, dict[Any, float | None]]:
    """The epoch, whether it is the whole, and the first number of each row, None where it was deleted."""
    assert table.column_names == ["id", "epoch", "embedding", "deleted"]
    metadata = table.schema.metadata
    rows = {one["id"]: None if one["deleted"] else one["embedding"][0] for one in table.to_pylist()}
    return int(metadata[b"epoch"]), metadata[b"whole"] == b"true", rows


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_changes_as_they_come(served: Served, way: str) -> None:
    two, three, nine = (key(served, number) for number in (2, 3, 9))
    with served.client(way) as client:
        now = client.changes()
        served.hand.apply(2, ({2: 5.0}, [3]), ({}, []))
        served.until(2)
        assert told(next(now)) == (2, False, {two: 5.0, three: None})
        served.hand.apply(3, ({9: 1.5}, []), ({}, []))
        served.until(3)
        assert told(next(now)) == (3, False, {nine: 1.5})
        assert told(next(client.changes(since_epoch=1))) == (3, False, {two: 5.0, three: None, nine: 1.5})
        served.hand.apply(4, (dict.fromkeys(range(1000, 4000), 1.0), []), ({}, []))  # the table grows
        served.until(4)
        epoch, whole, rows = told(next(now))
        assert (epoch, whole, len(rows)) == (4, False, 3000)
        epoch, whole, rows = told(next(client.changes(since_epoch=1)))
        assert (epoch, whole, len(rows), three in rows) == (4, True, 3003, False)
        for wrong in (-1, "1", 1.5, True):
            with pytest.raises(BadRequestError, match="since_epoch: expected an epoch"):
                client.changes(wrong)  # type: ignore[arg-type]


def test_changes_of_the_asynchronous_client(served: Served) -> None:
    async def run() -> None:
        address = f"127.0.0.1:{served.port}"
        async with AsyncEmbeddingClient(address, timeout=ANSWER_S) as client:
            found = client.changes(since_epoch=1)
            served.hand.apply(2, ({2: 5.0}, []), ({}, []))
            assert told(await anext(found)) == (2, False, {key(served, 2): 5.0})
            await found.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
