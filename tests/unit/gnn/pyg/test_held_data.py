"""A forward that reads a Data without being given it: one of its module, a global, or one of the function around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import EdgeValues, Graph  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN, VERTICES = 4, 9


def _data(**fields: Any) -> Any:
    chain = torch.tensor([[*range(VERTICES), 3, 3], [*range(1, VERTICES), 0, 5, 8]])
    return Data(torch.randn(VERTICES, IN, generator=torch.Generator().manual_seed(1)), chain, **fields)


data = _data(y=torch.arange(VERTICES), train_mask=torch.ones(VERTICES, dtype=torch.bool))
validation = _data()
values = SimpleNamespace(x=data.x, edge_index=data.edge_index)


class Net(nn.Module):
    """Whatever a function makes of nothing."""

    def __init__(self, function: Callable[..., Any] = torch.relu) -> None:
        super().__init__()
        self.function, self.data = function, _data()
        self.first, self.second, self.lin = pyg.GCNConv(IN, 5), pyg.GraphConv(5, 3), nn.Linear(IN, 5)

    def forward(self) -> Any:
        return self.function(self)


class OfEdges(Net):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.function(self, x, edge_index)


class OfRows(Net):
    def forward(self, x: Any) -> Any:
        return self.second(self.first(x, data.edge_index).relu(), data.edge_index)


class OfRowsAndWeights(Net):
    def forward(self, x: Any, edge_weight: Any) -> Any:
        return self.second(self.first(x, data.edge_index, edge_weight).relu(), data.edge_index)


class OfUnnamedWeights(Net):
    def forward(self, x: Any, e: Any = None) -> Any:
        return self.first(x, data.edge_index, e)


def of_a_global(s: Any) -> Any:
    x, edge_index = data.x, data.edge_index
    return s.second(s.first(x, edge_index).relu(), edge_index)


def around() -> Callable[[Any], Any]:
    inner = _data()
    return lambda s: s.second(s.first(inner.x, inner.edge_index).relu(), inner.edge_index)


def second_edges(s: Any, x: Any, edge_index: Any) -> Any:
    return s.second(s.first(x, edge_index).relu(), data.edge_index)


TAKEN: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "a global": (lambda: Net(of_a_global), lambda m, d: of_a_global(m)),
    "of the module": (
        lambda: Net(lambda s: s.second(s.first(s.data.x, s.data.edge_index).relu(), s.data.edge_index)),
        lambda m, d: of_a_global(m),
    ),
    "of the function around it": (lambda: Net(around()), lambda m, d: of_a_global(m)),
    "edges beside arguments": (lambda: OfEdges(second_edges), lambda m, d: m(d.x, d.edge_index)),
    "edges beside rows": (OfRows, lambda m, d: m(d.x)),
    "edges beside rows and weights": (OfRowsAndWeights, lambda m, d: m(d.x, torch.ones(d.num_edges))),
}


@pytest.mark.filterwarnings("ignore:.*beside its arguments")
@pytest.mark.parametrize("what", TAKEN)
def test_the_graph_of_a_job_stands_for_it(what: str, tmp_path: Path, monkeypatch: Any) -> None:
    make, run = TAKEN[what]
    module = make()
    before = module.state_dict()
    model = export_model(module, tmp_path)
    assert_untouched()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    graph = random_graph(5, width=IN)
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]))
    monkeypatch.setitem(globals(), "data", Data(torch.from_numpy(graph.x), edges))
    with torch.no_grad():
        truth = run(module.eval(), data).numpy()
    assert isinstance(model, Model)
    given = Graph(graph.x, graph.src, graph.dst, EdgeValues(len(graph.src), {}))
    [*_, rows] = whole_graph.forward(compile_plan(model), given)
    np.testing.assert_allclose(rows, truth, rtol=0, atol=1e-4)


_data_before = {name: value.clone() for name, value in data.to_dict().items()}


def assert_untouched() -> None:
    assert set(data.keys()) == set(_data_before)
    assert all(torch.equal(value, _data_before[name]) for name, value in data.to_dict().items())
    assert type(data._store).__name__ == "GlobalStorage"


def test_edges_beside_arguments_are_said(tmp_path: Path) -> None:
    said = r"OfEdges.forward reads data.edge_index \(test_held_data.py:\d+\) beside its arguments"
    with pytest.warns(UserWarning, match=said):
        export_model(OfEdges(second_edges), tmp_path)


def setting(s: Any) -> Any:
    data.x = s.lin(data.x)
    return s.second(data.x, data.edge_index)


def overwriting(s: Any) -> Any:
    data.x.mul_(2)
    return s.first(data.x, data.edge_index)


def branching(s: Any) -> Any:
    rows = s.first(data.x, data.edge_index)
    return rows if data.edge_weight is None else 2 * rows


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rows beside rows": (
        lambda: OfEdges(lambda s, x, e: s.first(x, e) + s.lin(data.x)),
        r"reads data.x \(test_held_data.py:\d+\) beside its argument x, and these may be other rows: read x alone",
    ),
    "two graphs": (
        lambda: Net(lambda s: s.first(data.x, validation.edge_index)),
        r"reads data.x \(.*\) and validation.edge_index \(.*\), and a job has one graph",
    ),
    "a mask": (
        lambda: Net(lambda s: s.first(data.x, data.edge_index)[data.train_mask]),
        r"reads data.train_mask \(test_held_data.py:\d+\), and of a Data a job has x, edge_index, edge_weight and",
    ),
    "labels": (lambda: Net(lambda s: s.first(data.x, data.edge_index) * data.y), r"reads data.y \(test_held_data"),
    "a field that is set": (lambda: Net(setting), r"sets data.x \(test_held_data.py:\d+\), which its next call reads"),
    "rows that are overwritten": (lambda: Net(overwriting), r"mul_ \(test_held_data.py:\d+\) writes over"),
    "a branch on a field": (lambda: Net(branching), "differs from the module: .* on the graph of data, which the mod"),
    "no Data": (
        lambda: Net(lambda s: s.first(values.x, values.edge_index)),
        "first .test_held_data.py:.* reads something other",
    ),
    "weights of another name": (OfUnnamedWeights, "hands e to first as weights of edges: call it edge_weight"),
    "a size": (lambda: Net(lambda s: s.first(data.x, data.edge_index) / data.num_nodes), "a size of the graph"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M")
    assert_untouched()


class OfNoData(Net):
    def forward(self) -> Any:
        return self.first(values.x, values.edge_index)


def test_what_is_no_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"values.x \(test_held_data.py:\d+\) is read, and is no field of a Data"):
        export_model(OfNoData(), tmp_path / "M")


def test_a_large_data_is_compared_in_part(tmp_path: Path, monkeypatch: Any) -> None:
    edges = torch.randint(4000, (2, 9000), generator=torch.Generator().manual_seed(2))
    monkeypatch.setitem(globals(), "data", Data(torch.randn(4000, IN), edges, y=torch.zeros(4000)))
    export_model(Net(of_a_global), tmp_path)
    assert data.num_nodes == 4000
