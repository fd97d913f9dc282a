"""MessageConv in a relation: programs make messages of the rows of two kinds, and of their aggregate the new row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.convs.program import BesideStep, RowsStep, made_at
from freshet.gnn.declarations import Linear, MessageConv
from freshet.gnn.kind_layers.columns import RowPiece, as_it_is, linear_piece
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan
from freshet.gnn.layers.chain import transposed
from freshet.gnn.layers.edge_conv import WIDENING
from freshet.gnn.layers.own.message_conv import aggregated
from freshet.gnn.layers.own.program import DeclaredMessage, ProgramRows, Values
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import NetworkSynopsis, network_of


class MessageRelation(RelationConvPlan):
    """x_v' = update(aggr_u message(x_u, x_v, w_uv, e_uv), x_v).

    What a message reads of one end alone is made once per vertex, and sent; a message that reads nothing else is kept
    by differences. Others are made edge by edge of what both ends sent.
    """

    def __init__(self, spec: MessageConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec)
        self.reads_count = "mean" in spec.kinds
        self.declared = DeclaredMessage(spec, model.weights_of(prefix))
        self._of_sum: ProgramRows | None = None
        self._update: ProgramRows | None = None
        ends = _Ends(spec, model, f"{prefix}.program")
        if (last := spec.sent) is not None:
            self.synopsis = synopsis_of(spec.aggr, self.edge.weighted)
            self._send(spec, ends, last)
        else:
            self._make_by_edge(spec, ends)
        if spec.update is not None:
            self._update = ProgramRows(spec.update, model, f"{prefix}.update", [str(len(spec.update) - 1)])
            self.own = (as_it_is(spec.target_width),) if "own" in spec.update_reads else ()

    def _send(self, spec: MessageConv, ends: _Ends, last: str) -> None:
        """Make messages before sending, or of the aggregate, where they are linear and wider than rows."""
        widens = ends.width(last) > spec.in_channels
        if last == spec.last and spec.is_linear and self.synopsis.is_linear and widens:
            self._of_sum, self.source = ends.rows([last]), as_it_is(spec.in_channels)
        else:
            self.source = ends.piece("source", [last])

    def _make_by_edge(self, spec: MessageConv, ends: _Ends) -> None:
        source, target = ends.made("source", spec.in_channels), ends.made("target", spec.target_width)
        made = _EndsMessage(spec, ends, source, target)
        self.source = ends.piece("source", source) if source else as_it_is(spec.in_channels)
        self.target = ends.piece("target", target) if target else None
        message, inner = aggregated(spec, made)
        columns = (0, self.source.width if source else 0), None if self.target is None else (0, self.target.width)
        self.network = network_of(message, *columns, made.multiplications, self.edge)
        self.synopsis = NetworkSynopsis(inner, self.network, self.source.width)

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return what the update makes of the aggregate and of the vertex, or the aggregate."""
        out = np.array(self.synopsis.read(agg, count), np.float32, order="C")
        if self._of_sum is not None:
            out = self._of_sum.of({"source": out}, len(out))
        if self._update is None:
            return out
        values: Values = {"aggregate": out} | dict(zip(("own",), own, strict=bool(self.own)))
        return np.array(self._update.of(values, len(out)), np.float32, order="C")


class _Ends(NamedTuple):
    """The program of a conv, and what is made of the rows of one end of an edge."""

    spec: MessageConv
    model: WeightedModel
    prefix: str

    def width(self, name: str) -> int:
        """Return the width of an input that is an end, or of a step."""
        widths = {"source": self.spec.in_channels, "target": self.spec.target_width}
        return widths[name] if name in widths else self.spec.widths[int(name)]

    def made(self, end: str, width: int) -> list[str]:
        """Return the names of what is made once per vertex of that end; its row, where the rest is much wider."""
        found = made_at(self.spec.program, self.spec.last, end)
        return [end] if sum(map(self.width, found)) > WIDENING * width else found

    def rows(self, names: Sequence[str]) -> ProgramRows:
        """Return what makes the rows of steps."""
        return ProgramRows(self.spec.program, self.model, self.prefix, names)

    def piece(self, end: str, names: Sequence[str]) -> RowPiece:
        """Return the columns of a vertex with the rows of steps that read that end alone."""
        if len(names) == 1:
            name = self._unmoved(names[0])
            if name == end:
                return as_it_is(self.width(end))
            step = self.spec.program[int(name)]
            if isinstance(step, RowsStep) and step.of == (end,) and isinstance(step.layer, Linear):
                weights = self.model.weights_of(f"{self.prefix}.{name}")
                return linear_piece(transposed(weights["weight"]), weights.get("bias"))
        rows = self.rows(names)
        key = self.prefix, end, tuple(names)
        return RowPiece(key, sum(map(self.width, names)), make=lambda x: rows.of({end: x}, len(x)))

    def _unmoved(self, name: str) -> str:
        """Return the name of the rows that a step gives as they are."""
        while name.isdigit() and isinstance(step := self.spec.program[int(name)], BesideStep) and len(step.of) == 1:
            name = step.of[0]
        return name


class _EndsMessage:
    """Messages of what both ends have made and sent. Shapes: see MessageMaker."""

    def __init__(self, spec: MessageConv, ends: _Ends, source: Sequence[str], target: Sequence[str]) -> None:
        """Take the names of what either end sends."""
        known = {*source, *target}
        self._rows = ProgramRows(spec.program, ends.model, ends.prefix, [spec.last], known=known)
        self._ends = [[(name, ends.width(name)) for name in names] for names in (source, target)]
        self.width, self.multiplications = spec.message_width, self._rows.multiplications

    def message(self, source: Rows, target: Rows, weight: Rows, attr: Rows) -> Rows:
        """Return the messages of n edges, (n, width) float32."""
        values: Values = {"weight": weight, "attr": attr}
        for rows, names in zip((source, target), self._ends, strict=True):
            begin = 0
            for name, width in names:
                values[name] = rows[:, begin : begin + width]
                begin += width
        return self._rows.of(values, len(source))
