"""Foreign records as events, by JMESPath (`events_map:` of the configuration)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

from freshet.errors import InputError
from freshet.operators.parser.changes import (
    DEL_VERTEX,
    DELETIONS,
    NOT_SENT,
    Decision,
    Expression,
    OldRow,
    paths_of,
    value_of,
    with_old_rows,
)
from freshet.operators.parser.keys import KEY_FIELD
from freshet.operators.parser.messages import KEY
from freshet.operators.parser.rules import FIELDS, ID_FIELDS, KIND_FIELDS, Field, Prepare, Rules, with_integers
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import OP_NAMES

WHEN = "when"

Expressions = Mapping[str, str] | Sequence[Mapping[str, str]]
"""A map for one event of each record, or several, each with its condition."""


class MapFailedError(ValueError):
    """An expression that does not apply to a record; the record is rejected."""


class EventMap:
    """Applies one JMESPath expression per event field; fields without an expression are absent.

    Raises:
        ValueError: a field that events do not have, or an expression that does not parse; both are named.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        unknown = sorted(set(expressions) - {*FIELDS, *KIND_FIELDS, KEY_FIELD})
        if unknown:
            msg = f"expected fields among {', '.join((*FIELDS, KEY_FIELD, *KIND_FIELDS))}, got {', '.join(unknown)}"
            raise ValueError(msg)
        self._compiled = {}
        for field, expression in expressions.items():
            self._compiled[field] = _compiled(field, expression, Decision if field == "op" else Expression)
        self._refuse_other_ops()
        self.old = OldRow({name: one for name, one in self._compiled.items() if name in ID_FIELDS})
        self.reads_key = any(map(_reads_key, self._compiled.values()))

    def _refuse_other_ops(self) -> None:
        """See that `op` can be one.

        Raises:
            ValueError: it has no expression, or one that is never an operation, such as its name without backquotes.
        """
        if "op" not in self._compiled:
            msg = 'op: missing; give a field, or an operation for all records, such as "`add_edge`"'
            raise ValueError(msg)
        parsed = self._compiled["op"].parsed
        kind, value, expression = parsed["type"], parsed.get("value"), self._compiled["op"].expression
        if kind == "field" and value in OP_NAMES:
            msg = (
                f"op: {expression!r} is the field {value} of a record; for the operation write it in "
                f'backquotes: "`{value}`"'
            )
            raise ValueError(msg)
        if kind == "literal" and value not in OP_NAMES:
            msg = f"op: {expression!r} is always {value!r}, expected one of {', '.join(OP_NAMES)}"
            raise ValueError(msg)

    @property
    def fields(self) -> Collection[str]:
        """The fields that have an expression."""
        return self._compiled.keys()

    @property
    def plain(self) -> dict[str, Any] | None:
        """Mapping as in `Rules.plain_map`, if all expressions are fields or literals."""
        parsed = {field: one.parsed for field, one in self._compiled.items()}
        if any(one["type"] not in ("field", "literal") for one in parsed.values()):
            return None
        return {field: Field(one["value"]) if one["type"] == "field" else one["value"] for field, one in parsed.items()}

    def explain(self, error: str, record: Any) -> str:
        """Explain why an event was rejected, with the expression if it yields nothing, or a list for a single value."""
        field, _, why = error.partition(": ")
        compiled = self._compiled.get(field)
        if compiled is not None and why.endswith("got a list"):
            return f"{error}: events_map `{compiled.expression}`: a map makes one event; take an element, as by [0]"
        if not why.startswith("missing"):
            return error
        if compiled is None:
            return f"{error}: events_map has no expression for it"
        return f"{error}{_json_text_in(compiled, record)}: events_map `{compiled.expression}` gives null"

    def __call__(self, record: Any) -> dict[str, Any]:
        """The event's fields.

        Raises:
            MapFailedError: an expression does not apply to this record.
        """
        return {field: _applied(field, one.search, record) for field, one in self._compiled.items()}


