"""A conv that is being opened: its hops, linear layers, products and sums are noted one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from freshet.gnn.declarations import Linear
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.functions import Made, arithmetic
from freshet.gnn.pyg.steps import Hop, Step
from freshet.gnn.rows.jumps import Operation
from freshet.gnn.rows.layer import Layer


class OpenedConv(NamedTuple):
    """A conv that is being opened: where its operations are noted, its name in the module, and the module itself.

    weighted: whether the module is called with edge weights. aggr: the name of its aggregator. options: constants that
    it is called with.
    """

    ops: Operations
    name: str
    module: Any
    weighted: bool
    aggr: Any
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def width(self) -> int | None:
        """The width of the rows that it reads; of a conv that the first rows have sized (-1), its linear layer's."""
        first = next((one for one in self.module.modules() if "Linear" in type(one).__name__), None)
        found = self.module.in_channels if self.module.in_channels > 0 else getattr(first, "in_channels", -1)
        return found if found > 0 else None

    def hop(self, rows: str, number: int, *, channels: int | None = None) -> str:
        """Note a hop as the module's options have it; returns the name of its rows, as all of these do."""
        normalize = bool(getattr(self.module, "normalize", True))
        loops = bool(getattr(self.module, "add_self_loops", False)) and normalize
        return self.hop_of(rows, number, Hop(normalize, loops, channels, self.aggr))

    def hop_of(self, rows: str, number: int, op: Hop, *, weighted: bool | None = None) -> str:
        """Note a hop; `weighted`: whether it reads edge weights, if not as the module does."""
        return self.ops.add(rows, Step(f"{self.name}.hop{number}", op, self.weighted if weighted is None else weighted))

    def layer(self, rows: str, layer: Layer, weights: dict[str, np.ndarray], label: str) -> str:
        """Note a layer."""
        return self.ops.add(rows, Step(f"{self.name}.{label}", layer, self.weighted, weights=weights))

    def linear(self, rows: str, weight: np.ndarray, label: str, bias: np.ndarray | None = None) -> str:
        """Note a linear layer of these weights."""
        out_channels, in_channels = weight.shape
        layer = Linear(in_channels=in_channels, out_channels=out_channels, bias=bias is not None)
        given = {"weight": weight} | ({} if bias is None else {"bias": bias})
        return self.layer(rows, layer, {name: value.astype(np.float32) for name, value in given.items()}, label)

    def lin(self, rows: str, label: str, module: Any) -> str:
        """Note a linear layer of the module."""
        return self.ops.add(rows, Step(f"{self.name}.{label}", module))

    def scaled(self, rows: str, factor: float, label: str) -> str:
        """Note a product with a constant."""
        return self._made(rows, arithmetic("mul", factor, rows_first=True), label)

    def shifted(self, rows: str, bias: Any, label: str) -> str:
        """Note a sum with constants, if there are any."""
        return rows if bias is None else self._made(rows, arithmetic("add", bias, rows_first=True), label)

    def joined(self, operation: Operation, rows: Sequence[str], label: str) -> str:
        """Note what makes one row of several."""
        return self.ops.join(f"{self.name}.{label}", operation, rows)

    def added(self, one: str, other: str, label: str) -> str:
        """Note the sum of two rows."""
        return self.joined("sum", [one, other], label)

    def _made(self, rows: str, layers: list[Made], label: str) -> str:
        for layer, weights in layers:
            rows = self.layer(rows, layer, weights, label)
        return rows
