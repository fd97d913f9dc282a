"""A conv with functions of what its edges have in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleDict


class EncodedConv(Module):
    """A conv that is handed functions of its edges, of their weights and attributes, and of sizes of the graph."""

    def __init__(
        self,
        conv: Any,
        encoders: Mapping[str, Module],
        handed: Mapping[str, str],
        constants: Any,
        edges: Module | None = None,
    ) -> None:
        """Take the conv; functions by parameter; which of weights and attributes others get; and what makes its edges.

        A function is given those of `edge_index`, its rows `end_0` and `end_1`, `edge_weight`, `edge_attr`, `vertices`
        and `edges` that it reads, the last two of which are numbers. Without one the edges are those of the graph.
        """
        super().__init__()
        self.conv, self.encoders, self.edges = conv, ModuleDict(encoders), edges
        self._handed, self._constants = dict(handed), dict(constants)

    @property
    def flow(self) -> str:
        """The direction of messages."""
        return str(self.conv.flow)

    @property
    def decomposed_layers(self) -> int:
        """The number of layers that the conv takes apart."""
        return int(self.conv.decomposed_layers)

    @property
    def in_channels(self) -> Any:
        """The width of its rows, as the conv says it."""
        return getattr(self.conv, "in_channels", None)

    @property
    def hands_attributes(self) -> bool:
        """True if the conv gets attributes as they are, too."""
        return "edge_attr" in self._handed.values()

    def given(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> dict[str, Any]:
        """Return what functions are given."""
        of_edges = {"edge_index": edge_index, "edge_weight": edge_weight, "edge_attr": edge_attr}
        of_edges |= {"end_0": edge_index[0], "end_1": edge_index[1]}
        return of_edges | {"vertices": (x if isinstance(x, Tensor) else x[1]).size(0), "edges": edge_index.size(1)}

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
        """Return the rows that the conv gives."""
        of_edges = self.given(x, edge_index, edge_weight, edge_attr)
        made = {name: encoder(**of_edges) for name, encoder in self.encoders.items()}
        made |= {name: of_edges[what] for name, what in self._handed.items()}
        edges = edge_index if self.edges is None else self.edges(**of_edges)
        return self.conv(x, edges, **made, **self._constants)


class FrontedConv(EncodedConv):
    """A conv that is handed a function of rows with more dimensions than a row of each vertex, as DNAConv is."""

    def __init__(self, conv: Any, parameter: str, front: Module) -> None:
        """Take the conv, the parameter that gets the result, and the function of rows0, rows1 and so on."""
        super().__init__(conv, {}, {}, {})
        self.front, self._parameter = front, parameter

    def forward(self, **given: Any) -> Any:  # type: ignore[override]
        """Return the rows that the conv gives."""
        rows = {name: one for name, one in given.items() if name.startswith("rows")}
        others = {name: one for name, one in given.items() if name not in rows}
        return self.conv(**{self._parameter: self.front(**rows)}, **others)


class FunctionOfEdges(EncodedConv):
    """A function of rows and edges that stands in a forward, such as rows beside degrees or a sum over neighbours."""

    def __init__(self, function: Module) -> None:
        """Take the function of rows0, and of what EncodedConv gives others."""
        super().__init__(Module(), {}, {}, {})
        self.function = function

    @property
    def flow(self) -> str:
        """The direction of messages that are taken."""
        return "source_to_target"

    @property
    def decomposed_layers(self) -> int:
        """The number of layers that it takes apart."""
        return 1

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
        """Return the rows that it makes."""
        return self.function(rows0=x, **self.given(x, edge_index, edge_weight, edge_attr))
