"""The bound of Feast's answers: no answer is longer, and none of its factors can be left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.job.serving.doors.feast import feast_bytes, feast_parts
from freshet.job.serving.doors.routes import asking, features
from tests.support.serving.served import Served, key

LONGEST = "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize("columns", [["embedding"], ["epoch"], ["x"], ["embedding", "epoch", "x", "embedding"]])
@pytest.mark.parametrize(("count", "width"), [(0, 8), (1, 1), (1, 64), (200, 1), (200, 64)])
def test_no_answer_is_longer(columns: list[str], count: int, width: int) -> None:
    """Of the longest numbers: the bound is reached to a half, so that it holds by each of its factors."""
    ids, epochs = list(range(count)), np.full(count, -(2**63), np.int64)
    rows = np.full((count, width), -1.2345679e-38, np.float32)
    answer: Any = SimpleNamespace(ids=np.array(ids, np.int64), epochs=epochs, rows=rows)
    named = [("v", one) for one in columns]
    moments = np.full(count, LONGEST)
    parts = b"".join(feast_parts({"metadata": {}}, ids, named, answer, moments))
    assert len(orjson.loads(parts)["results"]) == 1 + len(columns)
    without_ids = len(parts) - len(orjson.dumps(ids))
    bound = feast_bytes(width, named, count)
    assert without_ids <= bound
    assert count < 200 or without_ids > bound / 2


def test_what_was_sent_counts_twice(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was read, and in the answer."""
    sizes: list[int] = []
    found = asking.found_in

    async def noted(*asked: Any) -> Any:
        answer, held, size = await found(*asked)
        sizes.append(size)
        return answer, held, size

    monkeypatch.setattr(features, "found_in", noted)
    one = Served(tmp_path / "O", "int")
    try:
        body = orjson.dumps({"features": ["v:epoch"], "entities": {"id": [key(one, 2)] * 50}})
        assert one.http.post("/get-online-features", content=body).status_code == 200
        assert sizes == [feast_bytes(one.lookup.table.width, [("v", "epoch")], 50) + 2 * len(body)]
    finally:
        one.close()
