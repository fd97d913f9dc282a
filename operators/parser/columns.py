"""The rules that events must meet, for a whole block at once: columns in, events and the rows that look bad out.

Columns are numpy alone; whoever reads a format by columns fills `Fields` (of Arrow: operators/parser/arrow/fields.py).
A mask only has to be right where it says good: the other rows are judged one by one (operators/parser/rules.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from freshet.edge_categories import are_categories
from freshet.kinds import Kinds
from freshet.operators.parser.rejects import LinePlace, TablePlace
from freshet.operators.parser.rules import Rules
from freshet.partitioner.events import DEFAULT_TYPE, OP_ADD_EDGE, OP_ADD_VERTEX, OP_DEL_EDGES, OP_SET_FEATURES, Events
from freshet.partitioner.ids import Ids
from freshet.schema import ATTR, WEIGHT, EdgeValues, FeatureRows, Features
from freshet.type_columns import with_types

NO_OP = 255
ABSENT, UNKNOWN = -1, -2


class Numbers(NamedTuple):
    """A column of numbers, of any type; NaN for a value that is none, and anything where a row has none (`given`)."""

    values: np.ndarray
    given: np.ndarray


class Times(NamedTuple):
    """A column of `ts`: (n,) int64, NO_TS where a row has none, and where rows are good."""

    values: np.ndarray
    good: np.ndarray


class ListColumn(NamedTuple):
    """A column of lists of numbers: row i is values[begin[i]:end[i]] (in a null row too, which need not be empty).

    `is_odd`: the column has other values than lists of numbers, and each row that is given is bad; no end is then at or
    behind its begin.
    """

    values: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    given: np.ndarray
    is_odd: bool = False


class TypeNames(NamedTuple):
    """Edge types as codes of the block's own names, -1 where absent.

    Shapes: codes (n,) int64; mistyped (n,) bool, where a value is no text; null (names + 1,) bool, by name and True
    """

    codes: np.ndarray
    mistyped: np.ndarray
    names: list[str | None]  # None: null, or not UTF-8
    null: np.ndarray

    def places(self, known: Mapping[str, int]) -> np.ndarray:
        """(n,) int64 numbers of the names that are known, ABSENT where there is none, UNKNOWN for any other value."""
        table = [
            ABSENT if null else known.get(name or "", UNKNOWN)
            for name, null in zip(self.names, self.null, strict=False)
        ]
        return np.where(self.mistyped, UNKNOWN, np.array([*table, ABSENT])[self.codes])

    def good(self, known: Sequence[str] | None, most: int) -> np.ndarray:
        """Return where the type is absent or a name: one of those `known`, or else any of at most `most` bytes."""
        if not self.names:
            return ~self.mistyped
        if known is not None:
            named = [name in known for name in self.names]
        else:
            named = [0 < len((name or "").encode()) <= most for name in self.names]
        return np.array([*named, True])[self.codes] | self.null[self.codes]

    def resolve(self, rows: np.ndarray, known: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
        """Etypes of the rows (an index array) and the table: the model's, or the names by their first row."""
        table = {name: code for code, name in enumerate(known or (DEFAULT_TYPE,))}
        etype = np.zeros(len(self.codes), np.int64)
        if self.names:
            used, first = np.unique(self.codes[rows], return_index=True)
            rename = np.zeros(len(self.names) + 1, np.int64)
            for code in used[np.argsort(first)].tolist():
                name = self.names[code] if code >= 0 else None
                rename[code] = 0 if name is None else table.setdefault(name, len(table))
            etype[rows] = rename[self.codes[rows]]
        return etype, tuple(table)


class KeyColumn(NamedTuple):
    """A column of keys of edges.

    Shapes: keys n, those without one where a row has none or a bad one; every (n,) bool, where all edges of a pair are
    meant; good (n,) bool, where there is none or a good one
    """

    keys: Ids
    every: np.ndarray
    good: np.ndarray


class Fields(NamedTuple):
    """The fields of n records, column by column; None where no record has the field.

    Shapes: op (n,) uint8, NO_OP where there is none; edge (n,) bool, where it is one of edges; a, b n ids of the job's
    kind (of an edge src and dst, else id and 0 or ""), and where those that the operation needs are good; kinds: names
    of kinds of vertices, by field
    """

    op: np.ndarray
    edge: np.ndarray
    a: Ids
    b: Ids
    ids_good: np.ndarray
    weight: Numbers | None
    types: TypeNames
    attr: ListColumn | None
    x: ListColumn | None
    ts: Times | None
    kinds: Mapping[str, TypeNames]
    keys: KeyColumn | None = None


class Taken(NamedTuple):
    """The events of the rows that are good, and the rows that look bad."""

    events: Events
    bad: np.ndarray


