"""Convs of one's own that are looked into: calls of propagate along edges and against them, and with a matrix."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402
from torch_geometric.utils import add_self_loops, degree, get_laplacian, scatter  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402
from tests.support.graphs.sparse_tensors import SparseTensor, matmul, mul, sum  # noqa: E402

Function = Callable[..., Any]
CALL = "module(x, edge_index, edge_weight)"


@pytest.fixture(autouse=True)
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_sparse", ModuleType("torch_sparse"))


class Own(pyg.MessagePassing):
    """Sums what a function makes of rows, edges and weights."""

    def __init__(self, function: Function, flow: str = "source_to_target", aggr: str = "add") -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.lin, self.back, self.function = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3), function
        self.cached_result, self.cached, self.mine = None, False, None

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.function(self, x, edge_index, edge_weight)

    def total(self, edge_index: Any, x: Any, norm: Any = None) -> Any:
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return x_j if norm is None else norm.view(-1, 1) * x_j


class OfMatrix(Own):
    """Has a way of its own for a matrix of edges."""

    def message_and_aggregate(self, adj_t: Any, x: Any) -> Any:
        return matmul(adj_t, x, reduce=self.aggr)


class Weighted(OfMatrix):
    """Does with a matrix of edges what it does not with edges, as NGCF's layers do."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self.gain = nn.Parameter(torch.randn(3))

    def message_and_aggregate(self, adj_t: Any, x: Any) -> Any:
        return super().message_and_aggregate(adj_t, x) * self.gain


class Net(nn.Module):
    """A layer in front of a conv that gets the edges, or what a function makes of them, and one behind it."""

    def __init__(self, conv: Any, made: Function | None = None) -> None:
        super().__init__()
        self.first, self.conv, self.last, self.made = nn.Linear(WIDTH, WIDTH), conv, nn.Linear(3, 2), made

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        x = self.first(x)
        if self.made is None:
            return self.last(self.conv(x, edge_index, edge_weight).relu())
        return self.last(self.conv(x, self.made(x, edge_index, edge_weight)).relu())


