"""Modules in which a layer reads rows of earlier ones become models that give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.unit.gnn.pyg.test_export import IN, assert_same, exported, inputs  # noqa: E402


class Two(nn.Module):
    """Two convs and a linear layer; `combine` says what is returned of them all."""

    def __init__(self, combine: Callable[..., Any], several: Any = None) -> None:
        super().__init__()
        self.several = several
        self.first, self.second, self.lin = pyg.GCNConv(IN, IN), pyg.SAGEConv(IN, IN), nn.Linear(IN, 3)
        self.combine = combine

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        a = F.relu(self.first(x, edge_index, edge_weight))
        return self.combine(self, x, a, self.second(a, edge_index), edge_index)


class Called(nn.Module):
    """A conv behind a linear layer."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.lin, self.conv = nn.Linear(IN, 4), conv

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.conv(self.lin(x), edge_index, edge_weight)


class Initial(nn.Module):
    """GCN2Conv reads the first rows in every layer."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lin = nn.Linear(IN, 5)
        self.convs = nn.ModuleList(pyg.GCN2Conv(5, alpha=0.1, layer=k + 1, **options) for k in range(3))

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        x = x_0 = self.lin(x).relu()
        for conv in self.convs:
            x = conv(x_0=x_0, x=F.dropout(x, 0.5, self.training), edge_index=edge_index, edge_weight=edge_weight).relu()
        return x


class Deep(nn.Module):
    def __init__(self, block: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            pyg.DeepGCNLayer(pyg.SAGEConv(width, IN), nn.LayerNorm(norm), nn.ReLU(), block=block, dropout=0.1)
            for width, norm in ((IN, IN), (2 * IN if block == "dense" else IN, IN))
        )

    def forward(self, x: Any, edge_index: Any) -> Any:
        for layer in self.layers:
            x = layer(x, edge_index)
        return x


class InPlace(nn.Module):
    """The relu overwrites rows that are read again: what is traced is not what happens."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(IN, IN)

    def forward(self, x: Any, edge_index: Any) -> Any:
        h = self.conv(x, edge_index)
        return F.relu(h, inplace=True) + h


COMBINED: dict[str, Callable[..., Any]] = {
    "residual": lambda m, x, a, b, e: m.lin(a + b).log_softmax(-1),
    "of the input": lambda m, x, a, b, e: x + b,
    "difference": lambda m, x, a, b, e: m.lin(x - a) - m.lin(b),
    "in place": lambda m, x, a, b, e: b.add_(x) * 0.5,
    "product": lambda m, x, a, b, e: torch.sigmoid(a) * b,
    "of itself": lambda m, x, a, b, e: b * b + b,
    "cat": lambda m, x, a, b, e: torch.cat([x, a, b], dim=-1),
    "maximum": lambda m, x, a, b, e: torch.maximum(a, b),
    "min": lambda m, x, a, b, e: torch.min(a, b),
    "stack mean": lambda m, x, a, b, e: torch.stack([x, a, b]).mean(dim=0),
    "stack max": lambda m, x, a, b, e: torch.stack([x, a, b], dim=-1).max(dim=-1)[0],
    "stack min": lambda m, x, a, b, e: torch.stack([x, a, b], 1).min(1).values,
    "stack side by side": lambda m, x, a, b, e: torch.stack([a, x, b], 1).flatten(start_dim=1),
    "stack amax": lambda m, x, a, b, e: torch.amax(torch.stack((x, a)), dim=0) + b,
    "quotient": lambda m, x, a, b, e: b / (a + 0.5) + x,
    "stack of one": lambda m, x, a, b, e: torch.stack([b], 0).mean(0) + torch.cat([x], -1) + torch.stack([a]).sum(0),
    "branches": lambda m, x, a, b, e: m.second(x, e) + m.first(b, e) * 2,
    "earlier rows": lambda m, x, a, b, e: m.lin(a),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "jk cat": lambda: pyg.GCN(IN, 5, 3, 4, jk="cat", norm="layer_norm", norm_kwargs={"mode": "node"}),
    "jk max": lambda: pyg.GIN(IN, 5, 3, 4, jk="max"),
    "jk of its own": lambda: Two(lambda m, x, a, b, e: m.several([a, b]), pyg.JumpingKnowledge("max")),
    "message norm": lambda: Two(lambda m, x, a, b, e: a + m.several(x, b), pyg.MessageNorm(learn_scale=True)),
    "listed": lambda: pyg.Sequential(
        "x, e, w",
        [
            (pyg.GCNConv(IN, IN), "x, e, w -> a"),
            (pyg.GCNConv(IN, IN), "a, e, w -> b"),
            (lambda a, b: [a, b], "a, b -> both"),
            (pyg.JumpingKnowledge("cat"), "both -> x"),
        ],
    ),
    "gcn2": lambda: Initial(theta=0.5),
    "gcn2, own weights": lambda: Initial(theta=0.5, shared_weights=False, add_self_loops=False),
    "deep res+": lambda: Deep("res+"),
    "deep res": lambda: Deep("res"),
    "deep dense": lambda: Deep("dense"),
    "deep plain": lambda: Deep("plain"),
    "sgc": lambda: Called(pyg.SGConv(4, 3, K=2, cached=True)),
    "ssgc": lambda: Called(pyg.SSGConv(4, 3, alpha=0.1, K=3, add_self_loops=False)),
    "tag": lambda: Called(pyg.TAGConv(4, 3)),
    "tag, plain": lambda: Called(pyg.TAGConv(4, 3, K=2, normalize=False, bias=False)),
    "appnp": lambda: Called(pyg.APPNP(4, 0.1, dropout=0.5)),
    "appnp, no teleport": lambda: Called(pyg.APPNP(2, 0.0, add_self_loops=False)),
    "lg": lambda: Called(pyg.LGConv()),
    "mix hop": lambda: Called(pyg.MixHopConv(4, 3)),
    "mix hop, some": lambda: Called(pyg.MixHopConv(4, 3, powers=[3, 1], add_self_loops=True, bias=False)),
    "simple": lambda: Called(pyg.SimpleConv()),
    "simple, loops": lambda: Called(pyg.SimpleConv(combine_root="self_loop")),
    "simple, root": lambda: Called(pyg.SimpleConv(combine_root="sum")),
    "simple, beside": lambda: Called(pyg.SimpleConv(combine_root="cat")),
    "sequential": lambda: pyg.Sequential(
        "x, e, w",
        [
            (pyg.GCNConv(IN, IN), "x, e, w -> a"),
            (nn.ReLU(), "a -> a"),
            (pyg.SAGEConv(IN, IN), "a, e -> b"),
            (torch.add, "a, b -> c"),
            (pyg.GCN2Conv(IN, 0.2), "c, x, e, w -> x"),
        ],
    ),
}


