"""A conv with functions of what its edges have in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn import Module, ModuleDict


class EncodedConv(Module):
    """A conv that is handed functions of the weights and attributes of its edges."""

    def __init__(self, conv: Any, encoders: Mapping[str, Module], handed: Mapping[str, str], constants: Any) -> None:
        """Take the conv; functions of `edge_weight` and `edge_attr` by parameter; and which of both others get."""
        super().__init__()
        self.conv, self.encoders = conv, ModuleDict(encoders)
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

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
        """Return the rows that the conv gives."""
        of_edges = {"edge_weight": edge_weight, "edge_attr": edge_attr}
        made = {name: encoder(**of_edges) for name, encoder in self.encoders.items()}
        made |= {name: of_edges[what] for name, what in self._handed.items()}
        return self.conv(x, edge_index, **made, **self._constants)


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
