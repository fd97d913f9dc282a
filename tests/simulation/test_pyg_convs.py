"""PyG's convs with options that are read as they run: in 1 to 4 parts, PyG's rows in float64 after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.utils import add_self_loops, degree  # noqa: E402

from freshet.gnn.pyg import read_convs  # noqa: E402
from freshet.gnn.pyg.aggregations import with_quantiles  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from tests.support.graphs.attributed import EDGE_WIDTH  # noqa: E402
from tests.support.graphs.models import IN_WIDTH as IN  # noqa: E402
from tests.support.simulation.changing_edges import crashes_of, pyg_pass  # noqa: E402

KEPT = {"mode": "cat", "aggrs_kwargs": [{}, {"learn": True, "t": 1.5}]}
MIXED = {"mode": "proj", "mode_kwargs": {"in_channels": IN, "out_channels": 7}}
ATTENDED = {"mode": "attn", "mode_kwargs": {"in_channels": IN, "out_channels": 4, "num_heads": 2}}
CONVS: dict[str, tuple[Callable[[], Any], str]] = {
    "powers": (lambda: pyg.GENConv(IN, 4, "powermean", p=2.5, learn_p=True, norm="layer"), ""),
    "powers and norms": (
        lambda: pyg.GENConv(IN, 4, "powermean", num_layers=1, edge_dim=EDGE_WIDTH, msg_norm=True),
        "attr"),
    "powers by channel": (lambda: pyg.GINConv(torch.nn.Linear(IN, 3), aggr=powers()), ""),
    "weighted powers": (lambda: pyg.GraphConv(IN, 3, aggr="powermean", aggr_kwargs={"p": -1.5}), "weight"),
    "softmax": (lambda: pyg.GraphConv(IN, 3, aggr="softmax"), "weight"),
    "softmax by channel": (
        lambda: pyg.GENConv(IN, 4, aggr=pyg.aggr.SoftmaxAggregation(learn=True, channels=4)), ""),
    "softmax beside others": (lambda: pyg.SAGEConv(IN, 3, aggr=["std", "softmax"], aggr_kwargs=KEPT), ""),
    "mixed": (lambda: pyg.SAGEConv(IN, 3, aggr=["max", "var"], aggr_kwargs=MIXED), ""),
    "attention between aggregates": (lambda: pyg.SAGEConv(IN, 3, aggr=["std", "max"], aggr_kwargs=ATTENDED), ""),
    "added": (lambda: pyg.SAGEConv(IN, 3, aggr=["min", "mean"], aggr_kwargs={"mode": "sum"}), ""),
    "gates by tanh": (lambda: pyg.ResGatedGraphConv(IN, 3, edge_dim=EDGE_WIDTH, act=torch.nn.Tanh()), "attr"),
    "gaussians": (lambda: pyg.GMMConv(IN, 3, EDGE_WIDTH, 2, separate_gaussians=True), "attr"),
    "learned weights by degrees": (lambda: pyg.PDNConv(IN, 3, EDGE_WIDTH, 4), "attr"),
    "the same without loops": (lambda: pyg.PDNConv(IN, 3, EDGE_WIDTH, 4, add_self_loops=False), "attr"),
    "weights by degrees": (lambda: Scored(pyg.GCNConv(IN, 3)), "attr"),
    "softmax by degrees": (lambda: pyg.GCNConv(IN, 3, aggr="softmax"), "weight"),
    "shares of neighbours": (lambda: SharesConv(IN, 3), ""),
    "first rows": (lambda: First(IN, pyg.FAConv(4, 0.2), pyg.FAConv(4)), ""),
    "medians of first rows": (lambda: First(IN, pyg.GCN2Conv(4, 0.1, aggr="median", add_self_loops=False)), ""),
    "positions": (lambda: Positions(pyg.PointNetConv(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)), 4), ""),
    "attention of positions": (
        lambda: Positions(pyg.PointTransformerConv(4, 3, pos_nn=torch.nn.Linear(2, 3)), 4), ""),
    "offsets of positions": (
        lambda: Positions(pyg.PointGNNConv(*(torch.nn.Linear(*of) for of in ((4, 2), (6, 5), (5, 4)))), 4), ""),
    "times": (lambda: Times(pyg.TransformerConv(IN, 3, edge_dim=EDGE_WIDTH + 3), EDGE_WIDTH), "attr"),
    "earlier layers": (lambda: Earlier(IN), ""),
    "weights of degrees": (lambda: pyg.MFConv(IN, 3, max_degree=3), ""),
    "labels": (lambda: pyg.LabelPropagation(2, 0.8), ""),
    "self-loops of the largest attributes": (
        lambda: pyg.GATConv(IN, 3, heads=2, edge_dim=EDGE_WIDTH, fill_value="max"), "attr"),
    "self-loops of sums of attributes": (
        lambda: pyg.GATv2Conv(IN, 3, edge_dim=EDGE_WIDTH, fill_value="add", residual=True), "attr"),
    "self-loops of mean attributes beside others": (lambda: LoopsConv(IN, 3, ["max", "std"]), "attr"),
    "masks of attributes": (lambda: MasksConv(IN, 3), "attr"),
    "medians": (lambda: pyg.GraphConv(IN, 3, aggr="median"), "weight"),
    "products": (lambda: pyg.SAGEConv(IN, 3, aggr="mul"), ""),
    "products of attributes": (lambda: pyg.GINEConv(torch.nn.Linear(IN, 3), edge_dim=EDGE_WIDTH, aggr="mul"), "attr"),
    "quantiles": (
        lambda: pyg.EdgeConv(torch.nn.Linear(2 * IN, 4), aggr=pyg.aggr.QuantileAggregation([0.1, 0.75])), ""),
    "quantiles beside others": (
        lambda: pyg.GENConv(IN, 4, edge_dim=EDGE_WIDTH, aggr=["mul", "median", "std", "softmax"]), "attr"),
    "medians and products mixed": (lambda: pyg.SAGEConv(IN, 3, aggr=["median", "mul"], aggr_kwargs=MIXED), ""),
    "scaled medians": (
        lambda: pyg.PNAConv(IN, 6, ["median", "mean"], ["identity", "attenuation"], torch.tensor([0, 3, 4, 2])), ""),
    "medians with self-loops": (lambda: pyg.GCNConv(IN, 3, aggr="median"), "weight"),
    "products with self-loops": (lambda: pyg.SimpleConv("mul", combine_root="self_loop"), ""),
    "quantiles with self-loops": (
        lambda: pyg.GCNConv(IN, 3, aggr=pyg.aggr.QuantileAggregation(0.3, fill_value=2.0)), "weight"),
    "angles of positions": (
        lambda: Normals(pyg.PPFConv(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))), ""),
    "angles without self-loops": (lambda: Normals(pyg.PPFConv(add_self_loops=False, aggr="mean")), ""),
    "angles of attributes": (lambda: BearingsConv(IN, 3), "attr"),
    "deviations": (lambda: pyg.EGConv(IN, 6, ["std", "symnorm"], num_heads=2), ""),
}  # fmt: skip


class Scored(torch.nn.Module):
    """A conv that is handed weights made of attributes."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv, self.score = conv, torch.nn.Linear(EDGE_WIDTH, 1)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, self.score(edge_attr).sigmoid().view(-1))