def take(fields: Fields, rules: Rules, place: TablePlace | LinePlace) -> Taken:
    """Judge all records at once."""
    op, edge, n = fields.op, fields.edge, len(fields.op)
    adds = op == OP_ADD_EDGE
    weight, weight_good = _weights(fields.weight, n)
    kinds, kind, relation = rules.kinds, None, None
    if kinds is not None:
        kind, relation = _kinds_of(fields, kinds), _relations_of(fields, kinds)
    attr, sizes, attr_good = _attr_of(fields.attr, adds, relation, rules.features)
    good = fields.ids_good & (op != NO_OP)
    good &= ~adds | (weight_good & attr_good)
    if kind is None or relation is None:
        good &= ~edge | fields.types.good(rules.edge_types, rules.id_bytes_max)
    else:
        good &= np.where(edge, relation, kind) >= 0
    x, x_rows, x_good = _features_of(fields.x, op, kind, rules.features)
    good &= x_good
    if fields.ts is not None:
        good &= fields.ts.good
    if fields.keys is not None:
        good &= fields.keys.good
        op = np.where(fields.keys.every, np.uint8(OP_DEL_EDGES), op)
    rows = np.flatnonzero(good)
    if relation is None or kinds is None:
        etype, table = fields.types.resolve(rows[edge[rows]], rules.edge_types)
    else:
        etype, table = np.where(edge & good, relation, 0), kinds.relation_names
    x_row = np.full(n, -1, np.int32)
    kept = good[x_rows]
    x_row[x_rows[kept]] = np.arange(kept.sum(), dtype=np.int32)
    if not kept.all():
        x = x[kept]
    values = {WEIGHT: np.where(adds, weight, np.float32(1))}
    if sizes is not None:
        values[ATTR] = np.where(adds, sizes, np.int32(-1))
    origin = place.origin
    events = Events(
        op=op,
        a=fields.a,
        b=fields.b,
        values=with_types(EdgeValues(n, values, attr), rules.features, etype, adds & good),
        etype=etype.astype(np.int32),
        x_row=x_row,
        x=x,
        position=place.positions(),
        source=np.full(n, origin.source, np.int16),
        partition=np.full(n, origin.partition, np.int16),
        types=table,
        end_position=place.end,
        end_source=origin.source,
        end_partition=origin.partition,
        arrival_ms=place.arrival_ms,
        ts=None if fields.ts is None else fields.ts.values,
        kind=None if kind is None or not kind.any() else np.where(edge | ~good, 0, kind).astype(np.uint8),
    )
    events = events if fields.keys is None else events.with_keys(fields.keys.keys)
    return Taken(events if len(rows) == n else events.only(good), np.flatnonzero(~good))


def _kinds_of(fields: Fields, kinds: Kinds, name: str = "kind") -> np.ndarray:
    """(n,) int64 kinds that a field names, below 0 where it is missing or none of the model's."""
    if not kinds.are_named:
        return np.zeros(len(fields.op), np.int64)
    return fields.kinds[name].places(kinds.kind_codes) if name in fields.kinds else np.full(len(fields.op), ABSENT)


def _relations_of(fields: Fields, kinds: Kinds) -> np.ndarray:
    """(n,) int64 relations of edges, below 0 where the fields name none, several, or one that mirrors another."""
    types = {name: number for number, name in enumerate(kinds.by_type)}
    types_of = fields.types.places(types)
    untyped = ABSENT if kinds.untyped is None else kinds.untyped
    relation = np.array([*(kinds.sole.get(name, ABSENT) for name in types), ABSENT, untyped])[types_of]
    if not kinds.are_named or not fields.kinds.keys() & {"src_kind", "dst_kind"}:
        return relation
    given = [_kinds_of(fields, kinds, name) for name in ("src_kind", "dst_kind")]
    matches = np.zeros(len(relation), np.int64)
    for name, every in kinds.by_type.items():
        for number in every if name not in kinds.sole and len(every) > 1 else ():
            ends = kinds.ends[:, number].tolist()
            fits = [(one == end) | (one == ABSENT) for one, end in zip(given, ends, strict=True)]
            here = (types_of == types[name]) & fits[0] & fits[1]
            relation[here], matches = number, matches + here
    agree = [(one == ends[relation]) | (one == ABSENT) for one, ends in zip(given, kinds.ends, strict=True)]
    return np.where(agree[0] & agree[1] & (matches < 2), relation, ABSENT)


