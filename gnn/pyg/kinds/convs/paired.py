"""A conv that is called with several pairs of rows of both ends of a relation, as features and positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.encoded_conv import EncodedConv, EndColumns
from freshet.gnn.pyg.steps import ConvCall, Step


class PairedConv(EncodedConv):
    """A conv that gets columns of one pair of rows as several pairs, in the order of its parameters."""

    def __init__(
        self,
        conv: MessagePassing,
        call: ConvCall,
        pairs: Mapping[str, tuple[EndColumns, EndColumns]],
        widths: tuple[int | None, int | None],
    ) -> None:
        """Take the conv, how it is called, the columns of both ends by parameter, and how wide rows are if known."""
        super().__init__(conv, {}, {}, call.constants)
        self._call, self._pairs, self._widths = call, dict(pairs), widths

    @property
    def in_channels(self) -> tuple[int | None, int | None]:
        """The widths of the rows of sources and targets."""
        return self._widths

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
        """Return the rows that the conv gives."""
        given: dict[str, Any] = {name: (source.of(x), target.of(x)) for name, (source, target) in self._pairs.items()}
        call = self._call
        of_edges = ((call.edges, edge_index), (call.weights, edge_weight), (call.attributes, edge_attr))
        given |= {name: one for name, one in of_edges if name is not None}
        return self.conv(**given, **self._constants)


def paired(
    step: Step, pairs: Mapping[str, tuple[EndColumns, EndColumns]], widths: tuple[int | None, int | None]
) -> Step:
    """Return a step whose conv reads one pair of rows, of which its parameters get columns."""
    call = step.given
    assert call is not None  # by the caller
    weights, attributes = call.weights and "edge_weight", call.attributes and "edge_attr"
    of_one = ConvCall("x", "edge_index", weights, attributes, pair=True, two_kinds=call.two_kinds)
    return step._replace(op=PairedConv(step.op, call, pairs, widths), given=of_one)
