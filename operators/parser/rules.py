"""The rules that an event must meet, one record (a Python dict) at a time, with the reason where it does not.

They stand a second time in operators/parser/columns.py, for a whole block at once; these have the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from freshet.edge_categories import category_error
from freshet.kinds import NO_MIRROR, Kinds, Relation, some_names
from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.keys import KEY_FIELD, KeyRules
from freshet.operators.parser.records import show
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import NO_TS, OP_ADD_EDGE, OP_DEL_VERTEX, OP_NAMES, OP_SET_FEATURES
from freshet.partitioner.ids import INT, STRING
from freshet.partitioner.times.units import INSTANTS, MS, UNIT_NAMES, Instant, Timed, TsUnit, to_ms
from freshet.schema import NO_ATTR, PLAIN_EDGE, EdgeRow, Features

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# From here on a double rounds to infinity in float32 (the largest float32 plus half its last place).
FLOAT32_LIMIT = float(2**128 - 2**103)
WHOLE_MAX = 2**53  # a float of this size or less is the integer that was meant: none was rounded to it


class FieldKind(Enum):
    """Kinds of values of the fields of events."""

    TEXT, ID, NUMBER, NUMBERS, FEATURES, TIME, KEY = range(7)


# The rules below look further into each; a message on a table's columns goes by the kind alone (job/run/schemas.py).
FIELDS = {
    "op": FieldKind.TEXT,
    "id": FieldKind.ID,
    "src": FieldKind.ID,
    "dst": FieldKind.ID,
    "x": FieldKind.FEATURES,
    "weight": FieldKind.NUMBER,
    "type": FieldKind.TEXT,
    "attr": FieldKind.NUMBERS,
    "ts": FieldKind.TIME,
}
# Of graphs whose kinds have names.
KIND_FIELDS = dict.fromkeys(("kind", "src_kind", "dst_kind"), FieldKind.TEXT)
ID_FIELDS = tuple(name for name, kind in FIELDS.items() if kind is FieldKind.ID)
_INTEGERS = (*(name for name, kind in FIELDS.items() if kind in (FieldKind.ID, FieldKind.TIME)), "type")

_OPS = {name: code for code, name in enumerate(OP_NAMES)}
_NUMBERS = frozenset((int, float, *INSTANTS.values()))
_KINDS: dict[type, str] = {int: INT, str: STRING}
_WANTED: dict[type | None, str] = {None: "an integer or a string", int: "an integer", str: "a string"}


def fields_of(features: Features) -> Mapping[str, FieldKind]:
    """Return the fields that events of such a graph have."""
    return FIELDS | KIND_FIELDS if features.kinds and features.kinds.are_named else FIELDS


Prepare = Callable[[dict[str, Any], str], dict[str, Any]]
"""Turns a row of a table, once it is mapped, into the fields of an event; given the name of the field with keys."""


def with_integers(record: dict[str, Any], key_field: str = KEY_FIELD) -> dict[str, Any]:
    """A row of a table with integers for whole floats in ids, keys, `ts` and `type`: columns with nulls have these."""
    for name in (*_INTEGERS, key_field):
        value = record.get(name)
        if type(value) is float and value.is_integer() and abs(value) <= WHOLE_MAX:
            record[name] = int(value)
        elif name != "ts" and isinstance(value, Instant):
            record[name] = int(value)
    return record


class Field(NamedTuple):
    """A field of a record, as the value of one of an event."""

    name: str


class Rules:
    """Rules of the job's records: widths of features, the kind of ids (None: the first accepted event's), edge types.

    What only earlier events show to be wrong, the Partitioner refuses: one edge type too many, another width of attr.
    A field that is null is absent. Fields that an event has no use for (an `x` on an edge) are ignored like unknown
    ones. `ts_unit` is that of integers in `ts`; a value whose type says a time is that time.
    """

    is_mapped = False
    skips_tombstones = reads_keys = False  # of messages without a value

    def __init__(
        self,
        features: Features,
        id_kind: str | None = None,
        edge_types: Sequence[str] | None = None,
        id_bytes_max: int = ID_BYTES_MAX,
        cast_ids: bool = False,
        ts_unit: TsUnit = MS,
        keys: KeyRules | None = None,
    ) -> None:
        if id_kind not in (None, INT, STRING):
            msg = f"id kind: expected int, string or None, got {id_kind!r}"
            raise ValueError(msg)
        self.features, self.id_bytes_max, self.ts_unit = features, id_bytes_max, ts_unit
        self._width, self._edge_width = features.width, features.given_edge_width  # read for each event
        self.kinds = features.kinds
        self._short = id_bytes_max // 4  # characters that fit, whatever they are
        self.edge_types = tuple(edge_types) if edge_types else None
        self.cast_ids, self.keys = cast_ids, keys or KeyRules()
        self.type_names = frozenset(self.kinds.by_type if self.kinds is not None else self.edge_types or ())
        self._id_type: type | None = None
        self.id_kind = id_kind

    @property
    def id_kind(self) -> str | None:
        """The kind of the job's ids, None while no event was accepted."""
        return None if self._id_type is None else _KINDS[self._id_type]

    @id_kind.setter
    def id_kind(self, kind: str | None) -> None:
        self._id_type = None if kind is None else (int if kind == INT else str)

    @property
    def is_open(self) -> bool:
        """True while the first events are to decide the kind of ids, or that of keys of edges."""
        return self._id_type is None or self.keys.kind is None

    @property
    def plain_map(self) -> Mapping[str, Any] | None:
        """Mapping from fields of an event to the `Field` of a record, or to a constant; None if it is more complex."""
        return {name: Field(name) for name in self.fields}

    @property
    def fields(self) -> Mapping[str, FieldKind]:
        """The fields of events that are read."""
        return {self.keys.field: FieldKind.KEY, **fields_of(self.features)}

    def builder(self) -> EventBuilder:
        """An empty block for events by these rules."""
        return EventBuilder(self.features, self.id_kind, self.edge_types)

    def append_row(
        self, record: dict[str, Any], builder: EventBuilder, position: int, prepare: Prepare = with_integers
    ) -> str | None:
        """Append the event of a row of a table, as `append` does."""
        return self.append(prepare(record, self.keys.field), builder, position)

    def append(self, record: Any, builder: EventBuilder, position: int) -> str | None:
        """Append the event to the builder, or say why not; the first accepted event decides the kind of ids."""
        try:
            op = _OPS[record["op"]]
        except (KeyError, TypeError, IndexError):
            return _op_error(record)
        get = record.get
        if op < OP_ADD_EDGE:
            return self._vertex(op, get("id"), get("x"), get("ts"), builder, position, get)
        src: Any = get("src")
        dst: Any = get("dst")
        etype, ts, key = get("type"), get("ts"), get(self.keys.field)
        expected: Any = self._id_type
        if type(etype) is int:
            etype = self.named(etype)
        if not (  # the common case at once: half of the time of a simple event would go here
            type(src) is expected
            and type(dst) is expected
            and (
                (INT64_MIN <= src <= INT64_MAX and INT64_MIN <= dst <= INT64_MAX)
                if expected is int
                else (len(src) <= self._short and len(dst) <= self._short)
            )
        ):
            if self.cast_ids:
                src, dst = (str(one) if type(one) is int else one for one in (src, dst))
            error = self._id_error("src", src) or self._id_error("dst", dst, type(src))
            if error:
                return error
        code, relation = 0, None
        if self.kinds is not None:
            found = relation_of(self.kinds, etype, get("src_kind"), get("dst_kind"))
            if isinstance(found, str):
                return found
            code, relation = found, self.kinds.relations[found]
        values = PLAIN_EDGE
        if op == OP_ADD_EDGE:
            given = self._values(get("weight"), get("attr"), relation)
            if isinstance(given, str):
                return given
            values = given
        if etype is not None and relation is None:
            error = self._type_error(etype)
            if error:
                return error
        if key is not None and (error := self.keys.error(key, op)):
            return error
        if ts is not None and type(ts := self._ms(ts)) is str:
            return ts
        if etype is not None and relation is None:
            code = builder.type_code(etype)  # of events alone that are taken
        self._decide(src, builder)
        builder.edge(op, src, dst, values, code, position)
        if op == OP_ADD_EDGE:
            self.keys.decide(key)
        if key is not None:
            builder.key(key)
        if ts is not None:
            builder.stamp(ts)
        return None

    def named(self, number: int) -> int | str:
        """The edge type that an integer writes, if that is one of the model's; else the integer."""
        name = str(number)
        return name if name in self.type_names else number

    def _values(self, weight: Any, numbers: Any, relation: Relation | None) -> EdgeRow | str:
        """The values of an edge, or why it can't have them."""
        values, width = PLAIN_EDGE, self._edge_width if relation is None else relation.edge_width
        if weight is not None:
            if type(weight) not in _NUMBERS:
                return f"weight: expected a number, got {show(weight)}"
            if not -FLOAT32_LIMIT < weight < FLOAT32_LIMIT:
                return f"weight: not finite in float32, got {show(weight)}"
            values = weight, NO_ATTR
        if numbers is not None:
            whose = "" if relation is None else f" for edges of {relation.type!r}"
            error = numbers_error("attr", numbers, width or None, whose)
            if error := error or category_error(numbers, self.features.categories):
                return error
            # only the length of those that the graph does not keep
            if not width:
                return values[0], len(numbers)
            padding = [0.0] * (self._edge_width - len(numbers))  # as wide as those of the widest relation
            values = values[0], NO_ATTR, (*numbers, *padding)
        return values

    def _vertex(
        self, op: int, vertex: Any, x: Any, ts: Any, builder: EventBuilder, position: int, get: Callable[[str], Any]
    ) -> str | None:
        if type(vertex) is not self._id_type or type(vertex) is not str or len(vertex) > self._short:
            if self.cast_ids and type(vertex) is int:
                vertex = str(vertex)
            error = self._id_error("id", vertex)
            if error:
                return error
        row: Any = None
        kind, width, whose = 0, self._width, ""
        if self.kinds is not None and self.kinds.are_named:
            if error := kind_error(self.kinds, "kind", get("kind")):
                return error
            kind = self.kinds.kind_codes[get("kind")]
            width, whose = self.kinds.widths[kind], f" for the kind {get('kind')!r}"
        if op == OP_DEL_VERTEX:
            x = None
        if x is not None:
            if type(x) is not list or len(x) != width or not _NUMBERS.issuperset(map(type, x)):
                return numbers_error("x", x, width, whose)
            try:
                row = np.array(x, np.float32)
            except OverflowError:  # an integer past float64, which only a mapped record can hold
                return numbers_error("x", x, width, whose)
            if not np.isfinite(row).all():
                return numbers_error("x", x, width, whose)
            if not width:
                row = None
            elif len(self.features.widths) > 1:
                row = kind, row
        elif op == OP_SET_FEATURES:
            return "x: missing, set_features needs it"
        if ts is not None and type(ts := self._ms(ts)) is str:
            return ts
        self._decide(vertex, builder)
        builder.vertex(op, vertex, row, position, kind)
        if ts is not None:
            builder.stamp(ts)
        return None

    def _decide(self, vertex: Any, builder: EventBuilder) -> None:
        if self._id_type is None:
            self._id_type = type(vertex)
            builder.id_kind = _KINDS[self._id_type]

    def _id_error(self, name: str, value: Any, other: type | None = None) -> str | None:
        """Describe why the value is no id of the job; `other`: type of the event's other id, while the kind is open."""
        kind = type(value)
        expected = self._id_type or other
        if expected is not str and is_past_int64(value):
            return f"{name}: expected an integer within int64, got {value}"
        if kind is expected or (expected is None and kind in _KINDS):
            return self._length_error(name, value) if kind is str else None
        if value is None:
            return f"{name}: missing"
        if expected is None or kind not in _KINDS:
            wanted = _WANTED[expected]
            return f"{name}: expected {wanted}, got {show(value)}"
        return f"{name}: expected {_WANTED[expected]} like the job's other ids, got {show(value)}"

    def _length_error(self, name: str, text: str) -> str | None:
        size = len(text) if len(text) <= self._short else len(text.encode())
        return f"{name}: expected at most {self.id_bytes_max} bytes, got {size}" if size > self.id_bytes_max else None

    def _ms(self, value: Any) -> Any:
        """A `ts` in milliseconds, or why it is none."""
        ms = to_ms(value, self.ts_unit) if type(value) is int else value.ms if isinstance(value, Timed) else None
        if ms is not None and NO_TS < ms <= INT64_MAX:
            return ms
        if ms is not None or is_past_int64(value):
            unit = "" if self.ts_unit == MS else " in milliseconds"
            return f"ts: expected an integer above -2**63 and below 2**63{unit}, got {value}"
        return f"ts: expected an integer ({UNIT_NAMES[self.ts_unit]}), got {show(value)}"

    def _type_error(self, value: Any) -> str | None:
        if type(value) is not str:
            return f"type: expected a string, got {show(value)}"
        if self.edge_types is None:
            return self._length_error("type", value) if value else "type: expected a name, got an empty string"
        if value not in self.edge_types:
            return f"type: expected one of the model's edge types {', '.join(self.edge_types)}, got {show(value)}"
        return None


