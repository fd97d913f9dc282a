"""A forward that takes one Data: its fields are what the parameters of other forwards are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import WEIGHT, EdgeValues, Graph  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN = 4


class OfData(nn.Module):
    """Whatever a function makes of a Data."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = pyg.GCNConv(IN, 5), pyg.GraphConv(5, 3)
        self.attentive = pyg.GATConv(IN, 5, edge_dim=2)
        self.of_numbers = pyg.GINEConv(nn.Linear(IN, 3), edge_dim=1)

    def forward(self, data: Any, epochs: int = 0) -> Any:
        return self.function(self, data)


def as_it_is_written(s: Any, data: Any) -> Any:
    x, edge_index = data.x, data.edge_index
    x = F.dropout(s.first(x, edge_index).relu(), training=s.training)
    return F.log_softmax(s.second(x, edge_index), dim=1)


def kept_in_data(s: Any, data: Any) -> Any:
    data = data.to("cpu")
    data.x = s.first(data.x, data.edge_index, data.edge_weight)
    return s.second(data.x, data.edge_index) if data.batch is None else pyg.global_mean_pool(data.x, data.batch)


def weight_or_attribute(s: Any, data: Any) -> Any:
    weight = data.edge_attr if data.edge_attr is not None else data.edge_weight
    return s.first(data.x, data.edge_index, weight)


def weighted_twice(s: Any, data: Any) -> Any:
    return s.second(s.first(data.x, data.edge_index, data.edge_weight), data.edge_index, data.edge_weight)


def of_a_batch(s: Any, data: Any) -> Any:
    data = data.to("cpu")
    return s.second(s.first(data.x, data.edge_index).relu(), data.edge_index)[: data.batch_size]


def of_ogb(s: Any, data: Any) -> Any:
    """Read the `graph` of a dataset of OGB's."""
    weight = data.graph["edge_weight"] if "edge_weight" in data.graph else None
    x = s.first(data.graph["node_feat"], data.graph["edge_index"], weight)
    return s.second(x[: data.graph["num_nodes"]], data.graph["edge_index"])


TAKEN: dict[str, tuple[Callable[[Any, Any], Any], list[bool], int]] = {
    "the graph of OGB": (of_ogb, [True, False], 0),
    "as it is written": (as_it_is_written, [False, False], 0),
    "kept in data": (kept_in_data, [True, False], 0),
    "a batch": (of_a_batch, [False, False], 0),
    "weights": (weighted_twice, [True, True], 0),
    "weights by another name": (lambda s, d: s.first(d["x"], d["edge_index"], d["edge_attr"]), [True], 0),
    "a column of weights": (lambda s, d: s.first(d.x, d.edge_index, d.edge_attr.squeeze(-1)), [True], 0),
    "one of both names": (weight_or_attribute, [True], 0),
    "attributes": (lambda s, d: s.attentive(d.x, d.edge_index, d.edge_attr), [False], 2),
    "attributes of one number": (lambda s, d: s.of_numbers(d.x, d.edge_index, d.edge_attr.view(-1, 1)), [False], 1),
    "both": (
        lambda s, d: s.second(s.attentive(d.x, d.edge_index, d.edge_attr).relu(), d.edge_index, d.edge_weight),
        [False, True],
        2,
    ),
}  # fmt: skip


