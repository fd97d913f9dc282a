"""A conv on a relation within one kind that is more than one conv: hops, and layers of rows around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch_geometric.nn import ChebConv, LGConv
from typing_extensions import override

from freshet.gnn.declarations import Conv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.hops import is_of_hops, opened_hops
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.kinds.widths import is_read_here
from freshet.gnn.pyg.own.conv import opened_own, relation_conv_of
from freshet.gnn.pyg.steps import Hop, Step
from freshet.gnn.rows.jumps import CURRENT, Join, Keep, Operation

_ONE = (ChebConv, LGConv)
"""Convs of hops that are not opened: the first is refused, the second is one hop."""


class WithinRelation(Operations):
    """Operations on rows of one kind, whose hops and convs go along the edges of one relation."""

    def __init__(self, ops: KindsOperations, place: str, relation: int) -> None:
        """Take where operations are noted; `place` is for messages."""
        super().__init__(())
        self._noted, self._place, self._relation = ops, place, relation

    @override
    def add(self, rows: str, step: Step, *, writes: bool = False) -> str:
        if isinstance(step.op, Hop | Conv):
            return self._noted.conv(self._place, OnRelation(self._relation, rows, rows, step))
        return self._noted.add(rows, step, writes=writes)

    @override
    def join(self, name: str, operation: Operation, rows: Sequence[str]) -> str:
        return self._noted.join(name, operation, rows)

    def line(self, rows: str, steps: Iterable[Step]) -> str:
        """Note steps that stand in a line behind these rows; returns the name of what the last one makes."""
        kept = dict[str, str]()
        for step in steps:
            if isinstance(step.op, Keep):
                kept[step.op.name] = rows
            elif isinstance(step.op, Join):
                of = [rows if name == CURRENT else kept[name] for name in step.op.of]
                rows = of[0] if len(of) == 1 else self.join(step.name, step.op.operation, of)
            else:
                rows = self.add(rows, step)
        return rows


def opened_within(
    ops: KindsOperations, place: str, relation: int, step: Step, rows: Sequence[str], options: Mapping[str, Any]
) -> str | None:
    """Note a conv that is called with rows of one kind as what it does one after the other; returns its rows' name.

    `rows`: those that it reads as x, and for GCN2Conv those of the first layer. `options`: constants that it is called
    with. None for a conv that is one conv on a relation, and for one that cannot be read so either.

    Raises: ExportError for an option of a conv of hops that cannot be taken over.
    """
    if type(step.op) in _ONE or (is_read_here(step.op) and len(rows) == 1 and _is_one(place, step)):
        return None
    within = WithinRelation(ops, place, relation)
    if is_of_hops(step.op):
        weighted = step.edge_weights
        return opened_hops(within, step.name, step.op, list(rows), edge_weights=weighted, options=options)
    if not is_read_here(step.op):
        return None
    try:
        return within.line(rows[0], opened_own(step, None))
    except ExportError:  # of which the conversion to one conv says more
        return None


def _is_one(place: str, step: Step) -> bool:
    """Return whether a conv that is read is one conv on a relation."""
    try:
        relation_conv_of(place, step, None, None)
    except ExportError:
        return False
    return True