@pytest.mark.parametrize("name", [*COMBINED, *OTHERS])
def test_the_model_gives_what_the_module_gives(name: str, tmp_path: Path) -> None:
    module = OTHERS[name]() if name in OTHERS else Two(COMBINED[name])
    model = exported(module, tmp_path)
    graph, x, edge_index, weight = inputs()
    for part in module.eval().modules():
        if hasattr(part, "_cached_x"):
            part._cached_x = None
    with torch.no_grad():
        given = (x, edge_index, weight) if "edge_weight" in _parameters(module) else (x, edge_index)
        assert_same(model, module(*given), graph)


def _parameters(module: Any) -> list[str]:
    if isinstance(module, pyg.Sequential):
        return ["edge_weight"]
    names = list(module.forward.__code__.co_varnames)
    return names if getattr(module, "supports_edge_weight", True) else []


def test_light_gcn_reads_its_table_of_embeddings_as_features(tmp_path: Path) -> None:
    module = pyg.LightGCN(90, IN, 3, alpha=torch.tensor([0.4, 0.3, 0.2, 0.1]))
    graph, x, edge_index, weight = inputs()
    model = export_model(module, tmp_path)
    module.embedding = nn.Embedding.from_pretrained(x)
    assert_same(model, module.get_embedding(edge_index, weight), graph)


