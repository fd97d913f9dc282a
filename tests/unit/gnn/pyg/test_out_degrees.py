"""Own convs that scale by out-degrees: of both ends, or of sources beside in-degrees of targets, DGL's norm="both"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.utils import (  # noqa: E402
    add_remaining_self_loops,
    add_self_loops,
    degree,
    remove_self_loops,
    scatter,
)

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402


class Scaled(pyg.MessagePassing):
    """Sums what a function makes of rows, edges and weights, each message times a number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(aggr="add")
        self.lin, self.function = nn.Linear(WIDTH, 3), function

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.function(self, self.lin(x), edge_index, edge_weight)

    def total(self, edge_index: Any, x: Any, norm: Any = None) -> Any:
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return x_j if norm is None else norm.view(-1, 1) * x_j


def roots(x: Any, edge_index: Any, least: int = 1) -> Any:
    """Return D_out^-1/2 and D_in^-1/2, each of at least one edge."""
    return [degree(one, x.size(0), dtype=x.dtype).clamp(min=least).pow(-0.5) for one in edge_index]


def around(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As DGL does it: rows are scaled before their sum, and behind it."""
    out, into = roots(x, edge_index)
    return into.view(-1, 1) * s.total(edge_index, x * out.view(-1, 1))


def in_messages(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out, into = roots(x, edge_index)
    return s.total(edge_index, x, out[edge_index[0]] * into[edge_index[1]])


def with_weights(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out, into = roots(x, edge_index)
    return s.total(edge_index, x, out[edge_index[0]] * edge_weight * into[edge_index[1]])


def infinite_is_0(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    ones = torch.ones(edge_index.size(1), dtype=x.dtype)
    out, into = (scatter(ones, one, dim_size=x.size(0)).pow(-0.5) for one in edge_index)
    out, into = (one.masked_fill(one == float("inf"), 0) for one in (out, into))
    return s.total(edge_index, x, out[edge_index[0]] * into[edge_index[1]]) + x


@pytest.mark.parametrize("function", [around, in_messages, with_weights, infinite_is_0])
def test_a_stream_with_deletions_gives_what_the_conv_gives(function: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Scaled(function).eval()
    assert_streams(module, taken(module, tmp_path, "both", "keep"), "module(x, edge_index, edge_weight)")


def taken(module: Any, folder: Path, degrees: str, there: str) -> Any:
    model = export_model(module, folder, features=WIDTH)
    found = [(one.degrees, one.existing_loops) for one in model.layers if one.type == "propagation"]
    assert found == [(degrees, there)]
    return model


def tutorial(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """As PyG's tutorial once had it: degrees of rows, of edges that have self-loops."""
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    row, col = edge_index
    scale = degree(row, x.size(0), dtype=x.dtype).pow(-0.5)
    return s.total(edge_index, x, scale[row] * scale[col])


def remaining(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edge_index, edge_weight = add_remaining_self_loops(edge_index, edge_weight, 2.0, x.size(0))
    scale = degree(edge_index[0], x.size(0), dtype=x.dtype) ** -0.5
    return s.total(edge_index, x, scale[edge_index[0]] * edge_weight * scale[edge_index[1]])


def dropped(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """Without self-loops, and 0 for vertices without out-edges."""
    edge_index, _ = remove_self_loops(edge_index)
    scale = degree(edge_index[0], x.size(0), dtype=x.dtype).pow(-0.5)
    scale[scale == float("inf")] = 0
    return scale.view(-1, 1) * s.total(edge_index, x * scale.view(-1, 1))


def with_loops(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return in_messages(s, x, add_self_loops(edge_index, num_nodes=x.size(0))[0], None)


LOOPS = {
    tutorial: ("out", "beside"),
    remaining: ("out", "keep"),
    dropped: ("out", "drop"),
    with_loops: ("both", "beside"),
}


@pytest.mark.parametrize("function", LOOPS)
def test_degrees_count_the_self_loops_that_edges_have_then(function: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Scaled(function).eval()
    assert_streams(module, taken(module, tmp_path, *LOOPS[function]), "module(x, edge_index, edge_weight)")


def turned(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out, into = roots(x, edge_index)
    return out.view(-1, 1) * s.total(edge_index, x * into.view(-1, 1))


def out_alone(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    return s.total(edge_index, x * roots(x, edge_index)[0].view(-1, 1))


def weighted_out(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out = scatter(edge_weight, edge_index[0], dim_size=x.size(0)).pow(-0.5)
    out = out.masked_fill(out == float("inf"), 0)
    return s.total(edge_index, x, out[edge_index[0]] * roots(x, edge_index)[1][edge_index[1]])


def at_least_2(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out, into = roots(x, edge_index, 2)
    return s.total(edge_index, x, out[edge_index[0]] * into[edge_index[1]])


def of_other_edges(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """Degrees before self-loops are added."""
    out, _ = roots(x, edge_index)
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    return s.total(edge_index, x, out[edge_index[0]] * out[edge_index[1]])


def infinite(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out = degree(edge_index[0], x.size(0), dtype=x.dtype).pow(-0.5)
    return s.total(edge_index, x, out[edge_index[0]] * out[edge_index[1]])


def at_both_ends(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    out, _ = roots(x, edge_index)
    return s.total(edge_index, x, out[edge_index[0]] * out[edge_index[1]])


OTHERS = [turned, out_alone, weighted_out, at_least_2, of_other_edges, infinite, at_both_ends]


@pytest.mark.parametrize("function", OTHERS)
def test_other_uses_of_out_degrees_are_refused(function: Any, tmp_path: Path) -> None:
    refusal = "the number of out-edges by itself|by the sources of edges|has a power, which|no layer of rows"
    with pytest.raises(ExportError, match=refusal):
        export_model(Scaled(function).eval(), tmp_path, features=WIDTH)
