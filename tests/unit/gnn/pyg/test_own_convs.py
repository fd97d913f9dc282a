"""Convs of the user's own are read as they run, and give what the module gives: export_model itself compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GatedGraphConv, MessagePassing, ResGatedGraphConv, Sequential, aggr
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, remove_self_loops, scatter

from freshet.gnn.declarations import MessageConv
from freshet.gnn.pyg.export import ExportError, export_model
from tests.support.graphs.read_convs import (
    AttentionConv,
    AttributedLoopsConv,
    DegreeConv,
    DifferenceConv,
    EdgeMeanConv,
    FiveConvs,
    GatedConv,
    GatedUpdateConv,
    LoopsConv,
    MeanByHandConv,
    PageRankConv,
    PlainConv,
    ScatterConv,
    WeighedAttributesConv,
)


class CalledWithBoth(torch.nn.Module):
    """One that is handed both by name."""

    def __init__(self, into: int, out: int, edge_dim: int) -> None:
        super().__init__()
        self.conv = WeighedAttributesConv(into, out, edge_dim, "max")

    def forward(self, x: Any, edge_index: Any, w: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, edge_weight=w, edge_attr=edge_attr)


class DividedGatesConv(MessagePassing):
    """A gated sum divided by its gates, as GatedGCN has it, and by the number of its messages."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="add")
        self.gate, self.value = nn.Linear(2 * into, out), nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        gates, values = self.propagate(edge_index, x=x).chunk(2, dim=-1)
        count = degree(edge_index[1], x.size(0), dtype=x.dtype).clamp(min=1)
        return values / (gates + 1e-6) * (1.0 / count).view(-1, 1)

    def message(self, x_i: Any, x_j: Any) -> Any:
        gate = torch.sigmoid(self.gate(torch.cat([x_i, x_j], dim=-1)))
        return torch.cat([gate, gate * self.value(x_j)], dim=-1)


class SimplerConv(MessagePassing):
    """Functions that are read as the simpler ones that they are made of."""

    def __init__(self, into: int) -> None:
        super().__init__(aggr="add")
        self.one, self.other = nn.Linear(into, 4), nn.Linear(into, 4)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.propagate(edge_index, a=self.one(x), b=self.other(x))

    def message(self, a_j: Any, b_i: Any) -> Any:
        both, size = a_j + b_i, (a_j * a_j).sum(dim=-1, keepdim=True)
        heads = both.view(-1, 2, 2)
        by_head = [F.softmax(heads, dim=-1), F.log_softmax(heads, dim=1), F.layer_norm(heads, (2,))]
        pairs = [torch.lerp(a_j, b_i, torch.sigmoid(b_i)), torch.logaddexp(a_j, b_i), torch.clamp(a_j, max=b_i)]
        of_rows = [F.cosine_similarity(1 + a_j, b_i).unsqueeze(1), F.pairwise_distance(a_j, b_i).unsqueeze(1)]
        of_rows += [both.var(dim=-1, keepdim=True), both.prod(dim=-1, keepdim=True), both.logsumexp(1, keepdim=True)]
        of_rows += [torch.log1p(size), torch.log2(1 + size), torch.log10(2 + size)]
        of_each = [F.hardswish(both), F.hardsigmoid(both), F.glu(both), torch.addcmul(a_j, a_j, b_i, value=0.5)]
        of_each += [torch.expm1(-both.abs()), torch.exp2(-both.abs()), torch.hypot(1 + a_j, b_i), F.group_norm(both, 2)]
        of_each += [torch.logit(torch.sigmoid(both), 0.01), both.clone().clamp_min_(b_i)]
        return torch.cat([*(one.flatten(1) for one in by_head), *pairs, *of_rows, *of_each], dim=-1)


class OwnNormConv(PlainConv):
    """A conv whose file has a gcn_norm of its own, with ones for weights."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        ones = torch.ones(edge_index.size(1), dtype=x.dtype)
        edge_index, weight = add_remaining_self_loops(edge_index, ones, 1.0, x.size(0))
        root = scatter(weight, edge_index[1], dim_size=x.size(0)).pow_(-0.5)
        root.masked_fill_(root == float("inf"), 0)
        return super().forward(x, edge_index, root[edge_index[0]] * weight * root[edge_index[1]])


class PooledConv(MessagePassing):
    """Aggregators that a conv calls by itself, and a product by hand."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.pools = nn.ModuleList([aggr.MultiAggregation(["max", "mul"]), aggr.MedianAggregation()])

    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = x[edge_index[0]]
        product = torch.ones_like(x).scatter_reduce(0, edge_index[1].view(-1, 1).expand_as(rows), rows, "prod")
        return torch.cat([self.propagate(edge_index, x=x), product], dim=-1)

    def aggregate(self, inputs: Any, index: Any, ptr: Any = None, dim_size: Any = None) -> Any:
        return torch.cat([pool(inputs, index, dim_size=dim_size) for pool in self.pools], dim=-1)


