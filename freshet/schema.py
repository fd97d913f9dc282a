"""The schema of a graph: how wide the features of its vertices are, and what its edges carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from freshet.kind_rows import KindRows
from freshet.kinds import Kinds

WEIGHT, ATTR = "weight", "attr"
NO_ATTR = -1  # as the length of an attr
# The column that kept attributes travel as, (n, width) float32; ATTR alone has the lengths of those that are dropped.
ATTR_VALUES = "attr_values"
KEY_BYTES = 16  # of the key of an edge in the graph, and its place among parallel edges


class EdgeColumn(NamedTuple):
    """A number that each edge carries.

    `is_kept`: the graph has it, as a float32; else only rules read it, of the event. `is_dropped`: an event has more to
    it, which no graph keeps, and users are warned.
    """

    name: str
    dtype: str
    default: float
    meaning: str
    is_kept: bool = True
    is_dropped: bool = False


# A further value of edges is a line here: all that lies between the Parser and the messages takes columns alike. The
# first one that is kept is the weight.
EDGE_COLUMNS = (
    EdgeColumn(WEIGHT, "f4", 1, "weight"),
    EdgeColumn(ATTR, "i4", NO_ATTR, "how many numbers its attr has, -1 without", is_kept=False, is_dropped=True),
)
# A single edge's values, in the order of EDGE_COLUMNS; where the graph keeps attributes, those follow as a tuple.
EdgeRow: TypeAlias = tuple[Any, ...]
PLAIN_EDGE: EdgeRow = tuple(column.default for column in EDGE_COLUMNS)
_ATTR_PLACE = [column.name for column in EDGE_COLUMNS].index(ATTR)


# A single vertex's features, as `Features.row` makes them; of several kinds, behind the number of its own.
FeatureRow: TypeAlias = np.ndarray | tuple[int, np.ndarray]
_NO_MATRIX = np.empty((0, 0), np.float32)


def kept_columns() -> list[EdgeColumn]:
    """Return the columns that are part of the graph, in the order in which an edge has them there."""
    return [column for column in EDGE_COLUMNS if column.is_kept]


def edge_row(given: Mapping[str, float], attr: Sequence[float] | None = None) -> EdgeRow:
    """Return a single edge's values, those that are given by name; the others have their defaults."""
    row = tuple(given.get(column.name, column.default) for column in EDGE_COLUMNS) if given else PLAIN_EDGE
    return row if attr is None else (*row, tuple(attr))


def kept_of(row: EdgeRow) -> list[float]:
    """Return what the graph keeps of a single edge's values, in the order of `kept_columns`."""
    return [number for number, column in zip(row, EDGE_COLUMNS, strict=False) if column.is_kept]


def attr_of(row: EdgeRow) -> tuple[float, ...]:
    """Return the attributes of a single edge that the graph keeps; none where they are all zeros."""
    return row[len(EDGE_COLUMNS)] if len(row) > len(EDGE_COLUMNS) else ()


def attr_size(row: EdgeRow) -> int:
    """Return how many numbers a single edge's attr has, -1 without."""
    return int(row[_ATTR_PLACE])


def dropped_among(names: Sequence[str]) -> list[str]:
    """Return those names that are values of edges which no graph keeps."""
    return [column.name for column in EDGE_COLUMNS if column.is_dropped and column.name in names]


