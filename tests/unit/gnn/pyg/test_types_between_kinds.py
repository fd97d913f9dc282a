"""Convs that read the type of each edge, all of which lead from vertices of one kind to those of another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.simulation.module_cases import KindInputs, hold  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

RATES = [("user", f"stars{i}", "film") for i in range(3)]
METADATA = (["user", "film"], RATES)
WIDTHS = {"user": 3, "film": 5}


class Rated(nn.Module):
    """Films by the ratings of users, each a type of edges."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.lin, self.conv, self.head = nn.Linear(WIDTHS["film"], 4), conv, nn.Linear(6, 2)

    def forward(self, x_dict: Any, edge_index: Any, edge_type: Any) -> Any:
        films = self.lin(x_dict["film"]).tanh()
        return self.head(self.conv((x_dict["user"], films), edge_index, edge_type).relu())


def rated(given: KindInputs, module: Any) -> Any:
    types = torch.cat([torch.full((one.shape[1],), j) for j, one in enumerate(given.edges.values())])
    return module(given.x, torch.cat(list(given.edges.values()), dim=1), types)


CONVS: dict[str, Callable[[], Any]] = {
    "sums by bases": lambda: pyg.RGCNConv((3, 4), 6, 3, num_bases=2, aggr="sum"),
    "means of blocks": lambda: pyg.RGCNConv((3, 4), 6, 3, num_blocks=3),
    "maxima without roots": lambda: pyg.FastRGCNConv((3, 4), 6, 3, root_weight=False),
    "FiLM": lambda: pyg.FiLMConv((3, 4), 6, 3, act=nn.Sigmoid(), aggr="max"),
}


@pytest.mark.parametrize("name", CONVS)
def test_is_the_conv_after_each_epoch(name: str, tmp_path: Path) -> None:
    module = of.randomised(Rated(CONVS[name]()))
    model: Any = export_model(module, tmp_path, metadata=METADATA, features=WIDTHS)
    assert [one.ends for one in model.relations] == RATES
    exact = module.double()
    hold(model, lambda given: rated(given, exact), (1,))


class Refused(Rated):
    def forward(self, x_dict: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.conv((x_dict["film"], x_dict["user"]), edge_index, edge_type)


class OfRows(Rated):
    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.conv((x["user"], x["film"]), edge_index, edge_type)


BACK = ("film", "by", "user")


@pytest.mark.parametrize(
    ("module", "options", "reason"),
    [
        (lambda: Rated(pyg.RGATConv(3, 6, 3)), {}, "called with two kinds of rows: give it one, x"),
        (lambda: Refused(pyg.RGCNConv((5, 3), 6, 3)), {}, "called with two kinds of rows"),
        (lambda: Rated(CONVS["FiLM"]()), {"metadata": (["user", "film"], [*RATES[:2], BACK])}, "the same ones"),
        (lambda: OfRows(CONVS["FiLM"]()), {}, r"expected forward\(x_dict, edge_index, edge_type\)"),
        (lambda: Rated(CONVS["FiLM"]()), {"metadata": (["user", "film"], RATES[:2])}, "num_relations=3, but there"),
    ],
)
def test_others_are_refused(module: Any, options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=reason):
        export_model(module(), tmp_path, **({"metadata": METADATA, "features": WIDTHS} | options))
