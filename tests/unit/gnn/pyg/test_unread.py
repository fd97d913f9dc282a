"""Parameters that a forward needs, and that nothing which it makes of vertices reads.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402


class WithConvs(nn.Module):
    """Two convs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(4, 5), pyg.GraphConv(5, 3)

    def rows(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index, edge_weight)


class Typed(WithConvs):
    def forward(self, x: Any, node_type: Any, edge_index: Any, edge_type: Any, edge_time: Any) -> Any:
        return self.rows(x, edge_index)


class Pooled(WithConvs):
    """Returns rows of graphs beside those of vertices."""

    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        rows = self.rows(x, edge_index)
        return pyg.global_add_pool(rows, batch), rows


class Unnamed(WithConvs):
    def forward(self, *args: Any, **more: Any) -> Any:
        x, edge_index = args if len(args) == 2 else (more["x"], more["edge_index"])
        return self.rows(x, edge_index)


class Weighted(WithConvs):
    def forward(self, x: Any, edge_index: Any, norm: Any, batch: Any) -> Any:
        return self.rows(x, edge_index, norm)


class Normed(pyg.MessagePassing):
    """A conv that needs a weight under a name of its own, and a size."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x: Any, edge_index: Any, norm: Any, size: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), norm=norm, size=size)

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


TAKEN: dict[str, tuple[Callable[[], Any], dict[str, Any], list[bool]]] = {
    "types and times": (Typed, {}, [False, False]),
    "a batch that rows of graphs are made of": (Pooled, {"output": 1}, [False, False]),
    "*args": (Unnamed, {}, [False, False]),
    "a batch beside weights": (Weighted, {}, [False, True]),
    "weights and a size of a conv": (Normed, {}, [True]),
}


@pytest.mark.parametrize("what", TAKEN)
def test_is_the_module(what: str, tmp_path: Path) -> None:
    make, options, weighted = TAKEN[what]
    torch.manual_seed(3)
    model = export_model(make().eval(), tmp_path, **options)
    assert isinstance(model, Model)
    assert [one.edge_weights for one in model.layers if hasattr(one, "edge_weights")] == weighted


class ByBatch(WithConvs):
    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        rows = self.rows(x, edge_index)
        return rows - pyg.global_mean_pool(rows, batch)[batch]


class WhereNone(WithConvs):
    """Makes other rows where its batch is None."""

    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        return self.rows(x, edge_index) if batch is None else self.rows(2 * x, edge_index)


class OfTypes(WithConvs):
    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.rows(x, edge_index, edge_type)


class Pairs(WithConvs):
    def forward(self, x: Any, edge_index: Any, pairs: Any) -> Any:
        rows = self.rows(x, edge_index)
        return rows[pairs[0]] * rows[pairs[1]]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a batch that rows read": (ByBatch, r"global_mean_pool \(test_unread.py:\d+\) gives a row per graph"),
    "None": (WhereNone, r"What it makes depends on whether batch is None"),
    "types as weights": (OfTypes, r"says how many types edge_type has"),
    "pairs": (Pairs, r"Pairs.forward needs pairs.*pairs is read by getitem \(test_unread.py:\d+\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    make, reason = REFUSED[what]
    with pytest.raises(ExportError, match=reason):
        export_model(make().eval(), tmp_path)


class Batched(pyg.MessagePassing):
    """A conv that takes a batch, which it reads in training alone."""

    def forward(self, x: Any, edge_index: Any, batch: Any = None) -> Any:
        if self.training and batch is not None:
            return x
        return self.propagate(edge_index, x=x)


class OfBatch(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = Batched(**options)

    def forward(self, x: Any, edge_index: Any, batch: Any = None) -> Any:
        return self.conv(x, edge_index, batch=batch)


class OfWiderRows(OfBatch):
    def forward(self, x: Any, edge_index: Any, **more: Any) -> Any:
        return self.conv(x.view(-1, 2, 2), edge_index, **more).flatten(1)


def test_a_batch_that_a_conv_of_ones_own_takes_is_no_weight(tmp_path: Path) -> None:
    model = export_model(OfBatch(), tmp_path / "M", features=4)
    assert isinstance(model, Model)
    assert [layer.type for layer in model.layers] == ["propagation"]


def test_options_that_a_conv_of_wider_rows_does_not_take_are_an_error_of_the_export(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"rows as \(-1, 2, 2\) are not supported"):
        export_model(OfWiderRows(node_dim=0), tmp_path / "M", features=4)


class OfAllMessages(Batched):
    def message(self, x_j: Any) -> Any:
        return x_j - x_j.mean()


def test_a_conv_of_ones_own_without_attributes_is_refused_for_what_it_does(tmp_path: Path) -> None:
    module = OfBatch()
    module.conv, module.unused = OfAllMessages(), nn.Embedding(3, 4)
    with pytest.raises(ExportError, match="mean reads more than one vertex or edge at once"):
        export_model(module, tmp_path / "M", features=4)


class OfTwoRows(pyg.MessagePassing):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, size=(len(x[0]), len(x[1])))

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        return x_j * edge_attr[:, :1]


def test_a_width_of_attributes_that_is_given_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="does not run with edge_features=3 and one tensor of rows x"):
        export_model(OfTwoRows(), tmp_path / "M", features=4, edge_features=3)
