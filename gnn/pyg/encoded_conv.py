"""A conv with functions of what its edges have in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module, ModuleDict

VERTICES = "vertices", "vertices"
"""Names of the numbers of sources and targets that are of one kind."""


class EncodedConv(Module):
    """A conv that is handed functions of its edges, of their weights and attributes, and of sizes of the graph."""

    def __init__(
        self,
        conv: Any,
        encoders: Mapping[str, Module],
        handed: Mapping[str, str],
        constants: Any,
        edges: Module | None = None,
        sizes: tuple[str, str] = VERTICES,
    ) -> None:
        """Take the conv; functions by parameter; which of weights and attributes others get; and what makes its edges.

        A function is given those of `edge_index`, its rows `end_0` and `end_1`, `edge_weight`, `edge_attr`, and of the
        numbers of sources and targets (`sizes`: what they are called) and of `edges` that it reads. Without one the
        edges are those of the graph.
        """
        super().__init__()
        self._sizes = sizes
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
        ends = (x, x) if isinstance(x, Tensor) else x
        sizes = {name: rows.size(0) for name, rows in zip(self._sizes, ends, strict=True)}
        return of_edges | sizes | {"edges": edge_index.size(1)}

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


class EndColumns(NamedTuple):
    """EndColumns of the rows of an end, 0 for sources and 1 for targets; width 0 for all. flat: one number of each."""

    end: int
    begin: int = 0
    width: int = 0
    flat: bool = False

    def of(self, x: Any) -> Any:
        """Return these columns of rows, or of a pair of them."""
        rows = x if isinstance(x, Tensor) else x[self.end]
        if self.flat:
            return rows[:, self.begin]
        return rows[:, self.begin : self.begin + self.width] if self.width else rows


class FunctionOfEdges(EncodedConv):
    """A function of rows and edges that stands in a forward, such as rows beside degrees or a sum over neighbours."""

    def __init__(
        self,
        function: Module,
        sizes: tuple[str, str] = VERTICES,
        columns: Mapping[str, EndColumns] = MappingProxyType({}),
        *,
        turned: bool = False,
    ) -> None:
        """Take the function of rows0, rows1 and so on, and of what EncodedConv gives others.

        `columns`: those that each of its parameters of rows gets of x; all columns without. A function of the rows of
        several layers is given them by name. `turned`: whether it is given edges the other way round.
        """
        super().__init__(Module(), {}, {}, {}, sizes=sizes)
        self._turned = turned
        self.function, self._columns = function, dict(columns) or {"rows0": EndColumns(0)}

    @property
    def reads_both_ends(self) -> bool:
        """True for a function of rows of sources and of targets, which are given as a pair."""
        return len({one.end for one in self._columns.values()}) > 1

    @property
    def flow(self) -> str:
        """The direction of messages that are taken."""
        return "source_to_target"

    @property
    def decomposed_layers(self) -> int:
        """The number of layers that it takes apart."""
        return 1

    def forward(
        self, x: Any = None, edge_index: Any = None, edge_weight: Any = None, edge_attr: Any = None, **rows: Any
    ) -> Any:
        """Return the rows that it makes."""
        if x is not None:
            rows = {name: one.of(x) for name, one in self._columns.items()}
        x = rows["rows0"] if x is None else x
        edge_index = edge_index.flip(0) if self._turned else edge_index
        return self.function(**rows, **self.given(x, edge_index, edge_weight, edge_attr))