class MaskedConv(MessagePassing):
    """Messages behind a mask of attributes, or of what a function makes of these or of rows."""

    def __init__(self, mask: Any, *loops: str) -> None:
        super().__init__(aggr="add")
        self.mask, self.loops, self.edge_dim, self.lin = mask, loops, 2, nn.Linear(2, 4)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        for _ in self.loops:
            edge_index, edge_attr = add_self_loops(edge_index, edge_attr, 0.5, x.size(0))
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i: Any, x_j: Any, edge_attr: Any) -> Any:
        return torch.where(self.mask(self, x_j, edge_attr), x_j, x_i.masked_fill(edge_attr[:, :1] < 0.5, -1.0))


REMOVED, ADDED, REMAINING = "remove_self_loops", "add_self_loops", "add_remaining_self_loops"


class ProductsConv(MessagePassing):
    """Scores of heads by einsum of the rows at both ends, and messages weighed by them."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.score = torch.nn.Parameter(torch.rand(1, 2, 4))

    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = x.view(-1, 2, 2)
        return self.propagate(edge_index, x=rows).flatten(1)

    def message(self, x_i: Any, x_j: Any) -> Any:
        scores = torch.einsum("ehf,xhf->eh", torch.cat([x_i, x_j], -1), self.score)
        return torch.einsum("eh,ehf->ehf", scores * torch.einsum("ehf,ehf->eh", [x_i, x_j]), x_j)


READ: dict[str, tuple[Any, str]] = {
    "gate": (lambda: GatedConv(4, 5), "message_conv sum"),
    "difference": (lambda: DifferenceConv(4, 3), "message_conv max"),
    "attention": (lambda: AttentionConv(4, 3), "message_conv softmax"),
    "attributes": (lambda: EdgeMeanConv(4, 3, 2), "message_conv mean"),
    "weights and attributes": (lambda: WeighedAttributesConv(4, 3, 2), "message_conv mean"),
    "called with both": (lambda: CalledWithBoth(4, 3, 2), "message_conv max"),
    "in a Sequential": (
        lambda: Sequential(
            "x, edge_index, edge_weight, edge_attr",
            [
                (PlainConv(4, 5), "x, edge_index, edge_weight -> x"),
                (WeighedAttributesConv(5, 3, 2), "x, edge_index, edge_weight, edge_attr -> x"),
            ],
        ),
        "propagation sum, message_conv mean",
    ),
    "linear": (lambda: PlainConv(4, 3), "propagation sum"),
    "linear mean": (lambda: PlainConv(4, 3, "mean"), "propagation mean"),
    "linear several": (lambda: PlainConv(4, 3, ["max", "std"]), "propagation max, propagation std"),
    "quotients": (lambda: DividedGatesConv(4, 3), "message_conv sum, message_conv sum"),
    "softmax of values": (lambda: PlainConv(4, 3, "softmax"), "message_conv softmax"),
    "softmax of values, learned": (
        lambda: PlainConv(4, 3, aggr.SoftmaxAggregation(learn=True, channels=3)),
        "message_conv softmax",
    ),
    "degrees": (lambda: DegreeConv(4, 3), "propagation sum"),
    "degrees and loops": (lambda: DegreeConv(4, 3, REMAINING), "propagation sum"),
    "degrees and loops beside others": (lambda: DegreeConv(4, 3, ADDED), "propagation sum beside"),
    "degrees and other loops": (lambda: DegreeConv(4, 3, REMOVED, ADDED), "propagation sum drop"),
    "degrees without loops": (lambda: DegreeConv(4, 3, REMOVED), "propagation sum drop"),
    "sum with loops": (lambda: LoopsConv(4, 3, ADDED), "message_conv sum beside"),
    "mean with loops that are there": (lambda: LoopsConv(4, 3, REMAINING, aggr="mean"), "message_conv mean"),
    "several with other loops": (
        *(lambda: AttributedLoopsConv(4, 3, REMOVED, ADDED, aggr=["max", "std"], edge_dim=2),),
        "message_conv ('max', 'std') drop",
    ),
    "attention with loops": (
        lambda: AttributedLoopsConv(4, 3, ADDED, edge_dim=2, heads=1),
        "message_conv softmax beside",
    ),
    "mean without loops": (lambda: LoopsConv(4, 3, REMOVED, aggr="mean"), "message_conv mean drop"),
    "hops": (lambda: PageRankConv(4, 3), "propagation sum, propagation sum"),
    "rows widened by zeros": (lambda: GatedGraphConv(6, 2), "propagation sum, propagation sum"),
    "gated update": (lambda: GatedUpdateConv(4, 3), "message_conv mean"),
    "mean by hand": (lambda: MeanByHandConv(4, 3), "message_conv sum, message_conv sum"),
    "simpler": (lambda: SimplerConv(4), "message_conv sum"),
    "by hand": (lambda: ScatterConv(4, 3, 2), "message_conv mean"),
    "aggregators of its own": (
        PooledConv,
        "propagation max, "
        "message_conv ('mul', Quantile(q=0.5, interpolation='lower', fill_value=0.0)), message_conv mul",
    ),
    "masks": (lambda: MaskedConv(lambda s, x, a: a[:, 0:1] > a[:, 1:]), "message_conv sum"),
    "masks of numbers": (
        *(lambda: MaskedConv(lambda s, x, a: (a[:, :1] >= 0.25) | torch.logical_not(a[:, 1:] != 0), ADDED),),
        "message_conv sum beside",
    ),
    "products of heads": (ProductsConv, "message_conv sum"),
    "norm of one's own": (lambda: OwnNormConv(4, 3), "propagation sum"),
}


@pytest.mark.parametrize("name", READ)
def test_a_conv_of_ones_own_is_read(name: str, tmp_path: Path) -> None:
    make, expected = READ[name]
    torch.manual_seed(3)
    module = make()
    reads = any(hasattr(one, "edge_dim") or getattr(one, "of_edges", None) for one in module.modules())
    reads = reads or name in ("attributes", "by hand")
    model = export_model(module, tmp_path, features=4, edge_features=2 if reads else None)
    convs = [one for one in model.layers if hasattr(one, "aggr")]
    loops = [getattr(one, "existing_loops", "keep").replace("keep", "") for one in convs]
    assert ", ".join(f"{c.type} {c.aggr} {of}".rstrip() for c, of in zip(convs, loops, strict=True)) == expected


class Changed(MessagePassing):
    """A sum of weighted rows, over edges that a function changes."""

    def __init__(self, change: Any) -> None:
        super().__init__(aggr="add")
        self.change = change

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        edge_index, edge_weight = self.change(edge_index, edge_weight, x.size(0))
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Any, edge_weight: Any) -> Any:
        return edge_weight.view(-1, 1) * x_j


REFUSED: dict[str, tuple[Any, str]] = {
    "without a number": (lambda e, w, n: add_self_loops(e, w), "add_self_loops without num_nodes adds none to"),
    "a mean": (
        lambda e, w, n: add_remaining_self_loops(e, w, "mean", n),
        "keeps what is made of attributes of self-loops that are there",
    ),
    "of ones and twos": (
        *(lambda e, w, n: add_self_loops(e, torch.ones(e.size(1)), 2.0, n),),
        r"gives self-loops another number \(2.0\) than its edges have",
    ),
    "of other constants": (
        *(lambda e, w, n: add_self_loops(e, torch.full((e.size(1),), 2.0), 2.0, n),),
        "called with something other than the weights or attributes",
    ),
    "twice": (
        *(lambda e, w, n: add_self_loops(*add_self_loops(e, w, num_nodes=n), num_nodes=n),),
        "adds self-loops to edges that have such already",
    ),
    "taken out again": (
        *(lambda e, w, n: remove_self_loops(*add_self_loops(e, w, num_nodes=n)),),
        "takes out self-loops that were added",
    ),
    "weights of other edges": (
        *(lambda e, w, n: (remove_self_loops(e)[0], w),),
        "rows of different vertices or edges meet in one operation",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_self_loops_that_cannot_be_had_are_refused_with_their_line(what: str, tmp_path: Path) -> None:
    change, reason = REFUSED[what]
    with pytest.raises(ExportError, match=rf"test_own_convs.py:\d+: .*{reason}"):
        export_model(Changed(change), tmp_path, features=4)


COMPARED: dict[str, Any] = {
    "rows": lambda s, x, a: x > 0,
    "encoded attributes": lambda s, x, a: s.lin(a) > 0,
    "functions of attributes": lambda s, x, a: a[:, :1].sigmoid() == 0.5,
}


@pytest.mark.parametrize("what", COMPARED)
def test_what_float32_and_float64_may_see_on_two_sides_is_not_compared(what: str, tmp_path: Path) -> None:
    said = r"test_own_convs.py:\d+: (gt|eq) compares rows, or .* jump .* attributes and weights of edges as they came"
    with pytest.raises(ExportError, match=said):
        export_model(MaskedConv(COMPARED[what]), tmp_path, features=4)


def test_five_of_them_and_two_of_pyg_are_one_model(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = export_model(FiveConvs(4, 2), tmp_path)
    assert sum(isinstance(one, MessageConv) for one in model.layers) == 4
    assert model.edge_features == 2


def test_a_written_layer_reads_rows_as_wide_as_the_conv_that_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.gated_sum import GatedSum
    from freshet.gnn.pyg.own import conv as reading
    from freshet.gnn.pyg.steps import Step

    monkeypatch.setattr(reading, "layer_class", lambda code, sha256: GatedSum)
    monkeypatch.setattr(reading, "declared", lambda code, weights, in_channels, **options: in_channels)
    conv = ResGatedGraphConv(4, 3)
    del conv.in_channels
    assert reading.convert_written(Step("conv", conv), "mine:Gate", None)[0] == 4
