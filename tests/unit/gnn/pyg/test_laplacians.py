"""PyG's get_laplacian in convs of one's own, as BernNet and ChebNetII use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, get_laplacian  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402


class Filter(pyg.MessagePassing):
    """Sums what a function makes of rows, edges and weights, each message times a number."""

    def __init__(self, function: Callable[..., Any], aggr: str = "add") -> None:
        super().__init__(aggr=aggr)
        self.lin, self.function = nn.Linear(WIDTH, 3), function
        self.temp = nn.Parameter(torch.tensor([0.5, -2.0, 0.25]))

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.function(self, self.lin(x), edge_index, edge_weight)

    def total(self, edge_index: Any, x: Any, norm: Any) -> Any:
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


def laplacian(x: Any, edge_index: Any, edge_weight: Any, normalization: Any = "sym") -> Any:
    return get_laplacian(edge_index, edge_weight, normalization, x.dtype, len(x))


def alone(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.total(*laplacian(x, edge_index, edge_weight)[:1], x, laplacian(x, edge_index, edge_weight)[1])


def random_walk(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, edge_weight, "rw")
    return s.total(edges, x, norm * 3)


def plain(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, None, None)
    return s.total(edges, s.total(edges, x, norm), norm)


def of_bernstein(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As BernNet: sums of powers of L and of 2 I - L."""
    edges, norm = laplacian(x, edge_index, edge_weight)
    twice, rest = add_self_loops(edges, -norm, fill_value=2.0, num_nodes=len(x))
    temp = s.temp.relu()
    rows = temp[0] / 4 * s.total(twice, s.total(twice, x, rest), rest)
    return rows + temp[2] * s.total(edges, s.total(twice, x, rest), norm)


def of_chebyshev(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As ChebNetII: L - I, whose self-loops have weight 0."""
    edges, norm = laplacian(x, edge_index, edge_weight)
    scaled, weights = add_self_loops(edges, norm, fill_value=-1.0, num_nodes=len(x))
    one = s.total(scaled, x, weights)
    return s.temp[0] / 2 * x + s.temp[1] * one + 2 * s.total(scaled, one, weights) - x


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("function", [alone, random_walk, plain, of_bernstein, of_chebyshev])
def test_a_stream_with_deletions_gives_what_the_conv_gives(function: Any, weighted: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Filter(function) if weighted else Without(Filter(function))
    module.eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert_streams(module, model, "module(x, edge_index, edge_weight)" if weighted else "module(x, edge_index)")


class Without(nn.Module):
    """Calls a conv without weights."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index)


def changed_before(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, weights = add_remaining_self_loops(edge_index, edge_weight, num_nodes=len(x))
    return s.total(*take(laplacian(x, edges, weights), x))


def remaining(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, edge_weight)
    return s.total(*take(add_remaining_self_loops(edges, norm, 2.0, len(x)), x))


def squared(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, edge_weight)
    return s.total(edges, x, norm * norm)


def shifted(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, edge_weight)
    return s.total(edges, x, norm + 1)


def counted(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index, edge_weight)
    edges, norm = add_self_loops(edges, norm, fill_value=1.0, num_nodes=len(x))
    return s.total(edges, x, degree(edges[1], len(x))[edges[1]])


def of_other_ends(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edges, norm = laplacian(x, edge_index.flip(0), edge_weight)
    return s.total(edges, x, norm)


def without_vertices(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.total(*take(get_laplacian(edge_index, edge_weight, "sym"), x))


def take(made: Any, x: Any) -> Any:
    return made[0], x, made[1]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (changed_before, "is taken in a conv of one's own, of the graph's edges"),
        (remaining, "adds self-loops to edges that have such already"),
        (squared, "are taken where they multiply x_j"),
        (shifted, "are taken where they multiply x_j"),
        (counted, "are taken where they multiply x_j"),
        (of_other_ends, "other edges than those of the graph"),
        (without_vertices, "without num_nodes"),
    ],
)
def test_other_uses_are_refused_with_their_line(function: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=rf"test_laplacians\.py:\d+.*{why}"):
        export_model(Filter(function), tmp_path, features=WIDTH)


def test_another_aggregate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="are taken where they multiply x_j, and these are summed"):
        export_model(Filter(alone, "max"), tmp_path, features=WIDTH)