def _weights(numbers: Numbers | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float32 weights, 1 where there is none, and where they are good: absent or finite."""
    if numbers is None:
        return np.ones(n, np.float32), np.ones(n, bool)
    values = np.where(numbers.given, _narrow(numbers.values), np.float32(1))
    return values, np.isfinite(values)


def _sizes(lists: ListColumn | None, n: int) -> tuple[np.ndarray | None, np.ndarray]:
    """(n,) int32 lengths, -1 where there is no list, and where rows are good: absent or lists of finite numbers."""
    if lists is None:
        return None, np.ones(n, bool)
    if lists.is_odd:
        return None, ~lists.given
    bad = np.flatnonzero(~np.isfinite(_narrow(lists.values)))
    good = ~lists.given | (np.searchsorted(bad, lists.begin) == np.searchsorted(bad, lists.end))
    return np.where(lists.given, lists.end - lists.begin, -1).astype(np.int32), good


def _attr_of(
    lists: ListColumn | None, adds: np.ndarray, relation: np.ndarray | None, features: Features
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Attributes of added edges that the graph keeps, lengths of those that it does not, and where rows are good."""
    kinds, width = features.kinds, features.given_edge_width
    if not width:
        return None, *_sizes(lists, len(adds))
    if kinds is None or relation is None:
        attr, good = _attributes(lists, adds, width)
        return attr, None, good if attr is None else good & are_categories(attr, features.categories)
    if lists is None:
        return None, None, np.ones(len(adds), bool)
    widths = np.append(kinds.edge_widths, 0)[relation]  # of no relation: such rows are bad anyway
    attr = np.zeros((len(adds), width), np.float32)
    sizes, good = _sizes(lists, len(adds))
    for one in np.unique(kinds.edge_widths[kinds.edge_widths > 0]).tolist():
        found, found_good = _attributes(lists, adds & (widths == one), one)
        good &= found_good | (widths != one)
        if found is not None:
            attr[:, :one] += found
    kept = (widths > 0) | ~adds
    return attr, None if sizes is None or kept.all() else np.where(kept, np.int32(-1), sizes), good


def _attributes(lists: ListColumn | None, adds: np.ndarray, width: int) -> tuple[np.ndarray | None, np.ndarray]:
    """(n, width) float32 attributes of added edges, zeros where there is no list, and where rows are good."""
    if lists is None:
        return None, np.ones(len(adds), bool)
    good, attr = ~lists.given, np.zeros((len(adds), width), np.float32)
    rows = np.flatnonzero(adds & lists.given)
    found, found_good = _rows_of_width(lists, rows, width)
    good[rows[found_good]] = True
    attr[rows[found_good]] = found
    return attr, good


def _features_of(
    lists: ListColumn | None, op: np.ndarray, kind: np.ndarray | None, features: Features
) -> tuple[FeatureRows, np.ndarray, np.ndarray]:
    """`_features` of vertices of any kinds."""
    if kind is None or len(features.widths) == 1:
        x, rows, good = _features(lists, op, features.width)
        return FeatureRows(x), rows, good
    found = [_features(lists, np.where(kind == k, op, NO_OP), width) for k, width in enumerate(features.widths)]
    rows = np.sort(np.concatenate([rows for _, rows, _ in found]))
    by_kind = FeatureRows.of_kinds(kind[rows], [x for x, _, _ in found], features)
    return by_kind, rows, np.logical_and.reduce([good for _, _, good in found])


def _features(lists: ListColumn | None, op: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of the rows that may carry them.

    Returns:
        (x, rows, good): x (k, width), the k rows that it belongs to, and a mask over all rows that is False where
        features are missing or bad.
    """
    if lists is None:
        return np.empty((0, width), np.float32), np.empty(0, np.int64), op != OP_SET_FEATURES
    sets = op == OP_SET_FEATURES
    good = lists.given | ~sets
    rows = np.flatnonzero((sets | (op == OP_ADD_VERTEX)) & lists.given)
    x, x_good = _rows_of_width(lists, rows, width)
    good[rows[~x_good]] = False
    if not width:  # such lists are empty, and bring nothing
        return x[:0], rows[:0], good
    return x, rows[x_good], good


def _rows_of_width(lists: ListColumn, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The (k, width) float32 lists of those of the rows that are good, and which are.

    Returns:
        (x, good): x has a row for each True of good, which is aligned with `rows`.
    """
    begin = lists.begin[rows]
    good = lists.end[rows] - begin == width
    starts = begin if good.all() else begin[good]
    if len(starts) and (np.diff(starts) == width).all():
        x = lists.values[starts[0] : starts[0] + len(starts) * width].reshape(len(starts), width)
    else:
        x = lists.values[starts[:, None] + np.arange(width)]
    x = _narrow(x)
    if not np.isfinite(x).all():
        finite = np.isfinite(x).all(axis=1)
        good[good] = finite
        x = x[finite]
    return x, good


def _narrow(values: np.ndarray) -> np.ndarray:
    """Numbers as float32, integers by way of float64 as in JSON."""
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64, copy=False).astype(np.float32)