class First(torch.nn.Module):
    """Convs that read the rows of the first layer, too."""

    def __init__(self, width: int, *convs: Any) -> None:
        super().__init__()
        self.lin, self.convs = torch.nn.Linear(width, 4), torch.nn.ModuleList(convs)

    def forward(self, x: Any, edge_index: Any) -> Any:
        first = x = self.lin(x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index)
        return x


class Positions(torch.nn.Module):
    """A conv that reads positions, the first columns of the features."""

    def __init__(self, conv: Any, width: int) -> None:
        super().__init__()
        self.conv, self.lin = conv, torch.nn.Linear(IN - 2, width)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(self.lin(x[:, 2:]), x[:, :2], edge_index)


class Normals(torch.nn.Module):
    """A conv that reads positions and normals, the columns of the features."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv, self.lin = conv, torch.nn.Linear(IN, 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(self.lin(x), x[:, :3], x[:, 3:], edge_index)


class Times(torch.nn.Module):
    """A conv that reads the time of an edge, the first of its attributes, as waves beside the others."""

    def __init__(self, conv: Any, width: int) -> None:
        super().__init__()
        self.conv, self.lin, self.width = conv, torch.nn.Linear(1, 4), width

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        times, others = edge_attr.split([1, self.width - 1], dim=1)
        return self.conv(x.sin(), edge_index, torch.cat([self.lin(times).cos(), others], -1))


class Earlier(torch.nn.Module):
    """A conv that attends to the rows of two layers before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin, self.conv = torch.nn.Linear(width, 4), pyg.DNAConv(4, 2, 2)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.lin(x)
        return self.conv(torch.stack([x.relu(), x], dim=1), edge_index)


