"""Types of edges that a forward looks rows up by are columns of attributes: held against the module on streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

from freshet import to_torch  # noqa: E402
from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402

TYPES = 3


class LookedUp(nn.Module):
    """Two convs whose edges have rows that are looked up by their types."""

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        super().__init__()
        self.emb, self.first, self.second = nn.Embedding(TYPES, 4), make(WIDTH, 5), make(5, 3)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        rows = self.emb(edge_type)
        return self.second(self.first(x, edge_index, rows).relu(), edge_index, rows)


class Relational(pyg.MessagePassing):
    """A conv that multiplies the rows of sources by those of types, which a layer of its own moves on."""

    def __init__(self, source: int, out: int, relations: int) -> None:
        super().__init__(aggr="mean")
        self.relations = nn.Parameter(torch.randn(relations, source))
        self.lin, self.moved = nn.Linear(source, out), nn.Linear(source, source)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.lin(self.propagate(edge_index, x=x, edge_type=edge_type, rows=self.moved(self.relations)))

    def message(self, x_j: Any, edge_type: Any, rows: Any) -> Any:
        return x_j * rows[edge_type] - self.relations.index_select(0, edge_type)


class Asking(nn.Module):
    """A conv that is handed a function of types, and of other attributes where the forward takes them."""

    def __init__(self, function: Callable[..., Any], conv: Any) -> None:
        super().__init__()
        self.function, self.conv, self.emb = function, conv, nn.Embedding(TYPES, 4)
        self.scale = nn.Parameter(torch.randn(TYPES, 1))

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.conv(x, edge_index, self.function(self, edge_type))


class Beside(Asking):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        return self.conv(x, edge_index, self.function(self, edge_type, edge_attr))


class AsRows(nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.conv(x, edge_index, functional.one_hot(edge_type, 5).to(x))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Relational(WIDTH, 6, TYPES), Relational(6, 3, TYPES)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_type).tanh(), edge_index, edge_type)


def gine(source: int, out: int) -> Any:
    return pyg.GINEConv(nn.Sequential(nn.Linear(source, out), nn.ReLU()), edge_dim=4)


def transformer(edge_dim: int = 4) -> Any:
    return pyg.TransformerConv(WIDTH, 3, edge_dim=edge_dim)


MODULES: dict[str, Callable[[], Any]] = {
    "gine": lambda: LookedUp(gine),
    "gat with self-loops": lambda: LookedUp(lambda i, o: pyg.GATConv(i, o, edge_dim=4)),
    "gatv2": lambda: LookedUp(lambda i, o: pyg.GATv2Conv(i, o, edge_dim=4, add_self_loops=False)),
    "transformer": lambda: LookedUp(lambda i, o: pyg.TransformerConv(i, o, edge_dim=4)),
    "one hot": lambda: Asking(lambda m, t: functional.one_hot(t, TYPES).to(m.scale), transformer(3)),
    "as rows are": lambda: AsRows(transformer(5)),
    "more places": lambda: Asking(lambda m, t: functional.one_hot(t, 5).to(m.scale), transformer(5)),
    "weights": lambda: Asking(lambda m, t: m.scale[t].squeeze(-1).sigmoid(), pyg.GCNConv(WIDTH, 3)),
    "a column": lambda: Asking(lambda m, t: functional.embedding(t.view(-1, 1), m.emb.weight).flatten(1),
                               transformer()),
    "masks": lambda: Asking(lambda m, t: torch.where(t == 1, 0.5, 2.0) * (t != 2).float(), pyg.GraphConv(WIDTH, 3)),
    "numbers": lambda: Asking(lambda m, t: (t.float() * 0.25 + 1) / (t + 2), pyg.GraphConv(WIDTH, 3)),
    "own": Own,
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_it_streams_as_the_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = MODULES[name]().eval()
    model = export_model(module, tmp_path, edge_types=["a", "b", "c"])
    assert isinstance(model, Model)
    assert (model.type_columns, model.edge_features) == (True, TYPES)
    assert_streams(module, model, "module(x, edge_index, edge_type)")


BESIDE: dict[str, Callable[..., Any]] = {
    "side by side": lambda m, t, a: torch.cat([m.emb(t), a], dim=1),
    "a product": lambda m, t, a: torch.cat([m.emb(t) * a[:, :1], a.relu()], dim=-1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_types_beside_attributes(name: str, tmp_path: Path) -> None:
    module = Beside(BESIDE[name], pyg.GATConv(WIDTH, 3, edge_dim=6, add_self_loops=False)).eval()
    model = export_model(module, tmp_path)
    assert isinstance(model, Model)
    assert (model.edge_types, model.edge_features, model.features.given_edge_width) == (["0", "1", "2"], 5, 2)
    assert_streams(module, model, "module(x, edge_index, edge_type, edge_attr)")


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "a short table": (lambda: LookedUp(gine), {"edge_types": list("abcd")}, "index out of range"),
    "another place": (
        lambda: Asking(lambda m, t: m.emb((t + 1).clamp(max=2)), transformer()),
        {},
        "other than the types",
    ),
    "how many": (lambda: Asking(lambda m, t: m.scale[t].repeat(1, 4), transformer()), {}, "how many types edge_type"),
    "as many as there are": (
        lambda: Asking(lambda m, t: functional.one_hot(t).float(), transformer()),
        {"edge_types": list("abcd")},
        "one_hot of 4 types needs num_classes=4",
    ),
    "the largest": (lambda: Asking(lambda m, t: m.emb(t) / (t.max() + 1), transformer()), {}, "max reads all"),
    "statistics": (
        lambda: LookedUp(gine),
        {"stats_from": (torch.randn(3, WIDTH), torch.tensor([[0], [1]]))},
        "give a Data with edge_type, numbers below 3",
    ),
    "several widths": (
        lambda: Beside(lambda m, t, a: m.emb(t) * a[:, :1], transformer()),
        {},
        r"edge_type beside other attributes .* give edge_features=N",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    make, options, reason = REFUSED[name]
    with pytest.raises(ExportError, match=reason):
        export_model(make().eval(), tmp_path, **options)


class Optional(LookedUp):
    def forward(self, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
        return super().forward(x, edge_index, edge_type)


def test_types_may_have_a_default(tmp_path: Path) -> None:
    module = Optional(gine).eval()
    model = export_model(module, tmp_path)
    assert isinstance(model, Model) and model.type_columns
    assert_streams(module, model, "module(x, edge_index, edge_type)")


def test_statistics_of_a_graph_with_types(tmp_path: Path) -> None:
    module = Normed(gine).eval()
    data = Data(
        x=torch.randn(6, WIDTH), edge_index=torch.randint(0, 6, (2, 9)), edge_type=torch.randint(0, TYPES, (9,))
    )
    model = export_model(module, tmp_path, stats_from=data)
    assert isinstance(model, Model) and model.is_approximate
    with torch.no_grad():
        made, want = to_torch(tmp_path)(data.x, data.edge_index, edge_type=data.edge_type), module(*data_of(data))
    torch.testing.assert_close(made, want, rtol=1e-4, atol=1e-5)


def data_of(data: Any) -> tuple[Any, Any, Any]:
    return data.x, data.edge_index, data.edge_type


class Normed(LookedUp):
    def __init__(self, make: Callable[[int, int], Any]) -> None:
        super().__init__(make)
        self.norm = pyg.GraphNorm(3)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.norm(super().forward(x, edge_index, edge_type))


class OfData(nn.Module):
    """Takes all in one Data: RGCNConv, or rows that are looked up, by the types of its edges."""

    def __init__(self, conv: Any, fields: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.emb, self.conv, self.fields = nn.Embedding(TYPES, 4), conv, fields

    def forward(self, data: Any) -> Any:
        x, edge_index, edge_type = data.x, data.edge_index, data.edge_type
        if isinstance(self.conv, pyg.RGCNConv):
            return self.conv(x, edge_index, edge_type).relu()
        return self.conv(x, edge_index, self.emb(edge_type)).relu()


class OfDataBeside(OfData):
    def forward(self, data: Any) -> Any:
        rows = torch.cat([self.emb(data["edge_type"]), data.edge_attr], dim=-1)
        return self.conv(data.x, data.edge_index, rows).relu()


def test_types_of_one_data(tmp_path: Path) -> None:
    module = OfData(transformer()).eval()
    assert_streams(module, export_model(module, tmp_path / "rows"), "module(graph)")  # type: ignore[arg-type]
    beside = OfDataBeside(transformer(6)).eval()
    model = export_model(beside, tmp_path / "beside", edge_features=2)
    assert isinstance(model, Model)
    assert_streams(beside, model, "module(Data(x=x, edge_index=edge_index, edge_type=edge_type, edge_attr=edge_attr))")
    typed = OfData(pyg.RGCNConv(WIDTH, 4, TYPES)).eval()  # compared with the module as it is exported
    assert [one.type for one in export_model(typed, tmp_path / "kinds", edge_types=["a", "b", "c"]).relations] == [  # type: ignore[union-attr]
        *("a", "b", "c")
    ]
    assert type(typed).forward is OfData.forward


def test_a_graph_for_its_module_has_types(tmp_path: Path) -> None:
    module = Beside(BESIDE["side by side"], pyg.GATConv(WIDTH, 3, edge_dim=6, add_self_loops=False)).eval()
    export_model(module, tmp_path, edge_features=2)
    x, edge_index, types = torch.randn(5, WIDTH), torch.tensor([[0, 1, 2, 3], [1, 2, 1, 1]]), torch.tensor([0, 2, 1, 1])
    attr = torch.randn(4, 2)
    made = to_torch(tmp_path)(x, edge_index, edge_attr=attr, edge_type=types)
    torch.testing.assert_close(made, module(x, edge_index, types, attr), rtol=1e-5, atol=1e-6)
