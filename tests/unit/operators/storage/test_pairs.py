"""Many relations within one kind: rows of (vertex, relation) pairs, held against PyG's RGCNConv after each epoch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from freshet.operators.storage.layer import LayerStorage  # noqa: E402
from freshet.operators.storage.pairs import PairSynopses  # noqa: E402
from freshet.state.task_parts import TaskParts  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.kind_streams import arrays_of, random_rows  # noqa: E402
from tests.support.stages.kind_cores import KindCores  # noqa: E402

TYPES = 12
DEALT = {
    "one part": [TaskParts.of([1])],
    "several in a task": [TaskParts.of([2, 1])],
    "a task each": [TaskParts.dealt(4, 4)],
}
LAYERS = {
    "sum": {"aggr": "sum", "num_bases": 3},
    "mean": {"num_blocks": 2},
    "max": {"aggr": "max", "root_weight": False},
}


@cache
def exported(aggr: str) -> tuple[Any, KindsModel]:
    module = of.Typed(pyg.RGCNConv(4, 6, TYPES, **LAYERS[aggr]), pyg.RGCNConv(6, 2, TYPES, **LAYERS[aggr]))
    with TemporaryDirectory() as folder:
        export_model(of.randomised(module), Path(folder))
        model = load_any_model(folder)
    assert isinstance(model, KindsModel)
    return module.double(), model


class TypedCores(KindCores):
    """Cores of an RGCN."""

    def __init__(self, aggr: str, dealt: list[TaskParts]) -> None:
        self.module, model = exported(aggr)
        super().__init__(model, dealt)

    def want(self) -> dict[tuple[int, int], np.ndarray]:
        """The embeddings of the graph by PyG, in float64."""
        ((ids,), graph) = arrays_of(self.graph)
        edges = np.concatenate([np.stack([one.src, one.dst]) for one in graph.edges], axis=1)
        types = np.repeat(np.arange(TYPES), [one.src.size for one in graph.edges])
        with torch.no_grad():
            rows = self.module(torch.from_numpy(graph.x[0]).double(), torch.from_numpy(edges), torch.from_numpy(types))
        return {(0, v): row.numpy() for v, row in zip(ids, rows, strict=True)}

    def follow(self, seed: int, epochs: int) -> None:
        rng = np.random.default_rng(seed)
        for epoch in range(epochs):
            self.run(random_rows(self.graph, rng, 12 if epoch else 40))
            self.assert_right()

    def rows_of_pairs(self) -> list[int]:
        """The rows of pairs by layer."""
        found = []
        for layer in self.storages[1:]:
            found.append(0)
            for core in layer:
                assert isinstance(core, LayerStorage)
                (one,) = core.relations
                assert isinstance(one, PairSynopses)
                for part, rows in enumerate(core.kinds[0].at.needs.tolist()):
                    slots = np.arange(rows, dtype=np.int32) + np.int32(part << core.kinds[0].at.shift)
                    found[-1] += one.pairs.pairs_of(slots).rows.size
        return found


@pytest.mark.parametrize("dealt", DEALT)
@pytest.mark.parametrize("aggr", LAYERS)
def test_two_layers_are_those_of_pyg(aggr: str, dealt: str) -> None:
    cores = TypedCores(aggr, DEALT[dealt])
    cores.follow(1, 5)
    gone = {0, 3, 4, 11}
    cores.run([("del_edge", *edge) for edge in cores.graph.edges if edge[0] in gone])  # types vanish, and come back
    cores.assert_right()
    cores.restore()
    cores.follow(2, 3)
    assert gone & {edge[0] for edge in cores.graph.edges}


@pytest.mark.parametrize("dealt", DEALT)
def test_rows_are_as_many_as_pairs_with_edges(dealt: str) -> None:
    cores = TypedCores("mean", DEALT[dealt])
    cores.follow(3, 4)
    pairs = {(relation, dst) for relation, _, dst in cores.graph.edges}
    parts = cores.dealt[0].parts
    for rows in cores.rows_of_pairs():
        assert len(pairs) <= rows <= len(cores.graph.edges) and (parts > 1 or rows == len(pairs))
    cores.run([("del_vertex", vertex) for vertex in list(cores.graph.x)])
    cores.assert_right()
    assert not cores.rows and cores.rows_of_pairs() == [0, 0]
    for core in cores.cores:
        for table in core.tables:
            if table.name.endswith((".z", ".s", ".x", ".own", ".flags", ".q", ".home", ".pair")):
                np.testing.assert_array_equal(table.data, np.full_like(table.data, table.fill), err_msg=table.name)