def is_past_int64(value: Any) -> bool:
    """Return whether a number is too large for int64; larger integers of JSON arrive as floats."""
    if type(value) is int:
        return not INT64_MIN <= value <= INT64_MAX
    return type(value) is float and 2.0**63 <= abs(value) < float("inf")


def kind_error(kinds: Kinds, name: str, value: Any) -> str | None:
    """Describe why the value of a field is none of the model's kinds."""
    if value is None:
        return f"{name}: missing, expected one of the model's kinds {some_names(kinds.names)}"
    if type(value) is not str:
        return f"{name}: expected a string, got {show(value)}"
    if value not in kinds.kind_codes:
        return f"{name}: expected one of the model's kinds {some_names(kinds.names)}, got {show(value)}"
    return None


def relation_of(kinds: Kinds, etype: Any, source: Any, target: Any) -> int | str:
    """Return the relation of an edge by its type and, where they are given, the kinds of its ends; or why not."""
    if etype is None and kinds.untyped is not None:
        return kinds.untyped
    if type(etype) is not str:
        what = "missing" if etype is None else f"got {show(etype)}"
        expected = f"expected one of the model's edge types {some_names(kinds.types)}"
        return f"type: {what}, {expected}" if etype is None else f"type: expected a string, {what}"
    if source is None and target is None and etype in kinds.sole:
        return kinds.sole[etype]
    given = {name: value for name, value in (("src_kind", source), ("dst_kind", target)) if value is not None}
    given = given if kinds.are_named else {}
    for name, value in given.items():
        if error := kind_error(kinds, name, value):
            return error
    codes = [kinds.kind_codes[given[name]] if name in given else None for name in ("src_kind", "dst_kind")]
    found, every = kinds.matching(etype, *codes), kinds.matching(etype, None, None)
    if not every:
        return f"type: expected one of the model's edge types {some_names(kinds.types)}, got {show(etype)}"
    ways = " or ".join(f"from {a} to {b}" for a, _, b in (kinds.triple(kinds.relations[k]) for k in every))
    if not found:
        name = "dst_kind" if codes[0] is None or kinds.matching(etype, codes[0], None) else "src_kind"
        return f"{name}: edges of {etype!r} lead {ways}, got {show(given[name])}"
    if len(found) > 1:
        sources = {kinds.relations[k].source for k in found}
        return f"{'src_kind' if len(sources) > 1 else 'dst_kind'}: missing, edges of {etype!r} lead {ways}"
    if (mirrored := kinds.relations[found[0]].mirrors) == NO_MIRROR:
        return found[0]
    return f"type: edges of {etype!r} follow those of {kinds.relations[mirrored].type!r} by themselves, give only those"


def numbers_error(name: str, value: Any, width: int | None, whose: str = "") -> str | None:
    """Describe why the value is no list of finite numbers (of that width, if there is one)."""
    if type(value) is not list:
        return f"{name}: expected a list of numbers, got {show(value)}"
    if width is not None and len(value) != width:
        return f"{name}: expected {width} numbers{whose}, got {len(value)}"
    for k, number in enumerate(value):
        if type(number) not in _NUMBERS:
            return f"{name}: expected numbers, got {show(number)} at index {k}"
        if not -FLOAT32_LIMIT < number < FLOAT32_LIMIT:
            return f"{name}: not finite in float32 at index {k}, got {show(number)}"
    return None


def _op_error(record: Any) -> str:
    if not isinstance(record, dict):
        return f"expected a JSON object, got {show(record)}"
    op = record.get("op")
    if op is None:
        return "op: missing"
    if not isinstance(op, str):
        return f"op: expected a string, got {show(op)}"
    return f"op: expected one of {', '.join(OP_NAMES)}, got {show(op)}"
