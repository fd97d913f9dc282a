"""Matrices of edges that a forward makes, of torch's sparse tensors and of torch_sparse, and products with rows.

`torch_sparse` is no library of Freshet: a class that stands for its own is called as it is, and so are its functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric import utils  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402
from torch_geometric.utils import degree, to_torch_csr_tensor  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402
from tests.support.graphs.sparse_tensors import SparseTensor, fill_diag, matmul, sum  # noqa: E402


@pytest.fixture(autouse=True)
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_sparse", ModuleType("torch_sparse"))


class Net(nn.Module):
    """Two linear layers around what a function makes of rows, edges and weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(WIDTH, 3), nn.Linear(3, 2), function
        self.conv = Fused()

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.last(self.function(self, self.first(x), edge_index, edge_weight).relu())


class Fused(pyg.MessagePassing):
    """A conv that takes edges, or a matrix in which rows are targets."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(3, 3)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        if isinstance(edge_index, SparseTensor):
            return self.lin(x) + matmul(edge_index, x, reduce="sum") / degree(edge_index.coo()[0], len(x)).clamp(
                1
            ).view(-1, 1)
        return self.lin(x) + self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Any, edge_weight: Any) -> Any:
        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


def twice(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = gcn_norm(edge_index, edge_weight, x.size(0))
    adj = torch.sparse_coo_tensor(edges.flip(0), norm, (x.size(0), x.size(0)))
    return adj @ (adj @ x)


def turned(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = torch.sparse_coo_tensor(edge_index, edge_weight, size=(x.size(0), x.size(0))).coalesce()
    return torch.sparse.mm(adj.t(), x) + torch.matmul(2 * adj.t(), x.relu()) - torch.mm(-adj.t(), x)


def infinite(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As SGFormer, DIFFormer and NodeFormer do it."""
    (row, col), n = edge_index, x.shape[0]
    d = degree(col, n).float()
    value = torch.ones_like(row) * (1.0 / d[col]).sqrt() * (1.0 / d[row]).sqrt()
    value = torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
    return matmul(SparseTensor(row=col, col=row, value=value, sparse_sizes=(n, n)), x)


def by_hand(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As OGB's examples do it."""
    adj = SparseTensor.from_edge_index(edge_index, None, (x.size(0), x.size(0))).t()
    adj = fill_diag(adj, 1.0)
    roots = sum(adj, dim=1).pow(-0.5)
    roots = roots.masked_fill(roots == float("inf"), 0.0)
    return (roots.view(-1, 1) * adj * roots.view(1, -1)) @ x


def averaged(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = SparseTensor(row=edge_index[1], col=edge_index[0], sparse_sizes=(x.size(0), x.size(0)))
    return matmul(adj, x, reduce="mean")


def to_a_conv(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.conv(x, SparseTensor.from_edge_index(edge_index, edge_weight, (x.size(0), x.size(0))).t())


def by_its_type(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As GreatX does it, whose convs take a dense matrix, too."""
    if isinstance(edge_index, torch.Tensor) and edge_index.dtype == torch.long:
        edge_index, norm = gcn_norm(edge_index, edge_weight, x.size(0))
    if edge_index.dtype == torch.float:
        return edge_index @ x
    return x.new_zeros(x.size()).index_add(0, edge_index[1], norm.view(-1, 1) * x[edge_index[0]])


def of_utilities(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = to_torch_csr_tensor(edge_index, edge_weight, size=x.size(0)).t()
    ones = utils.to_torch_coo_tensor(edge_index, torch.ones(edge_index.size(1)), size=(x.size(0), x.size(0)))
    return utils.spmm(adj, adj @ x) + ones.t() @ x


TAKEN = [by_its_type, twice, turned, infinite, by_hand, averaged, to_a_conv, of_utilities]


@pytest.mark.parametrize("function", TAKEN)
def test_a_stream_with_deletions_gives_what_the_matrix_gives(function: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Net(function).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert_streams(module, model, "module(x, edge_index, edge_weight)")


def test_rows_that_are_sources_are_a_relation_and_its_mirror(tmp_path: Path) -> None:
    def at_sources(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0))) @ x

    assert isinstance(export_model(Net(at_sources), tmp_path, features=WIDTH), KindsModel)


def without_sizes(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return torch.sparse_coo_tensor(edge_index, edge_weight) @ x


def joined_to_ones(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return to_torch_csr_tensor(edge_index, size=x.size(0)).t() @ x


def squared(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = SparseTensor.from_edge_index(edge_index, edge_weight, (x.size(0), x.size(0))).t()
    return (adj @ adj) @ x


def dense(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0))).to_dense().mm(x)


def joined_values(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0))).coalesce()
    return x * adj.values().exp().sum()


def joined_to_a_conv(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.conv(x, torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, (x.size(0), x.size(0))))


def added(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0)))
    return torch.add(adj, adj) @ x


def times_rows(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    adj = torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, (x.size(0), x.size(0)))
    return (x.sum(1) * adj) @ x


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (without_sizes, "without sizes has no row for a vertex behind the last one"),
        (joined_to_ones, "without edge_attr makes one entry of 1 of several edges"),
        (squared, "a product of two matrices"),
        (dense, r"\.to_dense of a matrix of edges is not read"),
        (joined_values, r"\.values of a matrix of edges is not read"),
        (joined_to_a_conv, "entries of a matrix, in which several edges may be one"),
        (added, "add of a matrix of edges is not read"),
        (times_rows, r"is read by .view\(-1, 1\)"),
    ],
)
def test_what_else_is_done_with_a_matrix_is_refused_with_its_line(function: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=rf"test_matrices\.py:\d+.*{why}"):
        export_model(Net(function), tmp_path, features=WIDTH)


def test_numbers_of_infinite_weights_are_refused(tmp_path: Path) -> None:
    """Weights may be below 0, where the root of their sum is no number, and PyG's is 0 instead."""

    def of_weights(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        root = torch.nan_to_num(matmul_of(x, edge_index, edge_weight).pow(-0.5), nan=0.0, posinf=0.0, neginf=0.0)
        return torch.sparse_coo_tensor(edge_index.flip(0), root[edge_index[1]], (x.size(0), x.size(0))) @ x

    def matmul_of(x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return torch.zeros(x.size(0)).index_add(0, edge_index[1], edge_weight)

    with pytest.raises(ExportError, match=r"test_matrices\.py:\d+"):
        export_model(Net(of_weights), tmp_path, features=WIDTH)
