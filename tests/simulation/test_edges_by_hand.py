"""Simulated jobs of forwards that pick edges by type or compute along them by hand: PyG's rows after every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.kinds.model import build_kinds_model  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.kinds_by_hand import METADATA, WIDTHS, ByHand, attention, each_relation, gates  # noqa: E402
from tests.support.simulation.module_cases import hold  # noqa: E402


class OfTypes(nn.Module):
    """Convs of three kinds, each on the edges of a type, two with what these have."""

    num_relations = 3

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.GCNConv(4, 4)
        self.second = pyg.GraphConv(4, 4, aggr="max")
        self.third, self.encoder = pyg.GINEConv(nn.Linear(4, 4)), nn.Linear(2, 4)

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_weight: Any, edge_attr: Any) -> Any:
        made = self.encoder(edge_attr)
        of_first, of_second = edge_type == 0, (edge_type == 1).nonzero().view(-1)
        x = self.first(x, edge_index[:, of_first], edge_weight[of_first]) + self.second(x, edge_index[:, of_second])
        return self.third(x.tanh(), edge_index[:, edge_type == 2], made[edge_type == 2])


def test_edges_that_are_picked_by_their_types(tmp_path: Path) -> None:
    module = of.randomised(OfTypes())
    model: Any = export_model(module, tmp_path)
    module.double()

    def run(given: Any) -> Any:
        types = [torch.full((one.shape[1],), j) for j, one in enumerate(given.edges.values())]
        weights, edges = torch.cat(list(given.weights.values())), torch.cat(list(given.edges.values()), 1)
        attributes = [one if one.shape[1] else one.new_zeros(len(one), 2) for one in given.attributes.values()]
        (x,) = given.x.values()
        return module(x, edges, torch.cat(types), weights, torch.cat(attributes))

    hold(model, run, (1, 2))


@pytest.mark.parametrize("function", [each_relation, attention])
def test_rows_along_relations(function: Any, tmp_path: Path) -> None:
    module = of.randomised(ByHand(function))
    model: Any = export_model(module, tmp_path, metadata=METADATA, features=WIDTHS)
    module.double()
    kind = model.out[0]

    def run(given: Any) -> Any:
        made = module(given.x, given.edges)
        return made[kind] if isinstance(made, dict) else made

    of_kind = build_kinds_model(**model.declaration() | {"out": [kind]}, weights=model.weights)
    hold(of_kind, run, (1, 2))


class Gated(nn.Module):
    """Two convs, and gates that come together at the sources of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = pyg.GraphConv(4, 3), pyg.GraphConv(4, 3)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return gates(self, x, edge_index, edge_weight)


def test_rows_that_come_together_at_sources(tmp_path: Path) -> None:
    module = of.randomised(Gated())
    model: Any = export_model(module, tmp_path)
    module.double()

    def run(given: Any) -> Any:
        (x,), edges, weights = given.x.values(), *(next(iter(one.values())) for one in (given.edges, given.weights))
        return module(x, edges, weights)

    hold(model, run, (1, 2))