class Beside(nn.Module):
    """A conv of any width, and a layer that says how wide two of its rows are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin = pyg.LGConv(), nn.Linear(12, 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.lin(torch.cat([x, self.conv(x, edge_index)], dim=1))


def test_what_is_written_over_is_read_so(tmp_path: Path) -> None:
    exported(InPlace(), tmp_path)


def test_a_layer_may_say_how_wide_rows_side_by_side_are(tmp_path: Path) -> None:
    assert exported(Beside(), tmp_path).features.width == 6


def test_what_is_kept_is_what_is_read_later(tmp_path: Path) -> None:
    model = exported(Two(COMBINED["residual"]), tmp_path)
    kinds = [layer.type for layer in model.layers]
    assert kinds == ["gcn_conv", "relu", "keep", "sage_conv", "join", "linear", "log_softmax"]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "power": (lambda: Two(lambda m, x, a, b, e: a**b), "reads the rows of relu and second.*added, subtracted"),
    "cat of vertices": (lambda: Two(lambda m, x, a, b, e: torch.cat([a, b])), "cat over dim=0 puts vertices together"),
    "widths": (lambda: Two(lambda m, x, a, b, e: torch.maximum(a, m.lin(b))), "maximum.*max of rows of widths 6, 3"),
    "stack": (lambda: Two(lambda m, x, a, b, e: torch.stack([a, b]).mean(1)), "must be reduced over the dimension"),
    "stack of channels": (
        lambda: Two(lambda m, x, a, b, e: torch.stack([a, b], -1).flatten(1)),
        "must be reduced over the dimension",
    ),
    "stack alone": (lambda: Two(lambda m, x, a, b, e: torch.stack([a, b])), "returns something other than the rows"),
    "lambda of two": (
        lambda: pyg.Sequential("x, e", [(pyg.GCNConv(IN, IN), "x, e -> a"), (lambda x, a: x @ a.T, "x, a -> x")]),
        "module_1: <lambda> reads the rows of the input and module_0. Rows of several layers can be added",
    ),
    "width unknown": (lambda: nn.ModuleList([pyg.LGConv()]), "hop1: the width of its rows is unknown, .* features=N"),
    "skip in gin": (
        lambda: nn.ModuleList([pyg.GINConv(nn.Sequential(nn.Linear(IN, IN), Skip()))]),
        "0.nn: .* a head and a conv's nn are straight lines",
    ),
    "cheb median": (
        lambda: nn.ModuleList([pyg.ChebConv(4, 4, 2, aggr="median")]),
        "0: ChebConv with aggr='median' is not supported yet; supported: sum, mean, max, min, std, var",
    ),
}


class Skip(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.relu(x)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_taken_is_refused_with_the_nearest_thing(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_head_reads_the_embedding_alone(tmp_path: Path) -> None:
    module = Two(lambda m, x, a, b, e: m.lin(a + b))
    assert len(exported(module, tmp_path, head="lin").head) == 1
    module = Two(lambda m, x, a, b, e: m.lin(b) + m.lin(a))
    with pytest.raises(ExportError, match="head='lin' is not the end of the module"):
        export_model(module, tmp_path / "m", head="lin")


OF_ANY_WIDTH: dict[str, tuple[Any, int]] = {
    "lg": (lambda: nn.ModuleList([pyg.LGConv(), nn.ReLU(), pyg.LGConv()]), 5),
    "appnp": (lambda: nn.ModuleList([nn.Tanh(), pyg.APPNP(2, 0.1)]), 5),
    "agnn": (lambda: nn.ModuleList([pyg.AGNNConv(), pyg.AGNNConv()]), 5),
    "gin without weights": (lambda: nn.ModuleList([pyg.GINConv(nn.Tanh())]), 5),
    "edges without weights": (lambda: nn.ModuleList([pyg.EdgeConv(nn.Tanh())]), 10),
}


@pytest.mark.parametrize("name", OF_ANY_WIDTH)
def test_where_no_layer_says_how_wide_features_are_it_is_told(name: str, tmp_path: Path) -> None:
    make, out = OF_ANY_WIDTH[name]
    with pytest.raises(ExportError, match="is unknown, since no layer says it; give export_model the width"):
        export_model(make(), tmp_path)
    model = export_model(make(), tmp_path, features=5)
    assert (model.features.width, model.out_width) == (5, out)
    graph = torch.ones(3, 5), torch.tensor([[0, 1], [1, 2]])
    assert export_model(make(), tmp_path, stats_from=graph).sha256() == model.sha256()


def test_the_first_layer_that_has_a_width_says_it_for_those_before(tmp_path: Path) -> None:
    before = [pyg.LGConv(), nn.ReLU(), pyg.AGNNConv(), nn.LayerNorm(IN), pyg.APPNP(2, 0.5)]
    model = export_model(nn.ModuleList([*before, pyg.GCNConv(IN, 3)]), tmp_path)
    assert (model.features.width, model.out_width) == (IN, 3)
    with pytest.raises(
        ExportError, match=f"features are 4 wide, but .* rows of width {IN}|reads rows of width {IN}, got 4"
    ):
        export_model(nn.ModuleList([pyg.LGConv(), pyg.GCNConv(IN, 3)]), tmp_path / "m", features=4)
    with pytest.raises(ExportError, match=f"features are 4 wide, but the module reads rows of width {IN}"):
        export_model(nn.ModuleList([pyg.GCNConv(IN, 3)]), tmp_path / "m", features=4)
    assert not (tmp_path / "m").exists()
    assert export_model(Beside(), tmp_path / "beside", features=6).features.width == 6
