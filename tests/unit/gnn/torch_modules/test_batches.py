"""Modules on batches of whole neighbourhoods make the rows that they make of the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402

import freshet  # noqa: E402
from freshet.gnn.pyg.graph_data import graph_data  # noqa: E402
from freshet.gnn.torch_modules.loading import module_of  # noqa: E402
from tests.support.graphs.kinds import KINDS, kinds_model, random_kinds_graph, sage_everywhere, text_id  # noqa: E402
from tests.support.graphs.models import conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.graphs.torch_graphs import plain_inputs  # noqa: E402


def largest_difference(module: Any, data: Data, hops: int) -> float:
    found = [0.0]
    with torch.no_grad():
        whole = module(**module.arguments_of(data))
        for batch in freshet.loader(data, [-1] * hops, batch_size=16, mask=None):
            rows = module(**module.arguments_of(batch))[: batch.batch_size]
            found.append(float((rows - whole[batch.n_id[: batch.batch_size]]).abs().max()))
    assert len(found) > 3
    return max(found)


@pytest.mark.parametrize(("kind", "more"), [("sage_conv", 0), ("gatv2_conv", 0), ("gcn_conv", 1)])
def test_rows_of_seeds_are_those_of_the_whole_graph(kind: str, more: int) -> None:
    module = module_of(make_model(1, [conv(kind, 6, 5), {"type": "relu"}, conv(kind, 5, 4)]))
    data = Data(**plain_inputs(random_graph(3, edges=400), edge_features=0))
    assert largest_difference(module, data, 2 + more) < 1e-5
    if more:
        assert largest_difference(module, data, 2) > 1e-3, "degrees of the last vertices are those of the batch"


def test_batches_of_kinds_with_ids_that_are_strings() -> None:
    widths = dict.fromkeys(KINDS, 4)
    model = kinds_model([sage_everywhere(KINDS, 4), sage_everywhere(widths, 3, aggr="max")], ["user", "item"])
    graph, module = random_kinds_graph(model, 4, edges=60), module_of(model)
    ids = [np.array([text_id(one) for one in range(len(x))], object) for x in graph.x]
    data = graph_data(ids, graph, model.features.kinds, [False] * len(model.relations))
    with torch.no_grad():
        whole = module(**module.arguments_of(data))["item"]
        for batch in freshet.loader(data, [-1, -1], batch_size=8, mask=None, kind="item"):
            rows = module(**module.arguments_of(batch))["item"][: batch["item"].batch_size]
            expected = whole[batch["item"].n_id[: len(rows)]]
            torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)
