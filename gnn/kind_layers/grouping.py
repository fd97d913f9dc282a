"""The sum of a vertex's relations, value by value, side by side or by one softmax, with terms of its own row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.kind_layers.attention import AttentionRelation
from freshet.gnn.kind_layers.columns import Columns, RowPiece, as_it_is, linear_piece
from freshet.gnn.kind_layers.relation_conv import InEdges, RelationConvPlan, Root
from freshet.gnn.kind_layers.sums import NeighbourRelation
from freshet.gnn.kinds.declarations import Grouping
from freshet.gnn.layers.segment import joined
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.rows.jumps import Operation

_ADDED = ("sum", "mean", "softmax")
_OPERATIONS: dict[Grouping, Operation] = {
    "sum": "sum", "mean": "sum", "min": "min", "max": "max", "mul": "product", "cat": "cat",
}  # fmt: skip


class ReadSums(NamedTuple):
    """Place of the sums or means of a relation when they are read: columns from `first` on, or rows alone (None)."""

    first: int | None
    width: int
    mean: bool


class Group:
    """The convs of all relations into a kind, and their results made one.

    Where results are added, so are the terms W x_v + b of all convs, once and for all: they are one. Such a term is
    made before sending, unless the row itself is there in any case, or is narrower.
    """

    def __init__(
        self, aggr: Grouping, convs: Sequence[RelationConvPlan], own_width: int, sent: Columns, carries: bool
    ) -> None:
        """Take the convs in the model's order, the width of the kind's rows, and the columns of its messages.

        `carries`: the vertex's own task gets columns in any case, beside those of messages.
        """
        self._aggr, self._convs = aggr, convs
        roots = [conv.root for conv in convs]
        self._roots = [added(roots)] if aggr in _ADDED else roots
        row, rooted = as_it_is(own_width), [root.weight is not None for root in self._roots]
        out = sum(conv.out_width for conv, has in zip(convs, rooted, strict=False) if has)
        is_there = not carries and row in sent and all(piece in sent for conv in convs for piece in conv.own)
        self._late = any(rooted) and (is_there or out > own_width)
        self._root_pieces = [
            None if root.weight is None else row if self._late else linear_piece(root.weight)
            for i, root in enumerate(self._roots)
        ]
        self.reads: list[RowPiece] = [piece for conv in convs for piece in conv.own]
        """The pieces of the vertex's own row that are read."""
        self.reads += [piece for piece in self._root_pieces if piece is not None]
        self.reads_count = any(conv.reads_count for conv in convs)
        self.sums: list[ReadSums] = []
        """Of each relation, where all are sums that are added; else empty."""
        self._stacked, self._sums_end = self._stack()

    def _stack(self) -> tuple[Rows | None, int]:
        """Return the matrices behind sums and of the vertex's row in one, and where those of sums end."""
        convs = [conv for conv in self._convs if isinstance(conv, NeighbourRelation) and conv.is_sum]
        if self._aggr not in ("sum", "mean") or len(convs) < len(self._convs):
            return None, 0
        weights, end = list[Rows](), 0
        for conv in convs:
            first = None if conv.after is None else end
            self.sums.append(ReadSums(first, conv.source.width, conv.reads_count))
            if conv.after is not None:
                weights.append(conv.after)
                end += len(conv.after)
        if self._late and self._roots[0].weight is not None:
            weights.append(self._roots[0].weight)
        return (np.concatenate(weights) if weights else None), end

    def apply(self, aggregates: Sequence[Rows], own: Rows, counts: Sequence[InEdges], columns: Columns) -> Rows:
        """Return the rows of vertices, (n, width) float32, new ones; `columns` says where `own` has its pieces."""
        if self.sums:
            read = [conv.synopsis.read(a, n) for conv, a, n in zip(self._convs, aggregates, counts, strict=True)]
            wide, alone = self.room(len(own))[0], list[Rows]()
            for (first, width, _), rows in zip(self.sums, read, strict=True):
                if first is None:
                    alone.append(rows)
                else:
                    wide[:, first : first + width] = rows
            return self.summed(wide, alone, own, columns)
        if self._aggr == "softmax":
            out = _of_all(self._convs, aggregates)
        else:
            made = [
                conv.update(agg, [_of(own, columns, piece) for piece in conv.own], count)
                for conv, agg, count in zip(self._convs, aggregates, counts, strict=True)
            ]
            if self._aggr not in _ADDED:
                for rows, root, piece in zip(made, self._roots, self._root_pieces, strict=True):
                    self._add(rows, root, piece, own, columns)
            out = joined(_OPERATIONS[self._aggr], made)
        if self._aggr in _ADDED:
            self._add(out, self._roots[0], self._root_pieces[0], own, columns)
        return self._averaged(out)

    def _averaged(self, out: Rows) -> Rows:
        if self._aggr == "mean" and len(self._convs) > 1:
            out /= np.float32(len(self._convs))
        return out

    def room(self, vertices: int) -> tuple[Rows, list[Rows]]:
        """Return arrays for the sums of vertices as `sums` says: all columns, (n, width) float32, and rows alone."""
        wide = np.empty((vertices, 0 if self._stacked is None else len(self._stacked)), np.float32)
        return wide, [np.empty((vertices, one.width), np.float32) for one in self.sums if one.first is None]

    def summed(self, wide: Rows, alone: Sequence[Rows], own: Rows, columns: Columns) -> Rows:
        """Return the sum of relations by one product for all matrices, from what was read to `room`, which changes."""
        root, piece = self._roots[0], self._root_pieces[0]
        out: Rows | None = None
        if self._stacked is not None:
            if self._late and piece is not None:
                wide[:, self._sums_end :] = own[:, columns.place(piece)]
            out = matmul(wide, self._stacked)
        for rows in alone:
            out = np.array(rows, np.float32) if out is None else np.add(out, rows, out=out)
        assert out is not None  # there is a conv
        if piece is not None and not self._late:
            out += own[:, columns.place(piece)]
        if root.bias is not None:
            out += root.bias
        return self._averaged(out)

    def _add(self, out: Rows, root: Root, piece: RowPiece | None, own: Rows, columns: Columns) -> None:
        if piece is not None and root.weight is not None:
            rows = _of(own, columns, piece)
            out += matmul(rows, root.weight) if self._late else rows
        if root.bias is not None:
            out += root.bias


def _of(own: Rows, columns: Columns, piece: RowPiece) -> Rows:
    return np.ascontiguousarray(own[:, columns.place(piece)])


def _of_all(convs: Sequence[RelationConvPlan], aggregates: Sequence[Rows]) -> Rows:
    first, *others = convs
    assert isinstance(first, AttentionRelation)  # KindsModel has checked it
    return first.of_all(others, aggregates)


def added(roots: Sequence[Root]) -> Root:
    """Return the sum of terms, added in float64 and rounded once."""
    weights, biases = ([values for values in column if values is not None] for column in zip(*roots, strict=True))
    return Root(_sum(weights), _sum(biases))


def _sum(values: Sequence[Rows]) -> Rows | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else np.sum(values, axis=0, dtype=np.float64).astype(np.float32)
