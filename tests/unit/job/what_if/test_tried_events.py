"""Requests of what if as events: keys, ids and times of them are the job's, and its clock stands still."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.serving.bounds.forms import FormError
from freshet.job.what_if.engine import WhatIfEngine
from freshet.job.what_if.followed_graph import FollowedGraph
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.unit.job.results.test_attributes import run

ONES = [1.0] * IN_WIDTH


def opened(folder: Path, events: list[dict[str, Any]], per_epoch: int = 1, **options: Any) -> WhatIfEngine:
    """What answers for a job of these events, at its last epoch."""
    if not (folder / "O").exists():
        save_model(make_model(1, [conv("sage_conv", IN_WIDTH, 3)]), folder / "model")
        (folder / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)))
        run(folder, "O", epoch_events=per_epoch, **options)
    last = -(-len(events) // per_epoch)
    return WhatIfEngine(FollowedGraph(folder / "O", None), lambda: last)


def ask(engine: WhatIfEngine, **item: Any) -> np.ndarray:
    return engine.tried([item], "", 0, 5.0, 100).rows


def parallel(key: str, **more: Any) -> dict[str, Any]:
    return {"op": "add_edge", "src": 1, "dst": 2, key: "a", **more}


def x_of(vertex: Any, value: float) -> dict[str, Any]:
    return {"op": "add_vertex", "id": vertex, "x": [value] * IN_WIDTH}


def test_keys_stand_in_the_field_of_the_job(tmp_path: Path) -> None:
    engine = opened(tmp_path, [x_of(1, 1), x_of(3, 5), parallel("tx"), {**parallel("tx"), "src": 3}], edge_key="tx")
    now = ask(engine, id=2)
    np.testing.assert_array_equal(ask(engine, id=2, in_edges=[{"id": 1, "key": "a"}]), now)  # it is there
    assert (ask(engine, id=2, in_edges=[{"id": 1, "key": "b"}]) != now).any()
    assert (ask(engine, id=2, del_in_edges=[{"id": 1, "key": "a"}]) != now).any()
    np.testing.assert_array_equal(ask(engine, id=2, del_in_edges=[{"id": 1, "key": "b"}]), now)
    with pytest.raises(FormError, match=r"^in_edges\[0\]: tx: expected a string like the job's other keys"):
        ask(engine, id=2, in_edges=[{"id": 1, "key": 7}])
    engine.close()


def test_a_key_is_refused_where_edges_have_none_or_one_of_their_own(tmp_path: Path) -> None:
    edges = [x_of(1, 1), {"op": "add_edge", "src": 1, "dst": 2}]
    engine = opened(tmp_path, edges, edge_key="offset")
    with pytest.raises(FormError, match=r"in_edges\[0\]: key: --edge-key offset gives each edge a key of its own"):
        ask(engine, id=2, in_edges=[{"id": 1, "key": "a"}])
    with pytest.raises(FormError, match=r"del_in_edges\[0\]: key: --edge-key offset gives each edge a key of its own"):
        ask(engine, id=2, del_in_edges=[{"id": 1, "key": 5}])
    assert (ask(engine, id=2, del_in_edges=[{"id": 1, "key": "*"}]) != ask(engine, id=2)).any()
    engine.close()
    (tmp_path / "plain").mkdir()
    engine = opened(tmp_path / "plain", edges)
    for name in ("key", "kind"):
        with pytest.raises(FormError, match=rf"in_edges\[0\].*{name}: .* no {name}s"):
            ask(engine, id=2, in_edges=[{"id": 1, name: "a"}])
    engine.close()


@pytest.mark.parametrize("given", [{"in_edges": [["new vertex 1"]]}, {"also": ["new vertex 1"]}], ids=str)
def test_a_new_vertex_is_none_of_those_that_are_named(tmp_path: Path, given: dict[str, Any]) -> None:
    engine = opened(tmp_path, [x_of("a", 1)])
    found = engine.tried([{"x": ONES, **given, "also": ["new vertex 1"]}], "", 0, 5.0, 100)
    wanted: tuple[list[Any], list[Any]] = (
        ([None, "new vertex 1"], []) if "in_edges" in given else ([None], ["new vertex 1"])
    )
    assert (found.ids, found.unknown) == wanted
    engine.close()


@pytest.mark.parametrize(
    ("vertex", "wrong", "why"),
    [
        (1, 2**63, "expected an integer within int64, got 9223372036854775808"),
        ("a", "\ud800", r"expected Unicode that UTF-8 can encode, got '\\ud800'"),
    ],
)
def test_ids_that_no_vertex_can_have_are_named(tmp_path: Path, vertex: Any, wrong: Any, why: str) -> None:
    engine = opened(tmp_path, [x_of(vertex, 1)])
    with pytest.raises(FormError, match=f"^also: {why}"):
        ask(engine, id=vertex, also=[wrong])
    with pytest.raises(FormError, match=r"^id: "):
        ask(engine, id=wrong)
    with pytest.raises(FormError, match=r"^in_edges\[0\](: src: |\.id: expected Unicode)"):
        ask(engine, id=vertex, in_edges=[[wrong]])
    engine.close()


def test_what_is_tried_leaves_the_clock_of_the_job(tmp_path: Path) -> None:
    edges = [{"op": "add_edge", "src": k, "dst": 2, "ts": 1000 * k} for k in range(3, 9)]
    opened(tmp_path, edges, edge_ttl="60s", ts_jump="1h").close()
    graph = FollowedGraph(tmp_path / "O", None)
    engine = WhatIfEngine(graph, lambda: len(edges))
    ask(engine, id=2)
    clock = graph.graph.live.core.tables["clock"]
    before = clock.data.copy()
    ask(engine, id=2, in_edges=[[3, 2.0], [4]], del_in_edges=[[5], [6]])
    np.testing.assert_array_equal(clock.data, before)
    engine.close()