def both_flows(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As RelConv of entity alignment does it."""
    s.flow = "source_to_target"
    out = s.total(edge_index, s.lin(x))
    s.flow = "target_to_source"
    return out + s.total(edge_index, s.back(x)) + s.lin(x)


def by_rows(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As Graph Transformer Networks do it: scaled by degrees of the rows at which messages come together."""
    if not s.cached or s.cached_result is None:
        assert edge_weight.view(-1).size(0) == edge_index.size(1)
        edges, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        weights = torch.cat([edge_weight, torch.full((x.size(0),), 1, dtype=x.dtype)])
        degrees = scatter(weights, edges[0], dim=0, dim_size=x.size(0)).pow(-1)
        degrees[degrees == float("inf")] = 0
        s.cached_result = edges, degrees[edges[0]] * weights
    return s.total(s.cached_result[0], s.lin(x), s.cached_result[1])


def by_columns(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """Scaled by degrees of the other side than that at which messages come together."""
    into = degree(edge_index[1], x.size(0), dtype=x.dtype).clamp(min=1).pow(-0.5)
    return s.total(edge_index, s.lin(x), into[edge_index[0]] * into[edge_index[1]])


def by_weights_of_columns(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    into = scatter(edge_weight, edge_index[1], dim=0, dim_size=x.size(0)) + 1
    return s.total(edge_index, s.lin(x), edge_weight / into[edge_index[0]])


@pytest.mark.parametrize("function", [both_flows, by_rows, by_columns, by_weights_of_columns])
def test_against_the_edges(function: Function, tmp_path: Path) -> None:
    torch.manual_seed(3)
    flow = "source_to_target" if function is both_flows else "target_to_source"
    module = Net(Own(function, flow)).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert isinstance(model, KindsModel)
    assert_streams(module, model, CALL)


def test_a_conv_by_itself(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Own(by_rows, "target_to_source").eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert_streams(module, model, CALL)


def normalised(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As GPRGNN of DeepRobust does it."""
    if isinstance(edge_index, torch.Tensor):
        edge_index, norm = gcn_norm(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return s.total(edge_index, s.lin(x), norm)
    assert isinstance(edge_index, SparseTensor)
    edge_index = gcn_norm(edge_index, None, num_nodes=x.size(0), dtype=x.dtype)
    return s.total(edge_index, s.total(edge_index, s.lin(x)))


def plain(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.total(edge_index, s.lin(x))


def along(x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return SparseTensor.from_edge_index(edge_index, edge_weight, sparse_sizes=2 * x.shape[:1]).t()


def against(x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return SparseTensor.from_edge_index(edge_index, edge_weight, sparse_sizes=2 * x.shape[:1])


def directed(x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As Dir-GNN does it: by the degrees of both sides."""
    adj = SparseTensor(row=edge_index[0], col=edge_index[1], sparse_sizes=(x.shape[0], x.shape[0]))
    roots = [sum(adj, dim=dim).pow(-0.5) for dim in (0, 1)]
    into, out = (one.masked_fill(one == float("inf"), 0.0) for one in roots)
    adj = mul(mul(adj, out.view(-1, 1)), into.view(1, -1))
    return adj


@pytest.fixture
def _matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG as it is where torch_sparse is installed."""
    names = {"torch_geometric.nn.conv.message_passing", "torch_geometric.nn.conv.gcn_conv"}
    names |= {"torch_geometric.utils._spmm", "torch_geometric.utils.sparse", "torch_geometric.typing"}
    for name in names:
        if hasattr(sys.modules[name], "SparseTensor"):
            monkeypatch.setattr(sys.modules[name], "SparseTensor", SparseTensor)
    made = ModuleType("torch_sparse")
    from tests.support.graphs import sparse_tensors

    vars(made).update({one.__name__: one for one in sparse_tensors.PARTS})
    monkeypatch.setattr(sys.modules["torch_geometric.nn.conv.gcn_conv"], "torch_sparse", made)


@pytest.mark.usefixtures("_matrices")
@pytest.mark.parametrize(
    ("function", "made", "aggr"),
    [
        (normalised, along, "add"),
        (normalised, against, "add"),
        (plain, along, "mean"),
        (plain, directed, "add"),
    ],
)
def test_a_matrix_that_a_conv_takes_by_its_own_code(
    function: Function, made: Function, aggr: str, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    module = Net(OfMatrix(function, aggr=aggr), made).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert isinstance(model, KindsModel) == (made is not along)
    assert_streams(module, model, CALL)


def kept(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """A module that keeps the weights of the first graph that it gets."""
    s.mine = edge_weight / 2 if s.mine is None else s.mine
    return s.total(edge_index, s.lin(x), s.mine)


def looked_up(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    with suppress(Exception):
        x = x * {12345: 2}.get(x.size(0), 1)
    return s.total(edge_index, s.lin(x))


def of_many(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    with suppress(Exception):
        x = x * 2 if x.size(0) > 12345 else x
    return s.total(edge_index, s.lin(x))


def of_edges(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    if edge_weight.size(0) == x.size(0):
        x = x * 2
    return s.total(edge_index, s.lin(x))


def of_laplacian(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = get_laplacian(edge_index, edge_weight, "rw", num_nodes=x.size(0))
    return s.total(edges, s.lin(x), norm)


LOOKED_INTO = r"Looked into: test_propagated\.py:\d+"
REFUSED: dict[str, tuple[Function, str]] = {
    "a cache of another graph": (kept, "differs from the module"),
    "a number that is looked up": (
        looked_up,
        rf"{LOOKED_INTO} looks something up by numbers of the graph",
    ),
    "a branch that is caught": (of_many, rf"{LOOKED_INTO} branches on numbers of the graph"),
    "a branch on edges and vertices": (
        of_edges,
        rf"{LOOKED_INTO} branches on numbers of the graph",
    ),
    "a Laplacian": (of_laplacian, r"^conv: .*flow='target_to_source' is not supported.*Looked into: "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    function, why = REFUSED[what]
    with pytest.raises(ExportError, match=why):
        export_model(Net(Own(function, "target_to_source")), tmp_path, features=WIDTH)


def test_an_aggregate_that_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="aggr='median' is not read where its forward is looked into"):
        export_model(Net(Own(plain, "target_to_source", "median")), tmp_path, features=WIDTH)


@pytest.mark.usefixtures("_matrices")
@pytest.mark.parametrize("made", [along, against])
def test_gcn_norm_puts_self_loops_in_the_place_of_a_diagonal(made: Function, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Net(pyg.GCNConv(WIDTH, 3), made).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert_streams(module, model, CALL)


@pytest.mark.usefixtures("_matrices")
def test_another_layer_in_the_place_of_messages_is_taken_of_a_matrix_alone(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"conv: Weighted.message_and_aggregate reads gain, and its message does not"):
        export_model(Net(Weighted(plain)), tmp_path, features=WIDTH)
    module = Net(Weighted(plain), along).eval()
    assert_streams(module, export_model(module, tmp_path, features=WIDTH), CALL)