def assert_same(model: Model, module: Any, attributes: int) -> None:
    """Rows of the model are those of the user's module, with weights and attributes of a graph's own."""
    rng, graph = np.random.default_rng(3), random_graph(5, width=IN)
    weight = rng.uniform(0.5, 2, len(graph.src)).astype(np.float32)
    attr = rng.standard_normal((len(weight), attributes)).astype(np.float32) if attributes else None
    edge_attr = torch.from_numpy(weight if attr is None else attr)
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]))
    data = Data(torch.from_numpy(graph.x), edges, edge_attr, edge_weight=torch.from_numpy(weight))
    data.batch_size = len(graph.x)
    rows = {"node_feat": data.x, "num_nodes": len(graph.x)}
    data.graph = {**rows, "edge_index": edges, "edge_weight": data.edge_weight}
    with torch.no_grad():
        truth = module.eval()(data).numpy()
    values = EdgeValues(len(weight), {WEIGHT: weight}, attr)
    [*_, rows] = whole_graph.forward(compile_plan(model), Graph(graph.x, graph.src, graph.dst, values))
    np.testing.assert_allclose(rows, truth, rtol=0, atol=3e-5 * max(1, np.abs(truth).max()))


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_read_as_a_forward_of_tensors(name: str, tmp_path: Path) -> None:
    function, weighted, attributes = TAKEN[name]
    module = OfData(function)
    model = export_model(module, tmp_path)
    convs = [layer for layer in model.layers if hasattr(layer, "edge_weights") or hasattr(layer, "edge_channels")]
    assert [bool(getattr(layer, "edge_weights", False)) for layer in convs] == weighted
    assert model.edge_features == attributes
    assert_same(model, module, attributes)


class Elsewhere(OfData):
    def forward(self, samples: Any) -> Any:
        return self.first(samples.x, samples.edge_index)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "another field": (
        lambda: OfData(lambda s, d: s.first(d.feat, d.edge_index)),
        r"^OfData reads data.feat at test_one_data.py:\d+: a Data has x, edge_index, edge_weight and edge_attr here",
    ),
    "the size of a batch": (lambda: OfData(lambda s, d: s.first(d.x, d.edge_index) / d.batch_size), "a size of the gr"),
    "by its key": (lambda: OfData(lambda s, d: s.first(d["z"], d["edge_index"])), "^OfData reads data.z at test_one"),
    "a size": (lambda: OfData(lambda s, d: s.first(d.x, d.edge_index) / d.num_nodes), "a size of the graph, which"),
    "its Data as it was": (
        lambda: OfData(lambda s, d: setattr(d, "z", s.first(d.x, d.edge_index)) or d),
        "returns its Data, whose x is as it was given: have it return the rows",
    ),
    "a row for each graph": (
        lambda: OfData(lambda s, d: pyg.global_mean_pool(s.first(d.x, d.edge_index), d.batch)),
        r"global_mean_pool \(test_one_data.py:\d+\) gives a row per graph",
    ),
    "another name": (lambda: Elsewhere(torch.relu), r"takes \(samples\), expected .*, or one Data, called data, "),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M")


class Columns(OfData):
    """Rows of a vertex in several tensors."""

    def forward(self, words: Any, tweets: Any, numbers: Any, marks: Any, edge_index: Any) -> Any:
        return self.first(torch.cat([words, tweets, numbers, marks], 1), edge_index)


def test_rows_in_several_tensors_are_to_be_columns_of_one(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"needs .*marks, .* rows of vertices give their widths: features="):
        export_model(Columns(torch.relu), tmp_path / "M")


class Stage(OfData):
    """As PyG's GraphGym has its layers: the rows of its Data are replaced, and it is returned."""

    def forward(self, batch: Any) -> Any:
        for conv in (self.first, self.first):
            batch.x = batch.x + conv(batch.x, batch.edge_index).tanh()
        return batch


def test_a_data_that_is_returned_has_its_rows(tmp_path: Path) -> None:
    module = Stage(torch.relu)
    module.first = pyg.GCNConv(IN, IN)
    model = export_model(module, tmp_path)
    rows = OfData(lambda s, d: Stage.forward(module, d).x)
    assert_same(model, rows, 0)


class WithDefault(OfData):
    def forward(self, data: Any = None) -> Any:
        return self.function(self, data)


class OfKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv(IN, 3)})

    def forward(self, data: Any = None) -> Any:
        return self.conv(data.x_dict, data.edge_index_dict)


def test_a_data_may_have_a_default(tmp_path: Path) -> None:
    module = WithDefault(as_it_is_written)
    assert_same(export_model(module, tmp_path / "one"), module, 0)
    export_model(OfKinds(), tmp_path / "kinds")
