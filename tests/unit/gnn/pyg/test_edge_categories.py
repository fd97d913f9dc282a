"""Attributes of edges that number categories, by which a forward looks rows up: held against the module on streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from freshet import to_torch  # noqa: E402
from freshet.gnn.describe import describe_text  # noqa: E402
from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.gnn.torch_modules.errors import ModuleInputError  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402


class Categorical(nn.Module):
    """A conv that is handed a function of attributes, some of which number five or three categories."""

    def __init__(self, function: Callable[..., Any], conv: Any = None) -> None:
        super().__init__()
        self.kind, self.colour, self.scale = nn.Embedding(5, 4), nn.Embedding(3, 4), nn.Parameter(torch.randn(5))
        self.function, self.conv = function, conv or pyg.GINEConv(nn.Linear(WIDTH, 3), edge_dim=4)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, self.function(self, edge_attr))


class Bonds(nn.Module):
    """Adds up an embedding for each column, as OGB's encoder of bonds does."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleList([nn.Embedding(5, 4), nn.Embedding(6, 4), nn.Embedding(2, 4)])

    def forward(self, edge_attr: Any) -> Any:
        made = 0
        for i in range(edge_attr.shape[1]):
            made = made + self.columns[i](edge_attr[:, i])
        return made


class OfBonds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bonds = Bonds()
        self.first, self.second = (pyg.GINEConv(nn.Linear(width, 3), edge_dim=4) for width in (WIDTH, 3))

    def forward(self, data: Any) -> Any:
        rows = self.bonds(data.edge_attr)
        return self.second(self.first(data.x, data.edge_index, rows).relu(), data.edge_index, rows)


class Message(pyg.MessagePassing):
    """A conv of one's own that looks rows up in its messages."""

    def __init__(self) -> None:
        super().__init__(aggr="max")
        self.kind, self.lin = nn.Embedding(5, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.lin(self.propagate(edge_index, x=x, edge_attr=edge_attr))

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        return x_j * self.kind(edge_attr[:, 0].long()) + edge_attr[:, 1:]


PLAIN, LONG = "module(x, edge_index, edge_attr)", "module(x, edge_index, edge_attr.long())"
FLAT = "module(x, edge_index, edge_attr.long().view(-1))"
MODULES: dict[str, tuple[Callable[[], Any], list[int], str]] = {
    "a column": (lambda: Categorical(lambda m, a: m.kind(a[:, 0].long())), [5], PLAIN),
    "all columns": (lambda: Categorical(lambda m, a: m.kind(a.to(torch.int64)).sum(1)), [5, 5], PLAIN),
    "whole numbers": (lambda: Categorical(lambda m, a: m.kind(a[:, 0]) + m.colour(a[:, 1])), [5, 3], LONG),
    "one number each": (lambda: Categorical(lambda m, a: m.kind(a)), [5], FLAT),
    "one hot": (lambda: Categorical(lambda m, a: functional.one_hot(a[:, 0].long(), 4).to(m.scale)), [4], PLAIN),
    "beside numbers": (lambda: Categorical(lambda m, a: m.kind(a[:, 1].long()) * a[:, :1]), [0, 5], PLAIN),
    "looked up and read": (lambda: Categorical(lambda m, a: m.kind(a.long()).flatten(1) * a), [5], PLAIN),
    "weights": (lambda: Categorical(lambda m, a: m.scale[a[:, 0].long()].sigmoid(), pyg.GCNConv(WIDTH, 3)), [5], PLAIN),
    "added self-loops": (
        lambda: Categorical(lambda m, a: m.kind(a[:, 0].long()), pyg.GATConv(WIDTH, 3, edge_dim=4)),
        [5],
        PLAIN,
    ),
    "bonds": (OfBonds, [5, 6, 2], "module(Data(x=x, edge_index=edge_index, edge_attr=edge_attr.long()))"),
    "in messages": (Message, [5, 0], PLAIN),
}


@pytest.mark.parametrize("name", MODULES)
def test_it_streams_as_the_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    make, counts, call = MODULES[name]
    module = make().eval()
    model = export_model(module, tmp_path, features=WIDTH, edge_features=len(counts))
    assert isinstance(model, Model)
    assert (model.edge_categories, model.edge_features) == (counts, len(counts))
    assert_streams(module, model, call, parts=2 + len(counts) % 2)


REFUSED: dict[str, tuple[Callable[..., Any], int, str]] = {
    "columns together": (lambda m, a: m.kind(a[:, 0].long() + a[:, 1].long()), 2, "looked up together"),
    "in between": (lambda m, a: m.kind(a[:, 0].long().clamp(max=4)), 1, r"Nearest: that; columns of 0 and 1"),
    "moved": (lambda m, a: m.kind((a[:, 0].long() - 4).abs()), 1, "other than the types of edges, as they came"),
    "as many as there are": (lambda m, a: functional.one_hot(a[:, 0].long()).float(), 1, "Nearest: that; columns"),
    "several widths": (lambda m, a: m.kind(a[:, 0].long()), 0, "1 or 2 or 3 wide: give edge_features=N"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    function, width, reason = REFUSED[name]
    with pytest.raises(ExportError, match=reason):
        export_model(Categorical(function).eval(), tmp_path, edge_features=width or None)


def test_a_module_of_the_model_takes_categories_alone(tmp_path: Path) -> None:
    module = Categorical(MODULES["beside numbers"][0]().function).eval()
    export_model(module, tmp_path, edge_features=2)
    assert "of which some number categories (5 in place 1)" in " ".join(describe_text(tmp_path, width=200).split())
    x, edge_index, attr = torch.randn(3, WIDTH), torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0.5, 4.0], [1.5, 0.0]])
    torch.testing.assert_close(to_torch(tmp_path)(x, edge_index, edge_attr=attr), module(x, edge_index, attr))
    for wrong in (5.0, 1.5, -1.0):
        attr[1, 1] = wrong
        with pytest.raises(ModuleInputError, match=f"got {wrong:g} in column 1, expected a whole number from 0 to 4"):
            to_torch(tmp_path)(x, edge_index, edge_attr=attr)


def test_statistics_of_a_graph_with_categories(tmp_path: Path) -> None:
    class Normed(Categorical):
        def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
            return self.norm(super().forward(x, edge_index, edge_attr))

    module = Normed(lambda m, a: m.kind(a[:, 0].long())).eval()
    module.norm = pyg.GraphNorm(3)
    x, edges, attr = torch.randn(6, WIDTH), torch.randint(0, 6, (2, 9)), torch.randint(0, 5, (9, 1)).float()
    model = export_model(module, tmp_path, stats_from=(x, edges, None, attr), edge_features=1)
    assert isinstance(model, Model) and model.is_approximate
    torch.testing.assert_close(
        to_torch(tmp_path)(x, edges, edge_attr=attr), module(x, edges, attr), rtol=1e-4, atol=1e-5
    )
