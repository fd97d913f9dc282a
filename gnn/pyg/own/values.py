"""Values that a conv computes: rows of vertices and of edges, and how each is made of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from freshet.gnn.convs.base import ExistingLoops
from freshet.gnn.rows.layer import Layer

Over = Literal["vertices", "sources", "edges", "looped", "doubled", "relooped", "again", "unlooped", "every"]
"""Whose rows a value has; sources: vertices of another kind than those of targets; every: one row for all.

Edges and a self-loop for each vertex are looped where one that is there stands in for it, doubled where it is there
beside it, relooped where it was taken out before; unlooped are edges without self-loops. `again` are those of a
Laplacian to which self-loops were added once more.
"""
LOOPS: dict[Over, tuple[bool, ExistingLoops]] = {
    "edges": (False, "keep"),
    "looped": (True, "keep"),
    "doubled": (True, "beside"),
    "relooped": (True, "drop"),
    "unlooped": (False, "drop"),
}
"""Edges by whether each vertex gets a self-loop, and what becomes of those that are there."""
TYPES = "types"
"""The name of a linear layer that makes the number of an edge's type of the columns that it has for types."""
BINARY = ("add", "sub", "mul", "div", "max", "min", "greater", "equal", "atan2")


@dataclass(frozen=True, eq=False)
class Value:
    """Rows, flattened to (vertices or edges, width), and the operation that makes them of other rows.

    op: rows, edges, weight, attr (inputs); constant; take (columns of others); linear; layer (of one row); a name of
    `BINARY`, of which greater and equal are 1 or 0; where; exp, log, sqrt, abs, power; gather (rows of the ends of
    edges); aggregate; hop (a sum over neighbours that is a layer); out_degree (its name says of which edges); softmax
    (over the edges into a target); infinite and zero (masks), finite (0 in the place of infinity); normalized (PyG's
    gcn_norm); laplacian (the weights of PyG's get_laplacian); beside_loops (a function of what edges have, and the
    value of vertices that their added self-loops have in its place).
    A weight, an attribute or normalized may have the array `fill`, the one number of self-loops which were added; an
    attribute may be `of` the values of vertices that their added self-loops have. A laplacian has `edges`, what its
    weights of edges are multiplied by, and `loops`, the sum of those of a vertex's self-loops.
    """

    op: str
    width: int
    over: Over
    of: tuple[Value, ...] = ()
    place: str = ""
    name: Any = ""  # of an end; an aggregator
    layer: Layer | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def is_types(self) -> bool:
        """True if it is the type of each edge, a number."""
        return self.name == TYPES

    @property
    def is_index(self) -> bool:
        """True if it holds numbers of vertices."""
        return self.op == "edges" or (self.op == "take" and self.of[0].is_index)


def constant(row: np.ndarray, place: str = "") -> Value:
    """Return a row that all share."""
    return Value("constant", len(row), "every", place=place, arrays={"value": row.astype(np.float32)})


def take(of: Sequence[Value], which: np.ndarray, column: np.ndarray, over: Over, place: str) -> Value:
    """Return columns of other values: column[j] of of[which[j]]; these themselves where nothing changes."""
    parts = [_flat(one) for one in of]
    found = [parts[w](int(c)) for w, c in zip(which, column, strict=True)]
    bases = list(dict.fromkeys(base for base, _ in found))
    columns = np.array([c for _, c in found], np.int64)
    if len(bases) == 1 and columns.tolist() == list(range(bases[0].width)) and bases[0].over == over:
        return bases[0]
    if len(bases) == 1 and bases[0].op == "constant":
        return constant(bases[0].arrays["value"][columns], place)
    number = {base: i for i, base in enumerate(bases)}
    arrays = {"which": np.array([number[base] for base, _ in found], np.int64), "column": columns}
    return Value("take", len(columns), over, tuple(bases), place, arrays=arrays)


def column_of(value: Value, column: int) -> tuple[Value, int]:
    """Return the value that a column of another comes from, and its place there."""
    return _flat(value)(column)


def _flat(value: Value) -> Callable[[int], tuple[Value, int]]:
    """Return where a column of a value comes from."""
    if value.op != "take":
        return lambda c: (value, c)
    which, column = value.arrays["which"], value.arrays["column"]
    return lambda c: (value.of[which[c]], int(column[c]))


def all_of(value: Value, seen: set[Value] | None = None, *, within: bool = False) -> Iterator[Value]:
    """Yield a value and all that it is made of, each once; `within` a message, without those behind its ends."""
    seen = set() if seen is None else seen
    if value not in seen:
        seen.add(value)
        yield value
        for one in () if within and value.op == "gather" else value.of:
            yield from all_of(one, seen, within=within)


def is_edge_by_edge(value: Value) -> bool:
    """Return whether a value is made of one edge alone: of what it has, of the rows of its ends, and of constants."""
    return not any(
        one.op in ("aggregate", "softmax", "normalized", "beside_loops") or (one.op == "attr" and one.of)
        for one in all_of(value, within=True)
    )


def difference(one: Value, other: Value, seen: dict[tuple[int, int], Value | None] | None = None) -> Value | None:
    """Return the first value that two readings of a forward do not have in common; None if they are the same."""
    seen = {} if seen is None else seen
    key = (id(one), id(other))
    if key not in seen:
        seen[key] = None
        seen[key] = _difference(one, other, seen)
    return seen[key]


def _difference(one: Value, other: Value, seen: Any) -> Value | None:
    if len(one.of) == len(other.of):
        for a, b in zip(one.of, other.of, strict=True):
            if (found := difference(a, b, seen)) is not None:
                return found
    same = (one.op, one.width, one.over, one.name, one.layer, len(one.of), one.arrays.keys()) == (
        *(other.op, other.width, other.over, other.name, other.layer, len(other.of), other.arrays.keys()),
    )
    if same and all(np.array_equal(a, other.arrays[name], equal_nan=True) for name, a in one.arrays.items()):
        return None
    return one
