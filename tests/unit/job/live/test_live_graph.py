"""The graph of a job at its epochs, held against a plain replay of its events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from freshet import InputError, LiveGraph, NotYetError
from freshet.job.live.graph_arrays import OrderedGraph
from tests.unit.job.results.test_export import EVENTS, Given


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Given:
    given = Given(tmp_path_factory.mktemp("done"))
    given.run("O", parts=2)
    return given


def content(graph: OrderedGraph) -> tuple[dict[object, list[float]], dict[tuple[object, object], float]]:
    """Features by id, and weights by the ids of the ends."""
    (ids,), ((src, dst, values),) = graph.ids, graph.graph.edges
    names = ids.tolist()
    ends = [(names[a], names[b]) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    assert len(set(ends)) == len(ends)
    x = graph.graph.x[0].tolist()
    return dict(zip(names, x, strict=True)), dict(zip(ends, values.weight.tolist(), strict=True))


def test_it_has_the_graph_of_each_epoch_also_going_back(done: Given, tmp_path: Path) -> None:
    epochs = [*range(EVENTS // 20 + 1)]
    random.Random(1).shuffle(epochs)
    with LiveGraph(done.folder / "O") as live:
        for epoch in [*epochs[:12], 0, None]:
            found = live.arrays(epoch, timeout=0.0)
            vertices, edges = done.truth(20 * live.epoch)
            assert content(found) == (vertices, {(src, dst): value for (src, dst, _), value in edges.items()})
        assert live.epoch == EVENTS // 20
        with pytest.raises(NotYetError, match="expected epoch 31, the newest is 30: nobody works on the job"):
            live.arrays(31)
        live.arrays(9)
        live.save(tmp_path / "S")
    with LiveGraph(done.folder / "O", begin=tmp_path / "S") as live:
        assert live.begin_epoch == live.epoch == 9
        for epoch in (9, 20, 12):
            found = live.arrays(epoch)
            vertices, edges = done.truth(20 * epoch)
            assert content(found) == (vertices, {(src, dst): value for (src, dst, _), value in edges.items()})
        with pytest.raises(InputError, match="epoch 8 is before epoch 9"):
            live.arrays(8)