class SharesConv(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Messages divided by the numbers of edges of both ends, 0 where there are none."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="max")
        self.lin = torch.nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        share = 1 / degree(edge_index[1], x.size(0), dtype=x.dtype).view(-1, 1)
        return self.propagate(edge_index, x=self.lin(x), share=share.masked_fill(share == float("inf"), 0))

    def message(self, x_j: Any, x_i: Any, share_j: Any, share_i: Any) -> Any:
        return (x_j - x_i).tanh() * share_j + share_i * x_j


class LoopsConv(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Messages of self-loops that have the mean of the attributes of all in-edges, other self-loops included."""

    def __init__(self, into: int, out: int, aggr: Any) -> None:
        super().__init__(aggr=aggr)
        self.one, self.of_edges = torch.nn.Linear(into, out), torch.nn.Linear(EDGE_WIDTH, out)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        edge_index, edge_attr = add_self_loops(edge_index, edge_attr, "mean", x.size(0))
        return self.propagate(edge_index, x=self.one(x), edge_attr=edge_attr)

    def message(self, x_j: Any, x_i: Any, edge_attr: Any) -> Any:
        return (x_j + self.of_edges(edge_attr)).tanh() - x_i


class BearingsConv(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Messages weighed by the direction in which an edge leads."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="sum")
        self.lin = torch.nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), edge_attr=edge_attr)

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        return x_j * torch.atan2(edge_attr[:, :1], edge_attr[:, 1:2])


class MasksConv(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Messages that differ with what attributes are, of which one is not defined everywhere."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="max")
        self.one, self.other = torch.nn.Linear(into, out), torch.nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, one=self.one(x), other=self.other(x), edge_attr=edge_attr)

    def message(self, one_j: Any, other_i: Any, edge_attr: Any) -> Any:
        first, second = edge_attr[:, :1], edge_attr[:, 1:2]
        scale = torch.where((first > 0) & ~(first == second), first.log(), 0.25 * second.sign())
        message = torch.where(second <= 0.5, one_j * scale, other_i)
        message[first[:, 0] < -1] = 0.125
        return message * (edge_attr >= 0).long().sum(-1, keepdim=True)


def powers() -> Any:
    aggregation = pyg.aggr.PowerMeanAggregation(learn=True, channels=IN)
    with torch.no_grad():
        aggregation.p.copy_(torch.linspace(0.5, 3.0, IN))
    return aggregation


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CONVS)
def test_a_conv_with_other_options_is_what_pyg_computes_in_float64(name: str, tmp_path: Path) -> None:
    """After every epoch, of a stream with deletions."""
    torch.manual_seed(5)
    make, reads = CONVS[name]
    module = make().eval()
    called = Attributed(module) if reads == "attr" else Weighted(module) if reads else Plain(module)
    called = module if isinstance(module, Scored | First | Positions | Normals | Times | Earlier) else called
    model = export_model(called, tmp_path, features=IN, edge_features=EDGE_WIDTH if reads == "attr" else None)
    assert crashes_of(model, list(CONVS).index(name) % 4, pyg_pass(with_quantiles(called.double()), reads))


def test_gaussians_whose_coordinates_are_added_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are not added by one matrix."""
    monkeypatch.setattr(read_convs, "LARGEST", 3 * (IN * 3 * 2) ** 2 - 1)
    module = Attributed(pyg.GMMConv(IN, 3, EDGE_WIDTH, 2, separate_gaussians=True)).eval()
    model: Any = export_model(module, tmp_path, features=IN)
    sums = [step for layer in model.layers for step in getattr(layer, "program", []) if step.op == "sum_columns"]
    assert [one.heads for one in sums] == [IN * 3]
    assert crashes_of(model, 1, pyg_pass(module.double(), "attr"))


class Plain(torch.nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index)


class Weighted(Plain):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:  # type: ignore[override]
        return self.conv(x, edge_index, edge_weight)


class Attributed(Plain):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        return self.conv(x, edge_index, edge_attr)
