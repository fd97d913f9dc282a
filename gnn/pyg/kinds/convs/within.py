"""A conv on a relation within one kind that is more than one conv: hops, and layers of rows around them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch.nn import Module
from torch_geometric.nn import ChebConv, LGConv, MessagePassing
from typing_extensions import override

from freshet.gnn.declarations import Conv
from freshet.gnn.pyg.encoded_conv import EncodedConv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.hops import is_of_hops, opened_hops
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.places import nodes_in
from freshet.gnn.pyg.forward.samples import Samples
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.kinds.widths import is_read_here, known_width
from freshet.gnn.pyg.own.conv import end_widths, opened_own, parts_between, relation_conv_of
from freshet.gnn.pyg.own.lines import steps_of
from freshet.gnn.pyg.own.parts import TARGET
from freshet.gnn.pyg.steps import ConvCall, Hop, Step
from freshet.gnn.rows.jumps import CURRENT, Join, Keep, Operation

_ONE = (ChebConv, LGConv)
"""Convs of hops that are not opened: the first is refused, the second is one hop."""


class WithinRelation(Operations):
    """Operations on rows of one kind, whose hops and convs go along the edges of one relation."""

    def __init__(self, ops: KindsOperations, kinds: Metadata, place: str, relation: int) -> None:
        """Take where operations are noted; `place` is for messages."""
        super().__init__(())
        self._noted, self._kinds, self._place, self._relation = ops, kinds, place, relation

    @override
    def add(self, rows: str, step: Step, *, writes: bool = False) -> str:
        if isinstance(step.op, MessagePassing | EncodedConv):
            opened = opened_within(self._noted, self._kinds, (self._place, self._relation), step, [rows])
            if opened is not None:
                return opened
        if isinstance(step.op, Hop | Conv | MessagePassing | EncodedConv):
            return self._noted.conv(self._place, OnRelation(self._relation, rows, rows, step))
        return self._noted.add(rows, step, writes=writes)

    @override
    def join(self, name: str, operation: Operation, rows: Sequence[str]) -> str:
        return self._noted.join(name, operation, rows)

    @override
    def function(self, name: str, module: Module, rows: Sequence[str]) -> str:
        return self._noted.function(name, module, rows)

    def line(self, rows: str, steps: Iterable[Step], known: Iterable[str] = ()) -> str:
        """Note steps that stand in a line behind these rows; returns the name of what the last one makes.

        `known` are names of other rows that they read.
        """
        kept = {name: name for name in known}
        for step in steps:
            if isinstance(step.op, Keep):
                kept[step.op.name] = rows
            elif isinstance(step.op, Join):
                of = [rows if name == CURRENT else kept[name] for name in step.op.of]
                rows = of[0] if len(of) == 1 else self.join(step.name, step.op.operation, of)
            else:
                rows = self.add(rows, step)
        return rows


def relation_within(samples: Samples, kinds: Metadata, node: Any) -> int | None:
    """Return the one relation within one kind whose edges, and what they have, a module is called with.

    None where it is called with no edges, -1 for those of several relations or between two kinds.
    """
    what = ("edges", "weights", "attributes")
    found = [samples.relation_of(one, given) for one in what for given in node.all_input_nodes]
    relations = {number for number in found if number is not None}
    if not relations:
        return None
    relation = relations.pop()
    return -1 if relations or len(set(kinds.ends(relation))) > 1 else relation


def called_with(
    node: Any,
    op: Any,
    found: Mapping[str, Mapping[str, int]],
    first: tuple[str, ...],
    *,
    pair: bool,
    two_kinds: bool,
) -> ConvCall:
    """Return how a conv that is run is called; `found` are its parameters of edges, weights and attributes.

    `first`: those of rows of other layers.
    """
    arguments = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments
    edges, weights, attributes = (next(iter(found[what]), None) for what in ("edges", "weights", "attributes"))
    assert edges is not None  # by the caller
    constants = {name: value for name, value in arguments.items() if not list(nodes_in(value))}
    rows = next(iter(arguments))
    several = (rows, *first) if first else ()
    return ConvCall(rows, edges, weights, attributes, constants, pair, two_kinds, parameters=several)


def opened_within(
    ops: KindsOperations,
    kinds: Metadata,
    where: tuple[str, int],
    step: Step,
    rows: Sequence[str],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> str | None:
    """Note a conv that is called with rows of one kind as what it does one after the other; returns its rows' name.

    `where`: its place for messages, and its relation. `rows`: those that it reads as x, and those of other layers, as
    the first for GCN2Conv. `options`: constants that it is called with. None for a conv that is one conv on a
    relation, and for one that cannot be read so either.

    Raises: ExportError for an option of a conv of hops that cannot be taken over.
    """
    if type(step.op) in _ONE:
        return None
    width = _width(ops, rows[0], kinds) if is_read_here(step.op) else None
    if is_read_here(step.op) and len(rows) == 1 and _is_one(where[0], step, width, width):
        return None
    within = WithinRelation(ops, kinds, *where)
    if is_of_hops(step.op):
        weighted = step.edge_weights
        return opened_hops(within, step.name, step.op, list(rows), edge_weights=weighted, options=options)
    if not is_read_here(step.op):
        return None
    try:
        if len(rows) > 1 and step.given is not None:
            joined = tuple((one, _width(ops, one, kinds) or 0) for one in rows)
            step = step._replace(given=step.given._replace(joined=joined, pair=False))
            return within.line(rows[0], opened_own(step, 0), rows)
        return within.line(rows[0], opened_own(step, width))
    except ExportError:  # of which the conversion to one conv says more
        return None


def opened_between(ops: KindsOperations, kinds: Metadata, place: str, of: OnRelation) -> str | None:
    """Note a conv between two kinds that has several aggregates, of which one is attention, as a conv for each.

    Returns the name of its rows; None for a conv that is one conv on a relation, and for one that cannot be read so.
    """
    if of.target is None or not is_read_here(of.step.op) or of.step.given is None:
        return None
    source, target = _width(ops, of.source, kinds), _width(ops, of.target, kinds)
    try:
        ends = end_widths(of.step)
        source, target = source or ends[0], target or ends[1]
        if source is None or target is None or _is_one(place, of.step, source, target):
            return None
        parts = parts_between(of.step, source, target)
    except ExportError:  # of which the conversion to one conv says more
        return None
    names = {TARGET: of.target}
    for name, (layer, weights) in parts.convs.items():
        step = Step(f"{of.step.name}.{name}", layer, weights=weights)
        names[name] = ops.conv(place, of._replace(step=step))
    within = WithinRelation(ops, kinds, place, of.relation)
    steps = steps_of(of.step.name, parts.behind(names), begins=False)
    return within.line(of.target, steps, names.values())


def _width(ops: KindsOperations, rows: str, kinds: Metadata) -> int | None:
    try:
        return known_width(ops, rows, kinds)
    except ExportError:  # of a conv before, which the conversion of that one says
        return None


def _is_one(place: str, step: Step, source: int | None, target: int | None) -> bool:
    """Return whether a conv that is read is one conv on a relation; widths are those of its rows, where known."""
    try:
        relation_conv_of(place, step, source, target)
    except ExportError:
        return False
    return True
