"""Rules of events, implemented a second time for `freshet check`: slow, obvious, without the Parser's code.

Whoever changes what the job accepts changes it here as well; until then `freshet check` fails, which is its purpose.
Each rule is a small function that says whether one value keeps it.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from freshet.job.results.plain_changes import KEY, PlainMap
from freshet.job.results.plain_text import from_text
from freshet.schema import ATTR, PLAIN_EDGE, WEIGHT, EdgeRow, Features, edge_row

Id = int | str


VERTEX_OPS, EDGE_OPS = ("add_vertex", "del_vertex", "set_features"), ("add_edge", "del_edge")
KINDS: dict[str, type] = {"int": int, "string": str}
ID_NAMES = ("id", "src", "dst")
INTEGER_NAMES = (*ID_NAMES, "ts", "type")
ID_BYTES_MAX = 1024
_NUMBERS = frozenset((int, float))
NO_TYPE = ""  # the edge type of models without types where an event names none


class Event(NamedTuple):
    """An accepted event; `x` and `values` are what it brings with it to a vertex or an edge.

    Where vertices have kinds, `a` and `b` are pairs of a kind and an id.

    Shapes: x (features,) float32
    """

    op: str
    a: Any
    b: Any = None
    x: np.ndarray | None = None
    values: EdgeRow = PLAIN_EDGE
    type: str = NO_TYPE
    ts: int | None = None
    key: Any = None


class PlainRules:
    """The rules of one job: what it takes, and what an event without a type means.

    Args:
        features: the model's raw features.
        id_kind: "int" or "string"; None while the first accepted event is to decide it.
        edge_types: the edge types of a typed model.
        events_map: JMESPath expressions by event field; or several such maps, each with a condition `when`.
        id_bytes_max: longest id, and name of an edge type, in bytes of UTF-8.
        cast_ids: integers are ids, too, and mean the strings that write them.
        ts_unit: the unit of integers in `ts`: s, ms, us or ns.
        edge_keys: the kind of keys that edges have, "int" or "string"; empty: none.
        edge_key: the field that has them, `key` if empty; `offset`: each added edge has the key of its place.
    """

    def __init__(
        self,
        features: Features,
        id_kind: str | None = None,
        edge_types: Sequence[str] | None = None,
        events_map: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
        id_bytes_max: int = ID_BYTES_MAX,
        cast_ids: bool = False,
        ts_unit: str = "ms",
        edge_keys: str = "",
        edge_key: str = "",
    ) -> None:
        self.by_offset, self._edge_keys = edge_key == "offset", edge_keys
        self.key_name = "key" if self.by_offset or not edge_key else edge_key
        self.cast_ids = cast_ids
        self.features, self.edge_types, self.id_bytes_max = features, tuple(edge_types or ()), id_bytes_max
        self.ts_unit = ts_unit
        self._id_type: type | None = None if id_kind is None else KINDS[id_kind]
        self.default_type = self.edge_types[0] if self.edge_types else NO_TYPE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)  # a literal without JSON quotes, as people write
            self.is_several = isinstance(events_map, Sequence)
            maps = [events_map or {}] if isinstance(events_map, Mapping | None) else events_map
            self._maps = [PlainMap(one) for one in maps if one]
        self.reads_keys = any(one.reads_key for one in self._maps)

    @property
    def is_mapped(self) -> bool:
        """True if records are mapped by `events-map`, so that any of their fields may be needed."""
        return bool(self._maps)

    @property
    def more_fields(self) -> tuple[str, ...]:
        """The fields of events beside those of every job."""
        return ()

    def takes_ids_of(self, kind: type) -> bool:
        """Return whether ids are of this kind; the first call decides the kind if none is set."""
        self._id_type = self._id_type or kind
        return self._id_type is kind

    def events(
        self, record: Any, is_row: bool = False, lacks_presence: bool = False, is_text: bool = False
    ) -> list[Event | None]:
        """The events of a record; a single None where it is rejected, nothing where it is skipped.

        `lacks_presence`: of Protobuf, where a field that was never set may have a value that is nothing; `is_text`: of
        CSV, where every value is text.
        """
        whole = self._without_nothing if lacks_presence else self._of_text if is_text else lambda one: one
        if not self.is_mapped:
            return [self.judge(whole(record), is_row)]
        is_key, before = self.reads_keys and type(record) is dict and record.keys() == {KEY}, self._id_type
        maps = [one for one in self._maps if one.reads_key or not is_key] if self.is_several else self._maps
        try:
            holding = [one for one in maps if one.holds(record)]
            mapped = [(one, whole(one.fields(record))) for one in holding if one.makes_event]
        except Exception:  # an expression that does not apply to this record
            return [None]
        if is_key and self.is_several and not mapped:
            return []
        if self.is_several and (not holding or any(one.lacks_row(record) for one in maps)):
            return [None]
        if any(one.has_key_alone(fields.get("op"), record) for one, fields in mapped):
            return [None]
        found = [self.judge(fields, is_row) for _, fields in mapped]
        if all(event is not None for event in found):
            return found
        self._id_type = before  # nothing of the record is taken
        return [None]

    def judge(self, record: Any, is_row: bool = False) -> Event | None:
        """The event that a record is (or a row of a table, where whole floats are ids); None where it is rejected."""
        if type(record) is not dict:
            return None
        if is_row:
            integers = (*INTEGER_NAMES, self.key_name)
            record = {name: as_id(value) if name in integers else value for name, value in record.items()}
            record |= {name: without_times(value) for name, value in record.items() if name != "ts"}
        record = self._written(record)
        op = record.get("op")
        if type(op) is not str:
            return None
        ts = record.get("ts")
        if ts is not None:
            ts = self._milliseconds(ts)
            if ts is None or not -(2**63) < ts < 2**63:
                return None
        event = self._vertex(op, record) if op in VERTEX_OPS else self._edge(op, record) if op in EDGE_OPS else None
        if event is not None and ts is not None:
            event = event._replace(ts=ts)
        if event is not None and event.b is not None and (key := record.get(self.key_name)) is not None:
            event = event._replace(key=key) if self._is_key(key, op) else None
        if event is not None and self._id_type is None:
            self._id_type = type(event.a)
        return event

    def _written(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with text for integers that mean it: ids that are cast, and types of the model."""
        names = ID_NAMES if self.cast_ids else ()
        found = {name: str(record[name]) for name in names if type(record.get(name)) is int}
        if type(number := record.get("type")) is int and str(number) in self.known_types:
            found["type"] = str(number)
        return {**record, **found} if found else record

    @property
    def known_types(self) -> tuple[str, ...]:
        """The edge types that the model names; none where it takes any."""
        return self.edge_types

    def _milliseconds(self, ts: Any) -> int | None:
        """A `ts` in milliseconds since 1970, rounded down; None for what is no time."""
        if type(ts) is not int:
            return getattr(ts, "ms", None)  # of a value that says a time by its type
        seconds_of = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        return math.floor(Fraction(ts, seconds_of[self.ts_unit]) * 1000)

    def _of_text(self, record: Any) -> Any:
        return from_text(record, self._id_type, self.key_name, self._edge_keys)

    def _without_nothing(self, record: Any) -> Any:
        if type(record) is not dict:
            return record
        nothing: dict[str, Any] = {"attr": [], "type": "", "kind": "", "src_kind": "", "dst_kind": ""}
        if getattr(key := record.get(self.key_name), "text", key) == "":
            record = {name: value for name, value in record.items() if name != self.key_name}
        if record.get("op") == "add_vertex":
            nothing["x"] = []
        if self.is_mapped:
            nothing["ts"] = 0
        return {name: value for name, value in record.items() if name not in nothing or value != nothing[name]}

    def _vertex(self, op: str, record: dict[str, Any]) -> Event | None:
        vertex, x = record.get("id"), record.get("x")
        if not self._is_id(vertex):
            return None
        if op == "del_vertex" or (op == "add_vertex" and x is None):
            return Event(op, vertex)
        row = float32s(x)
        return None if row is None or len(row) != self.features.width else Event(op, vertex, x=row)

    def _edge(self, op: str, record: dict[str, Any]) -> Event | None:
        src, dst, kind = record.get("src"), record.get("dst"), record.get("type")
        if not (self._is_id(src) and self._is_id(dst) and type(src) is type(dst) and self.is_type(kind)):
            return None
        carried: dict[str, float] = {}
        attr: list[float] | None = None
        name = self.default_type if kind is None else kind
        if op == "add_edge":
            given, listed = record.get("weight"), record.get("attr")
            if given is not None:
                number = float32(given)
                if number is None:
                    return None
                carried[WEIGHT] = number
            if listed is not None:
                numbers = float32s(listed)
                if numbers is None:
                    return None
                if not self.features.given_edge_width:
                    carried[ATTR] = len(numbers)
                elif len(numbers) == self.features.given_edge_width and self._are_categories(numbers):
                    attr = numbers.tolist()
                else:
                    return None
            if self.features.types:
                attr = [float(one == name) for one in self.edge_types] + (
                    attr or [0.0] * self.features.given_edge_width
                )
        return Event(op, src, dst, values=edge_row(carried, attr), type=name)

    def _are_categories(self, numbers: np.ndarray) -> bool:
        """Return whether attributes that number categories are whole and in their range."""
        counts = self.features.categories or (0,) * len(numbers)
        return all(not count or one in range(count) for one, count in zip(numbers.tolist(), counts, strict=True))

    def _is_key(self, value: Any, op: str) -> bool:
        if value == "*" or not self._edge_keys or self.by_offset:
            return value == "*" and op == "del_edge" and self._edge_keys != ""
        if type(value) is not KINDS[self._edge_keys]:
            return False
        if isinstance(value, int):
            return -(2**63) < value < 2**63
        return value != "" and is_short_text(str(value), self.id_bytes_max)

    def _is_id(self, value: Any) -> TypeGuard[Id]:
        if type(value) not in KINDS.values() or self._id_type not in (None, type(value)):
            return False
        return is_int64(value) if type(value) is int else is_short_text(value, self.id_bytes_max)

    def is_type(self, value: Any) -> bool:
        """Return whether it is absent, or a name: one of the model's if it has types."""
        if value is None or type(value) is not str:
            return value is None
        return value in self.edge_types if self.edge_types else value != "" and is_short_text(value, self.id_bytes_max)


def as_id(value: Any) -> Any:
    """An integer for a float that says one exactly."""
    return int(value) if type(value) is float and -(2**53) <= value <= 2**53 and value % 1 == 0 else value


def without_times(value: Any) -> Any:
    """A number for one that its schema calls a time, which matters in `ts` alone; also in a list."""
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return int(value) if isinstance(value, int) and hasattr(value, "ms") else value


def is_int64(value: int) -> bool:
    """Return whether it takes at most 64 bits."""
    return -(2**63) <= value < 2**63


def is_short_text(value: str, bytes_max: int) -> bool:
    """Return whether it is text (without lone surrogates) of at most `bytes_max` bytes."""
    try:
        return len(value) <= bytes_max and len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def float32(value: Any) -> float | None:
    """A number as float32; None where it is none, or not finite there."""
    row = float32s([value])
    return None if row is None else float(row[0])


def float32s(values: Any) -> np.ndarray | None:
    """A list of numbers as float32; None where it is something else, or one of them is not finite there."""
    if type(values) is not list or not _NUMBERS.issuperset(map(type, values)):
        return None
    try:
        row = np.frombuffer(struct.pack(f"{len(values)}f", *values), np.float32)
    except OverflowError:
        return None
    return row if np.isfinite(row).all() else None
