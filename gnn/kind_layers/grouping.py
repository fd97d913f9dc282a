"""The sum of a vertex's relations, value by value, side by side or by one softmax, with terms of its own row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.kind_layers.attention import AttentionRelation
from freshet.gnn.kind_layers.columns import Columns, RowPiece, as_it_is, linear_piece
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan, Root
from freshet.gnn.kinds.declarations import Grouping
from freshet.gnn.layers.segment import joined
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.rows.jumps import Operation

_ADDED = ("sum", "mean", "softmax")
_OPERATIONS: dict[Grouping, Operation] = {
    "sum": "sum", "mean": "sum", "min": "min", "max": "max", "mul": "product", "cat": "cat",
}  # fmt: skip


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
        self._roots = [_added(roots)] if aggr in _ADDED else roots
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

    def apply(self, aggregates: Sequence[Rows], own: Rows, counts: Sequence[Count], columns: Columns) -> Rows:
        """Return the rows of vertices, (n, width) float32, new ones; `columns` says where `own` has its pieces."""
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
        if self._aggr == "mean" and len(self._convs) > 1:
            out /= np.float32(len(self._convs))
        return out

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


def _added(roots: Sequence[Root]) -> Root:
    """Return the sum of terms, added in float64 and rounded once."""
    weights, biases = ([values for values in column if values is not None] for column in zip(*roots, strict=True))
    return Root(_sum(weights), _sum(biases))


def _sum(values: Sequence[Rows]) -> Rows | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else np.sum(values, axis=0, dtype=np.float64).astype(np.float32)
