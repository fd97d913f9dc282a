"""Self-loops that a conv of one's own adds by torch.cat, as projects of PyG's first years do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402


class Looped(pyg.MessagePassing):
    """A sum of weighted rows, over edges and weights that a function makes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(aggr="add")
        self.lin, self.function = nn.Linear(WIDTH, 3), function

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        edge_index, norm = self.function(edge_index, edge_weight, x.size(0))
        return self.propagate(edge_index, x=self.lin(x), norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


def loops(n: int) -> Any:
    return torch.arange(n).unsqueeze(0).repeat(2, 1)


def weights_by_hand(edges: Any, weight: Any, n: int) -> Any:
    """As the GCNConv of Graph Transformer Networks: divided by the sum of weights of a target."""
    edges, _ = add_self_loops(edges, num_nodes=n)
    weight = torch.cat([weight, torch.full((n,), 2.0)], dim=0)
    inverse = scatter(weight, edges[1], dim_size=n).pow(-1)
    inverse[inverse == float("inf")] = 0
    return edges, inverse[edges[1]] * weight


def both_by_hand(edges: Any, weight: Any, n: int) -> Any:
    return torch.cat([edges, loops(n)], dim=1), torch.cat([weight, weight.new_full((n,), 0.5)])


def instead_of_others(edges: Any, weight: Any, n: int) -> Any:
    edges, weight = remove_self_loops(edges, weight)
    return torch.cat((edges, loops(n)), 1), torch.cat((weight, torch.ones(n)))


@pytest.mark.parametrize("function", [weights_by_hand, both_by_hand, instead_of_others])
def test_a_stream_with_deletions_gives_what_the_conv_gives(function: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Looped(function).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert_streams(module, model, "module(x, edge_index, edge_weight)")


def loops_first(edges: Any, weight: Any, n: int) -> Any:
    return torch.cat([loops(n), edges], dim=1), torch.cat([torch.ones(n), weight])


def order_mixed(edges: Any, weight: Any, n: int) -> Any:
    return torch.cat([edges, loops(n)], dim=1), torch.cat([torch.ones(n), weight])


def to_others(edges: Any, weight: Any, n: int) -> Any:
    ring = torch.stack([torch.arange(n), torch.arange(n).roll(1)])
    return torch.cat([edges, ring], dim=1), torch.cat([weight, torch.ones(n)])


def numbered(edges: Any, weight: Any, n: int) -> Any:
    return torch.cat([edges, loops(n)], dim=1), torch.cat([weight, torch.arange(n) / 10])


def twice(edges: Any, weight: Any, n: int) -> Any:
    edges, weight = both_by_hand(edges, weight, n)
    return both_by_hand(edges, weight, n)


def of_weights_alone(edges: Any, weight: Any, n: int) -> Any:
    return edges, torch.cat([weight, torch.ones(n)])[: edges.size(1)]


@pytest.mark.parametrize("function", [loops_first, order_mixed, to_others, numbered, twice, of_weights_alone])
def test_what_else_is_put_behind_edges_is_refused_with_its_line(function: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"test_loops_by_hand\.py:\d+"):
        export_model(Looped(function), tmp_path, features=WIDTH)
