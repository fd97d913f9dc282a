"""Foreign records as events, by JMESPath (`events_map:` of the configuration)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

from freshet.operators.parser.rules import FIELDS, Field, Rules, with_integers
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import OP_NAMES


class MapFailedError(ValueError):
    """An expression that does not apply to a record; the record is rejected."""


class EventMap:
    """Applies one JMESPath expression per event field; fields without an expression are absent.

    Raises:
        ValueError: a field that events do not have, or an expression that does not parse; both are named.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        unknown = sorted(set(expressions) - set(FIELDS))
        if unknown:
            msg = f"expected fields among {', '.join(FIELDS)}, got {', '.join(unknown)}"
            raise ValueError(msg)
        self._compiled = {}
        for field, expression in expressions.items():
            try:
                with warnings.catch_warnings():
                    # `add_edge` as a literal without JSON quotes is old JMESPath, and still what people write
                    warnings.simplefilter("ignore", PendingDeprecationWarning)
                    self._compiled[field] = jmespath.compile(expression)
            except (JMESPathError, TypeError) as error:
                why = " ".join(str(error).split()) if isinstance(expression, str) else "expected text"
                msg = f"{field}: {expression!r} is no JMESPath expression: {why}"
                raise ValueError(msg) from error
        self._refuse_other_ops()

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
    def plain(self) -> dict[str, Any] | None:
        """Mapping as in `Rules.plain_map`, if all expressions are fields or literals."""
        parsed = {field: one.parsed for field, one in self._compiled.items()}
        if any(one["type"] not in ("field", "literal") for one in parsed.values()):
            return None
        return {field: Field(one["value"]) if one["type"] == "field" else one["value"] for field, one in parsed.items()}

    def explain(self, error: str) -> str:
        """Explain why an event was rejected, with the expression if it yields nothing."""
        field, _, why = error.partition(": ")
        if not why.startswith("missing"):
            return error
        compiled = self._compiled.get(field)
        said = "has no expression for it" if compiled is None else f"`{compiled.expression}` gives null"
        return f"{error}: events_map {said}"

    def __call__(self, record: Any) -> dict[str, Any]:
        """The event's fields.

        Raises:
            MapFailedError: an expression does not apply to this record.
        """
        fields = {}
        for field, expression in self._compiled.items():
            try:
                fields[field] = expression.search(record)
            except Exception as error:  # a foreign expression on foreign data fails in any way it likes
                msg = f"{field}: events_map does not apply: {error}"
                raise MapFailedError(msg) from error
        return fields


class MappedRules(Rules):
    """The rules for foreign records: each is mapped first, and a reason names the expression that gave nothing."""

    is_mapped = True

    def __init__(self, expressions: Mapping[str, str], *told: Any) -> None:
        """`told` are the arguments of Rules."""
        super().__init__(*told)
        self._map = EventMap(expressions)

    @property
    def plain_map(self) -> Mapping[str, Any] | None:
        """See `Rules.plain_map`."""
        return self._map.plain

    def append(self, record: Any, builder: EventBuilder, position: int) -> str | None:
        """Append the event of a record, as Rules do."""
        try:
            event = self._map(record)
        except MapFailedError as error:
            return str(error)
        return self._explained(super().append(event, builder, position))

    def append_row(self, record: dict[str, Any], builder: EventBuilder, position: int) -> str | None:
        """Append the event of a row of a table, as Rules do; ids are whole once they are mapped."""
        try:
            event = self._map(record)
        except MapFailedError as error:
            return str(error)
        return self._explained(super().append(with_integers(event), builder, position))

    def _explained(self, why: str | None) -> str | None:
        return None if why is None else self._map.explain(why)