@dataclass(frozen=True, slots=True)
class Features:
    """The widths of raw features and of edges' attributes: one for all, or one for each kind and each relation.

    Between the Parser, which checks rows against it, and the model, which reads them, rows are only made and measured.
    `width` is that of the first kind, `edge_width` the largest of a relation; 0: the graph keeps no attr of edges.
    `types`: how many of these are columns that readers of edges make of their types, in front of what is given.
    `categories`: how many categories each attribute that is given numbers, 0 where it is any number; none: all are.
    """

    width: int
    edge_width: int = 0
    kinds: Kinds | None = None  # None: vertices have no kinds, and edges no relations
    types: int = 0
    categories: tuple[int, ...] = ()

    @staticmethod
    def of_kinds(kinds: Kinds) -> Features:
        """Return the widths of kinds and their relations."""
        return Features(kinds.widths[0], kinds.edge_width, kinds)

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each kind."""
        return (self.width,) if self.kinds is None else self.kinds.widths

    @property
    def given_edge_width(self) -> int:
        """The width of the attributes that edges are given, without the columns of their types."""
        return self.edge_width - self.types

    def zeros(self, vertices: int) -> np.ndarray:
        """Return the features of vertices of the first kind that have none, (vertices, width) float32."""
        return np.zeros((vertices, self.width), np.float32)

    def empty(self) -> np.ndarray:
        """Return the features of no vertex of the first kind, (0, width) float32."""
        return np.empty((0, self.width), np.float32)

    def row(self, numbers: Any, kind: int = 0) -> FeatureRow:
        """Return the features of one vertex, (width,) float32, from any sequence of as many numbers."""
        row = np.array(numbers, np.float32).reshape(self.widths[kind])
        return row if len(self.widths) == 1 else (kind, row)

    @property
    def row_bytes(self) -> int:
        """Bytes of a vertex's features; of several kinds the most."""
        return 4 * max(self.widths)

    def __str__(self) -> str:
        names = self.kinds.names if self.kinds and len(self.widths) > 1 else ("",)
        each = [f"{n} features of {kind}".removesuffix(" of ") for n, kind in zip(self.widths, names, strict=True)]
        return ", ".join(each) + (f", {self.edge_width} of each edge" if self.edge_width else "")


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """The features of n vertices, row by row.

    The Parser and snapshots make rows, and Storage 0 keeps them. In between they are taken, joined and moved whole.

    Shapes: matrix (n, width) float32; of several kinds (0, 0), and the rows are in `several`
    """

    matrix: np.ndarray
    several: KindRows | None = None

    @staticmethod
    def none(features: Features) -> FeatureRows:
        """Return the features of no vertex."""
        several = None if len(features.widths) == 1 else KindRows.none(features.widths)
        return FeatureRows(features.empty() if several is None else _NO_MATRIX, several)

    @staticmethod
    def of(rows: Sequence[FeatureRow], features: Features) -> FeatureRows:
        """Return single rows, as `Features.row` makes them, as one."""
        if not rows:
            return FeatureRows.none(features)
        if len(features.widths) == 1:
            return FeatureRows(np.concatenate(rows).reshape(len(rows), features.width))  # type: ignore[arg-type]
        kinds, values = zip(*rows, strict=True)
        return FeatureRows(_NO_MATRIX, KindRows(np.concatenate(values), np.array(kinds, np.uint8), features.widths))

    @staticmethod
    def of_kinds(kind: np.ndarray, by_kind: Sequence[np.ndarray], features: Features) -> FeatureRows:
        """Return the rows of each kind, (k, width) float32 each, as one in the order of `kind`."""
        several = None if len(features.widths) == 1 else KindRows.of_kinds(kind, by_kind, features.widths)
        return FeatureRows(by_kind[0] if several is None else _NO_MATRIX, several)

    def of_kind(self, kind: int, rows: np.ndarray) -> FeatureRows:
        """Return these rows, which are of one kind, zeros for negative ones, as those of that kind alone."""
        return self.take(rows) if self.several is None else FeatureRows(self.several.of_kind(kind, rows))

    def row(self, number: int) -> np.ndarray:
        """Return one row, (width,) float32."""
        return self.matrix[number] if self.several is None else self.several[number : number + 1].values

    @property
    def features(self) -> Features:
        """Width of rows of one kind."""
        return Features(self.matrix.shape[1])

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each kind."""
        return (self.matrix.shape[1],) if self.several is None else self.several.widths

    def __len__(self) -> int:
        return len(self.matrix if self.several is None else self.several)

    def __getitem__(self, rows: np.ndarray | slice) -> FeatureRows:
        return FeatureRows(self.matrix[rows]) if self.several is None else FeatureRows(_NO_MATRIX, self.several[rows])

    def take(self, rows: np.ndarray) -> FeatureRows:
        """Return these rows of one kind, zeros for negative ones; consecutive rows as a view."""
        if not rows.size:
            return self[:0]
        first = int(rows[0])
        is_row = first >= 0 and rows.size == 1
        if is_row or (first >= 0 and int(rows[-1]) - first == rows.size - 1 and (np.diff(rows) == 1).all()):
            return self[first : first + rows.size]
        zeros = rows < 0
        if not zeros.any():
            return self[rows]
        taken = self.features.zeros(rows.size)
        taken[~zeros] = self.matrix[rows[~zeros]]
        return FeatureRows(taken)

    @staticmethod
    def concatenate(parts: Sequence[FeatureRows]) -> FeatureRows:
        """Return the rows of all parts, in order."""
        several = [part.several for part in parts if part.several is not None]
        if several:
            return FeatureRows(_NO_MATRIX, KindRows.concatenate(several))
        return FeatureRows(np.concatenate([part.matrix for part in parts]))

    def columns(self, name: str) -> dict[str, np.ndarray]:
        """Return the columns that the rows travel as; their names begin with this one."""
        return {name: self.matrix} if self.several is None else self.several.columns(name)

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], name: str, features: Features) -> FeatureRows:
        """The inverse of `columns`; of no rows, which travel as nothing, `features` says how wide they are."""
        if (several := KindRows.from_columns(columns, name)) is not None:
            return FeatureRows(_NO_MATRIX, several)
        found = columns.get(name)
        return FeatureRows(features.empty() if found is None else found)


@dataclass(frozen=True, slots=True)
class EdgeValues:
    """Values that each of n edges carries besides its ends and its type.

    The Parser and snapshots make values, and messages read them. In between they are taken, joined and moved whole.

    Shapes: given: columns (n,) of EDGE_COLUMNS by name; a column that is not given is its default throughout; attr
    (n, width) float32, the attributes that the graph keeps, None: there are none, or all are zeros
    """

    edges: int
    given: Mapping[str, np.ndarray]
    attr: np.ndarray | None = None

    @staticmethod
    def default(edges: int) -> EdgeValues:
        """Return the values of edges that carry nothing."""
        return EdgeValues(edges, {})

    @staticmethod
    def of_rows(rows: Sequence[EdgeRow]) -> EdgeValues:
        """Return single edges' values as one; where a row is short, all rows have the defaults from there on."""
        given = {}
        for column, numbers in zip(EDGE_COLUMNS, zip(*rows, strict=False), strict=False):
            if numbers.count(column.default) != len(numbers):
                given[column.name] = np.array(numbers, column.dtype)
        places = [place for place, row in enumerate(rows) if attr_of(row)]
        if not places:
            return EdgeValues(len(rows), given)
        listed = np.array([attr_of(rows[place]) for place in places], np.float64)  # integers by way of that, as in JSON
        attr = np.zeros((len(rows), listed.shape[1]), np.float32)
        attr[places] = listed
        return EdgeValues(len(rows), given, attr)

    def rows(self) -> list[EdgeRow]:
        """Return each edge's values; the inverse of `of_rows`."""
        if not self.given and self.attr is None:
            return [PLAIN_EDGE] * self.edges
        columns = [self.column(column).tolist() for column in EDGE_COLUMNS]
        columns += [] if self.attr is None else [list(map(tuple, self.attr.tolist()))]
        return list(zip(*columns, strict=True))

    def __len__(self) -> int:
        return self.edges

    def __getitem__(self, rows: np.ndarray | slice) -> EdgeValues:
        """Return the values of these edges, by their numbers or as a slice."""
        edges = len(range(*rows.indices(self.edges))) if isinstance(rows, slice) else rows.size
        attr = None if self.attr is None else self.attr[rows]
        return EdgeValues(edges, {name: column[rows] for name, column in self.given.items()}, attr)

    @property
    def names(self) -> set[str]:
        """Names of the columns that are given, attributes among them."""
        return {*self.given, *(() if self.attr is None else (ATTR_VALUES,))}

    def column(self, column: EdgeColumn) -> np.ndarray:
        """Return one of the values of all edges, (n,) of the column's dtype."""
        found = self.given.get(column.name)
        return np.full(self.edges, column.default, column.dtype) if found is None else found

    @property
    def weight(self) -> np.ndarray:
        """The weights, (n,) float32."""
        return self.column(EDGE_COLUMNS[0])

    @property
    def attr_sizes(self) -> np.ndarray | None:
        """Length of each edge's attr, (n,) int32, -1 without; None where no edge has any."""
        return self.given.get(ATTR)

    @property
    def attr_widths(self) -> list[int]:
        """Lengths of the attrs, each once, ascending."""
        sizes = self.attr_sizes
        return [] if sizes is None else np.unique(sizes[sizes >= 0]).tolist()

    @property
    def dropped(self) -> int:
        """Edges that carry something which no graph keeps."""
        dropped = [column for column in EDGE_COLUMNS if column.is_dropped and column.name in self.given]
        carry = [self.given[column.name] != column.default for column in dropped]
        return int(np.count_nonzero(np.any(carry, axis=0))) if carry else 0

    @staticmethod
    def concatenate(parts: Sequence[EdgeValues]) -> EdgeValues:
        """Return the values of all parts, in order."""
        given = {
            column.name: np.concatenate([part.column(column) for part in parts])
            for column in EDGE_COLUMNS
            if any(column.name in part.given for part in parts)
        }
        widths = [part.attr.shape[1] for part in parts if part.attr is not None]
        attr = np.concatenate([part.full_attr(widths[0]) for part in parts]) if widths else None
        return EdgeValues(sum(map(len, parts)), given, attr)

    def full_attr(self, width: int) -> np.ndarray:
        """Return the attributes of all edges, (n, width) float32, zeros where there are none."""
        return np.zeros((self.edges, width), np.float32) if self.attr is None else self.attr

    def full_columns(self, features: Features | None = None) -> dict[str, np.ndarray]:
        """Return a column for each value that edges of a graph with such features have, whatever these carry."""
        columns = {column.name: self.column(column) for column in EDGE_COLUMNS}
        kept = features is not None and features.edge_width
        return columns | ({ATTR_VALUES: self.full_attr(features.edge_width)} if features and kept else {})

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns that the values travel as; one that holds its default throughout is left out."""
        given = ((column, self.given.get(column.name)) for column in EDGE_COLUMNS)
        columns = {one.name: found for one, found in given if found is not None and (found != one.default).any()}
        return columns | ({} if self.attr is None or not _any_bit(self.attr) else {ATTR_VALUES: self.attr})

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], edges: int) -> EdgeValues:
        """The inverse of `columns`; other columns may be among them."""
        names = [column.name for column in EDGE_COLUMNS if column.name in columns]
        return EdgeValues(edges, {name: columns[name] for name in names}, columns.get(ATTR_VALUES))

    def kept(self) -> np.ndarray:
        """Return what the graph keeps, (values, n) float32, a row for each of `kept_columns`; of one, a view."""
        rows = [self.column(column) for column in kept_columns()]
        return rows[0][None] if len(rows) == 1 else np.stack(rows)

    @staticmethod
    def of_kept(rows: Sequence[np.ndarray]) -> EdgeValues:
        """The inverse of `kept`."""
        return EdgeValues(len(rows[0]), {c.name: row for c, row in zip(kept_columns(), rows, strict=True)})

    def record(self, edge: int) -> dict[str, Any]:
        """Return what the graph keeps of an edge as the fields of an event in JSON, without defaults."""
        one = self[edge : edge + 1].columns()
        record: dict[str, Any] = {
            column.name: float(one[column.name][0]) for column in kept_columns() if column.name in one
        }
        return record | ({ATTR: one[ATTR_VALUES][0].tolist()} if ATTR_VALUES in one else {})


def _any_bit(rows: np.ndarray) -> bool:
    """Return whether a row of float32s is not that of zeros, bit by bit."""
    return bool(np.ascontiguousarray(rows).view(np.int32).any())


class Graph(NamedTuple):
    """A whole graph as arrays: what passes over all of it read.

    Shapes: x (n, features) float32; src, dst (e,) vertex numbers, one pair for each edge, so that parallel edges of
    several types or keys repeat theirs; values of e edges
    """

    x: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    values: EdgeValues

    @staticmethod
    def plain(x: np.ndarray, src: np.ndarray, dst: np.ndarray) -> Graph:
        """Return a graph whose edges carry nothing."""
        return Graph(x, src, dst, EdgeValues.default(len(src)))