class ConditionalMap:
    """One of several maps: the event that it makes of a record, if its condition `when` holds.

    A map with `when` alone makes no event: records for which it holds are skipped.

    Raises:
        ValueError: as `EventMap`.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        fields = dict(expressions)
        condition = fields.pop(WHEN, None)
        self._condition = None if condition is None else _compiled(WHEN, condition, Decision)
        self.event = EventMap(fields) if fields or condition is None else None
        in_event = self.event is not None and self.event.reads_key
        self.reads_key = in_event or (self._condition is not None and _reads_key(self._condition))

    def holds(self, record: Any) -> bool:
        """Return whether the condition holds.

        Raises:
            MapFailedError: it does not apply to this record.
        """
        return self._condition is None or _applied(WHEN, self._condition.holds, record)

    def lacks_old_row(self, record: Any) -> bool:
        """Return whether it would delete by a row that a change in a table came without."""
        if self.event is None or not self.event.old.names:
            return False
        for whole, differs in with_old_rows(record, self.event.old):
            try:
                op = self.event(whole).get("op") if self.holds(whole) else None
            except MapFailedError:
                continue
            if op in DELETIONS and not (differs and op == DEL_VERTEX):  # the key of a vertex would have come
                return True
        return False

    def hint(self, record: Any) -> str:
        """Advice on a string of JSON that the condition reads."""
        return "" if self._condition is None else _json_text_in(self._condition, record)


class MappedRules(Rules):
    """The rules for foreign records: each is mapped first, and a reason names the expression that gave nothing."""

    is_mapped = True

    def __init__(self, expressions: Expressions, *rules: Any) -> None:
        """`rules` are the arguments of Rules."""
        super().__init__(*rules)
        self._map, self._several = EventMap({"op": "op"}), list[ConditionalMap]()
        if isinstance(expressions, Mapping):
            self._map = EventMap(expressions)
        else:
            self._several = several_maps(expressions)
        self._refuse_kinds([self._map, *(one.event for one in self._several if one.event is not None)])
        self.reads_keys = reads_keys(expressions)
        self.skips_tombstones = bool(self._several)

    @property
    def plain_map(self) -> Mapping[str, Any] | None:
        """See `Rules.plain_map`."""
        return None if self._several else self._map.plain

    def _refuse_kinds(self, maps: Sequence[EventMap]) -> None:
        """See that no map has fields of kinds where the model has none.

        Raises:
            InputError: one has.
        """
        named = [name for one in maps for name in one.fields if name not in self.fields]
        if named:
            msg = f"events_map: {named[0]}: the model has no kinds of vertices, so leave this field out"
            raise InputError(msg)

    def append(self, record: Any, builder: EventBuilder, position: int) -> str | None:
        """Append the events of a record, as Rules do."""
        return self._append(record, builder, position, lambda event, _: event)

    def append_row(
        self, record: dict[str, Any], builder: EventBuilder, position: int, prepare: Prepare = with_integers
    ) -> str | None:
        """Append the events of a row of a table, as Rules do; ids are whole once they are mapped."""
        return self._append(record, builder, position, prepare)

    def _append(self, record: Any, builder: EventBuilder, position: int, prepare: Prepare) -> str | None:
        try:
            if self._several:
                return self._append_all(record, builder, position, prepare)
            event = prepare(self._map(record), self.keys.field)
        except MapFailedError as error:
            return str(error)
        if (why := self._map.old.why_not(event.get("op"), record)) is not None:
            return why
        refusal = super().append(event, builder, position)
        return None if refusal is None else self._map.explain(refusal, record)

    def _append_all(self, record: Any, builder: EventBuilder, position: int, prepare: Prepare) -> str | None:
        """Append the events of all maps whose conditions hold, or none of them."""
        is_tombstone = self.reads_keys and type(record) is dict and record.keys() == {KEY}
        holding = [one.event for one in self._several if (one.reads_key or not is_tombstone) and one.holds(record)]
        found = [(one, prepare(one(record), self.keys.field)) for one in holding if one is not None]
        if is_tombstone and not found:
            builder.tombstones += 1
            return None
        if any(one.lacks_old_row(record) for one in self._several):
            return NOT_SENT
        if not holding:
            hints = filter(None, (one.hint(record) for one in self._several))  # a string of JSON that one reads
            return "no map of events_map has a condition that holds" + next(hints, "")
        for one, event in found:
            if (why := one.old.why_not(event.get("op"), record)) is not None:
                return why
        decided, scratch = (self._id_type, self.keys.kind), self.builder() if len(found) > 1 else builder
        for one, event in found:
            if (why := super().append(event, scratch, position)) is not None:
                self._id_type, self.keys.kind = decided  # nothing of the record is taken
                return one.explain(why, record)
        if len(found) > 1:
            self._id_type, self.keys.kind = decided  # the builder is to note them, too
            for _, event in found:
                super().append(event, builder, position)
        return None


def reads_keys(expressions: Expressions | None) -> bool:
    """Return whether messages without a value are records of their keys under these maps."""
    maps = [expressions] if isinstance(expressions, Mapping) else expressions or []
    return any(KEY in path for one in maps for name in one for path in paths_of(_compiled(name, one[name]).parsed))


def several_maps(given: Sequence[Mapping[str, str]]) -> list[ConditionalMap]:
    """Return the maps of a list.

    Raises:
        ValueError: a map that is none, by its number, or no map at all.
    """
    if not given:
        msg = "got an empty list, expected a map for each event of a record"
        raise ValueError(msg)
    maps = []
    for number, one in enumerate(given, 1):
        if not isinstance(one, Mapping):
            msg = f"{number}: got {type(one).__name__}, expected a mapping such as `src: user.id`"
            raise ValueError(msg)
        try:
            maps.append(ConditionalMap(one))
        except ValueError as error:
            msg = f"{number}: {error}"
            raise ValueError(msg) from error
    return maps


def _reads_key(one: Any) -> bool:
    return any(KEY in path for path in paths_of(one.parsed))


def _json_text_in(compiled: Any, record: Any) -> str:
    """Advice on a string of JSON that an expression takes for an object or a list; empty where it takes none."""
    name = _json_text(compiled.parsed, record)
    if name is None:
        return ": the record is a list, of which [0] is an element" if type(record) is list else ""
    return f": {name} is a string of JSON, so write from_json({name})"


def _json_text(node: Mapping[str, Any], record: Any) -> str | None:
    """The name of what an expression goes into, if that is a string of JSON."""
    inner = [one for one in node["children"] if isinstance(one, Mapping)]
    for one in inner:
        if (name := _json_text(one, record)) is not None:
            return name
    if node["type"] not in ("subexpression", "index_expression", "projection", "value_projection"):
        return None
    try:
        value = value_of(inner[0], record)
    except Exception:  # of a part alone, which another part may guard: it is only looked at for a hint
        return None
    is_json = type(value) is str and value.lstrip()[:1] in ("{", "[")
    return _name_of(inner[0]) if is_json else None


def _name_of(node: Mapping[str, Any]) -> str:
    """A field, or fields within fields, as they are written."""
    if node["type"] == "field":
        return str(node["value"])
    return ".".join(_name_of(one) for one in node["children"]) if node["type"] == "subexpression" else "it"


def _compiled(field: str, expression: object, of: type[Expression] = Expression) -> Any:
    """An expression.

    Raises:
        ValueError: it is none.
    """
    try:
        with warnings.catch_warnings():
            # `add_edge` as a literal without JSON quotes is old JMESPath, and still what people write
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            return of(jmespath.compile(expression))
    except (JMESPathError, TypeError) as error:
        why = " ".join(str(error).split()) if isinstance(expression, str) else "expected text"
        msg = f"{field}: {expression!r} is no JMESPath expression: {why}"
        raise ValueError(msg) from error


def _applied(field: str, asked: Callable[[Any], Any], record: Any) -> Any:
    try:
        return asked(record)
    except Exception as error:  # a foreign expression on foreign data fails in any way it likes
        msg = f"{field}: events_map does not apply: {error}"
        raise MapFailedError(msg) from error
