"""FiLMConv of types of edges as a conv for each type, and a function of the vertex's own row."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import FiLMConv, MessagePassing

from freshet.gnn.pyg.steps import ConvCall, Step


def is_film_of_types(module: Any) -> bool:
    """Return whether a module is PyG's FiLMConv of several types of edges."""
    return type(module) is FiLMConv and module.num_relations > 1


class FilmOfType(MessagePassing):
    """The aggregate of a FiLMConv over the edges of one type."""

    def __init__(self, conv: FiLMConv, number: int) -> None:
        """Take the conv and the number of the type."""
        super().__init__(aggr=copy.deepcopy(conv.aggr_module), flow=conv.flow)
        self.lin, self.film, self.act = conv.lins[number], conv.films[number], conv.act

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return the aggregates.

        Shapes: x (vertices, in), or a pair of those of sources and targets; edge_index (2, edges) of the type.
        """
        sources, targets = (x, x) if isinstance(x, Tensor) else x
        rows = self.lin(sources)
        beta, gamma = self.film(targets).split(rows.size(1), dim=-1)
        sizes = sources.size(0), targets.size(0)
        return self.propagate(edge_index, x=(rows, None), beta=(None, beta), gamma=(None, gamma), size=sizes)

    def message(self, x_j: Any, beta_i: Any, gamma_i: Any) -> Any:
        """Return the rows of sources, scaled and shifted by their targets."""
        out = gamma_i * x_j + beta_i
        return out if self.act is None else self.act(out)


class FilmSkip(Module):
    """The part of a FiLMConv that reads the own row of a vertex."""

    def __init__(self, conv: FiLMConv) -> None:
        """Take the conv."""
        super().__init__()
        self.lin, self.film, self.act = conv.lin_skip, conv.film_skip, conv.act

    def forward(self, rows0: Any) -> Any:
        """Return rows. Shapes: rows0 (vertices, in)."""
        rows = self.lin(rows0)
        beta, gamma = self.film(rows0).split(rows.size(1), dim=-1)
        out = gamma * rows + beta
        return out if self.act is None else self.act(out)


def films_of_types(step: Step, *, pair: bool) -> list[Step]:
    """Return a conv for each type, whose results and `FilmSkip` are added up; `pair`: between two kinds."""
    conv: Any = step.op
    given = ConvCall("x", "edge_index", pair=True, two_kinds=True) if pair else None
    return [Step(f"{step.name}.{j}", FilmOfType(conv, j), given=given) for j in range(conv.num_relations)]
