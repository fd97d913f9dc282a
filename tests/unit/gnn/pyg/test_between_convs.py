"""What stands between the convs of a forward is read as it runs: reshaped rows, recurrent cells, attention over layers.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402

IN, WIDTH = 4, 6
Function = Callable[[Any, Any, Any], Any]


class Between(nn.Module):
    """A conv before and behind a function of its rows."""

    def __init__(self, function: Function, **parts: Any) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = pyg.SAGEConv(IN, WIDTH), pyg.GraphConv(WIDTH, 3)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.function(self, x, edge_index)


def rows_of(function: Callable[[Any, Any], Any]) -> Function:
    return lambda s, x, e: s.second(function(s, s.first(x, e)), e)


def halves(s: Any, h: Any) -> Any:
    a, b = h.chunk(2, dim=-1)
    return torch.cat([a * b, b - a], dim=-1)


def weighed_heads(s: Any, h: Any) -> Any:
    heads = h.view(h.size(0), 2, 3)
    return (heads * torch.softmax(heads.sum(-1), dim=-1).unsqueeze(-1)).reshape(h.size(0), -1)


def over_layers(s: Any, h: Any) -> Any:
    layers = torch.stack([h, F.relu(h), -h], dim=1)
    return (torch.softmax(s.attention(layers), dim=1) * layers).sum(dim=1)


def attending(s: Any, h: Any) -> Any:
    layers = torch.stack([h, h.relu(), -h], dim=1)
    made, shares = s.attention(h.unsqueeze(1), layers, layers)
    return made.squeeze(1) + shares.flatten(1).repeat(1, 2)


def scaled_products(s: Any, h: Any) -> Any:
    heads = torch.stack([h, h.relu(), -h], dim=1).view(-1, 3, 2, 3).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads.tanh(), heads).transpose(1, 2).flatten(2).mean(1)


def encoded(s: Any, h: Any) -> Any:
    return s.encoder(torch.stack([h, h.relu()], dim=0))[-1]


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, activation="gelu", norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def geniepath(s: Any, x: Any, e: Any) -> Any:
    """Steps of an LSTM whose first state has a size of the graph."""
    state = (torch.zeros(1, x.shape[0], 5, device=x.device), torch.zeros(1, x.shape[0], 5))
    h = s.first(x, e)
    made, state = s.lstm(h[None, :], state)
    made, state = s.lstm(F.relu(h)[None, :], state)
    return made[0]


def in_place(s: Any, h: Any) -> Any:
    """Statements that write over what is read after them."""
    again = h.clone()
    again.relu_()
    h.add_(1.0)
    h.mul_(again)
    return h - again


def residual_of_heads(s: Any, x: Any, e: Any) -> Any:
    h = s.first(x, e)
    again = s.middle(h.view(-1, 2, 3).mean(dim=1), e)
    return torch.einsum("nhd,hdk->nk", h.view(-1, 2, 3), s.heads) + again


TAKEN: dict[str, tuple[Function, dict[str, Callable[[], Any]]]] = {
    "attention between layers": (
        rows_of(attending),
        {"attention": lambda: nn.MultiheadAttention(WIDTH, 3, batch_first=True)},
    ),
    "scaled products": (rows_of(scaled_products), {}),
    "an encoder of layers": (rows_of(encoded), {"encoder": encoder}),
    "casts": (lambda s, x, e: (s.first(x, e).double() * 3).tanh().float(), {}),
    "waves": (lambda s, x, e: torch.cat([torch.sin(h := s.first(x, e)), h.cos()], -1), {}),
    "chunk": (rows_of(halves), {}),
    "split": (rows_of(lambda s, h: torch.cat(h.split([2, 4], -1)[::-1], -1)), {}),
    "mean of heads": (lambda s, x, e: s.first(x, e).view(-1, 2, 3).mean(1), {}),
    "weighed heads": (rows_of(weighed_heads), {}),
    "a gate": (rows_of(lambda s, h: torch.sigmoid(s.gate(h)) * h), {"gate": lambda: nn.Linear(WIDTH, 1)}),
    "sum of channels": (lambda s, x, e: s.first(x, e).sum(-1), {}),
    "attention over layers": (rows_of(over_layers), {"attention": lambda: nn.Linear(WIDTH, 1)}),
    "einsum": (
        residual_of_heads,
        {"heads": lambda: nn.Parameter(torch.randn(2, 3, 3)), "middle": lambda: pyg.GATConv(3, 3)},
    ),
    "addmm": (
        lambda s, x, e: torch.addmm(s.bias, s.first(x, e), s.matrix),
        {"bias": lambda: nn.Parameter(torch.randn(3)), "matrix": lambda: nn.Parameter(torch.randn(WIDTH, 3))},
    ),
    "gru cell": (
        lambda s, x, e: s.cell(s.first(x, e), s.lin(x)),
        {"cell": lambda: nn.GRUCell(WIDTH, 5), "lin": lambda: nn.Linear(IN, 5)},
    ),
    "lstm cell": (lambda s, x, e: s.cell(s.first(x, e))[1], {"cell": lambda: nn.LSTMCell(WIDTH, 5)}),
    "gru": (
        lambda s, x, e: s.gru(torch.stack([s.first(x, e), s.lin(x)], 1))[0][:, -1],
        {"gru": lambda: nn.GRU(WIDTH, 4, 2, batch_first=True, bidirectional=True), "lin": lambda: nn.Linear(IN, WIDTH)},
    ),
    "rnn": (lambda s, x, e: s.rnn(s.first(x, e)[None])[1][0], {"rnn": lambda: nn.RNN(WIDTH, 4, nonlinearity="relu")}),
    "lstm with a first state": (geniepath, {"lstm": lambda: nn.LSTM(WIDTH, 5, bias=False)}),
    "bilinear": (
        rows_of(lambda s, h: s.bilinear(h, torch.tanh(h))),
        {"bilinear": lambda: nn.Bilinear(WIDTH, WIDTH, WIDTH)},
    ),
    "cell without a state": (lambda s, x, e: s.cell(s.first(x, e)), {"cell": lambda: nn.GRUCell(WIDTH, 5)}),
    "sizes one by one": (rows_of(lambda s, h: (h.view(-1, 2, 3) + torch.ones(h.size(0), 2, 3)).flatten(1)), {}),
    "a length": (rows_of(lambda s, h: h.view(len(h), 2, 3).flip(1).reshape(len(h), -1)), {}),
    "in place": (rows_of(in_place), {}),
    "made in forward": (rows_of(lambda s, h: pyg.JumpingKnowledge("max")([h, -h])), {}),
    "exponential": (rows_of(lambda s, h: torch.exp(-h.abs())), {}),
    "root and logarithm": (rows_of(lambda s, h: torch.log1p(h.abs()) + (h * h + 1).sqrt()), {}),
    "cube": (rows_of(lambda s, h: h**3), {}),
    "length": (rows_of(lambda s, h: h / (1 + h.norm(dim=-1, keepdim=True))), {}),
    "a number by the rows": (rows_of(lambda s, h: 1 / (2 + torch.tanh(h))), {}),
    "times alpha": (rows_of(lambda s, h: torch.add(h, torch.relu(h), alpha=0.5)), {}),
    "before the first conv": (
        lambda s, x, e: s.first(torch.cat(x.chunk(2, 1)[::-1], 1) * torch.sigmoid(s.gate(x)), e),
        {"gate": lambda: nn.Linear(IN, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_is_the_module(what: str, tmp_path: Path) -> None:
    function, parts = TAKEN[what]
    torch.manual_seed(3)
    export_model(Between(function, **{name: make() for name, make in parts.items()}), tmp_path / "M")


@pytest.mark.parametrize("make", [lambda **o: pyg.GCN(IN, 5, 2, **o), lambda **o: pyg.GIN(IN, 5, 3, 2, **o)])
def test_jumping_knowledge_by_an_lstm(make: Callable[..., Any], tmp_path: Path) -> None:
    export_model(make(jk="lstm"), tmp_path / "M")


def test_columns_of_a_gate_are_rows_of_its_matrix(tmp_path: Path) -> None:
    """A chunk of what a linear layer makes costs what it would cost by itself."""
    gated = Between(rows_of(lambda s, h: torch.relu(s.lin(h).chunk(2, -1)[0])), lin=nn.Linear(WIDTH, 2 * WIDTH))
    model = export_model(gated, tmp_path / "M")
    assert [layer.type for layer in model.layers] == ["sage_conv", "linear", "relu", "graph_conv"]
    assert model.layers[1].out_width == WIDTH


class Block(nn.Module):
    """What RevGNN repeats; the mask drops at training alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(width), pyg.SAGEConv(width, width)

    def forward(self, x: Any, edge_index: Any, mask: Any = None) -> Any:
        x = self.norm(x).relu()
        return self.conv(x * mask if self.training and mask is not None else x, edge_index)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_of_channels(groups: int, tmp_path: Path) -> None:
    deep = pyg.GroupAddRev(Block(WIDTH // groups), num_groups=groups)
    module = Between(lambda s, x, e: s.second(s.deep(s.first(x, e), e, None), e), deep=deep)
    assert sum(layer.type == "sage_conv" for layer in export_model(module, tmp_path / "M").layers) == groups + 1


def test_models_that_need_none_of_this_are_as_before(tmp_path: Path) -> None:
    model = export_model(Between(rows_of(lambda s, h: torch.relu(h * 2).squeeze())), tmp_path / "M")
    assert [layer.type for layer in model.layers] == ["sage_conv", "scale", "relu", "graph_conv"]


class OfKinds(nn.Module):
    """Rows of two kinds, each joined by a recurrent cell and a gate."""

    def __init__(self) -> None:
        super().__init__()
        relations = [("user", "buys", "item"), ("user", "likes", "item"), ("item", "rev_buys", "user")]
        self.conv = pyg.HeteroConv({one: pyg.SAGEConv((IN, IN), WIDTH) for one in relations})
        self.cell = nn.GRUCell(WIDTH, IN)
        self.last = pyg.HeteroConv({one: pyg.SAGEConv((IN, IN), 3) for one in relations})

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        made = self.conv(x_dict, edge_index_dict)
        rows = {kind: self.cell(h, x_dict[kind]) for kind, h in made.items()}
        return {kind: h[:, :3].view(-1, 3, 1).sum(-1) for kind, h in self.last(rows, edge_index_dict).items()}


def test_kinds(tmp_path: Path) -> None:
    model = export_model(OfKinds(), tmp_path / "M")
    assert isinstance(model, KindsModel)
    types = [layer.type for layer in model.layers]
    assert types == ["by_kind", "hetero_conv"] * 2  # relations into one kind stay together


def with_size_in_a_constant(s: Any, x: Any, e: Any) -> Any:
    kept = torch.zeros(1)
    kept[0] = x.size(0)
    return s.second(s.first(x, e) + (kept - 3000).relu(), e)


def written_through_a_view(s: Any, h: Any) -> Any:
    left = h[:, :3]
    left.add_(1.0)
    return h * 2


def run_then_other_edges(s: Any, x: Any, e: Any) -> Any:
    h = s.first(x, e)
    h = h / (1 + h.norm(dim=-1, keepdim=True))
    return s.second(h, e[:, :5])


def test_a_refusal_is_of_what_stands_behind_functions_that_are_run(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"second: .* test_between_convs.py:\d+: it takes a slice of the number of edges"
    ):
        export_model(Between(run_then_other_edges), tmp_path / "M")


REFUSED: dict[str, tuple[Function, dict[str, Callable[[], Any]], str]] = {
    "mean of vertices": (rows_of(lambda s, h: h.view(-1, 2, 3).mean(0)), {}, "mean reads more than one vertex"),
    "softmax of vertices": (
        rows_of(lambda s, h: h.view(-1, 2, 3).softmax(0).flatten(1)), {}, "softmax over dim=0 reads all vertices"
    ),
    "a sequence of vertices": (
        lambda s, x, e: s.gru(s.first(x, e).unsqueeze(1))[0].squeeze(1),
        {"gru": lambda: nn.GRU(WIDTH, 4)},
        "GRU",
    ),
    "an unbatched sequence": (lambda s, x, e: s.gru(s.first(x, e))[0], {"gru": lambda: nn.GRU(WIDTH, 4)}, "GRU"),
    "attention of vertices": (
        rows_of(lambda s, h: s.attention(h, h, h)[0]),
        {"attention": lambda: nn.MultiheadAttention(WIDTH, 2)},
        "lets each vertex read all others",
    ),
    "chance in attention": (
        rows_of(lambda s, h: F.scaled_dot_product_attention(*[h.view(-1, 2, 3)] * 3, dropout_p=0.5).flatten(1)),
        {},
        "draws at random",
    ),
    "another vertex": (rows_of(lambda s, h: h.view(-1, 2, 3).roll(1, 0).flatten(1)), {}, "roll"),
    "a size of the graph": (
        rows_of(lambda s, h: h.view(-1, 2, 3).flatten(1) * (h.size(0) // 100000 + 1)), {}, "number of vertices"
    ),
    "a branch on rows": (rows_of(lambda s, h: torch.where(h > 0, h, h.sum(-1, keepdim=True))), {}, "compares rows"),
    "chance": (rows_of(lambda s, h: h.view(-1, 2, 3).flatten(1) + torch.randn(6)), {}, "random|differs|again"),
    "a size in a constant": (with_size_in_a_constant, {}, "setitem .*writes over"),
    "no number": (rows_of(lambda s, h: torch.relu(h).log()), {}, "Besides, the module itself gives NaN or infinity"),
    "in place of a view": (rows_of(written_through_a_view), {}, "writes over what is read again after it"),
    "new weights": (rows_of(lambda s, h: nn.Linear(WIDTH, WIDTH)(h)), {}, "makes a Linear with new weights"),
    "sorted channels": (rows_of(lambda s, h: h.sort(-1).values), {}, "sort"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    function, parts, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(Between(function, **{name: make() for name, make in parts.items()}), tmp_path / "M")
    assert not (tmp_path / "M").exists()
