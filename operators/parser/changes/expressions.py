"""JMESPath as `events-map` has it: with JSON within strings, and the text "false" as false in what decides."""

from __future__ import annotations

from typing import Any

import jmespath
import orjson
from jmespath.functions import Functions, signature
from jmespath.parser import ParsedResult
from jmespath.visitor import TreeInterpreter


class _Functions(Functions):
    """The functions of JMESPath, and one for JSON within a string, as Debezium writes MongoDB's documents."""

    @signature({"types": ["string", "null"]})
    def _func_from_json(self, text: str | None) -> Any:
        """The value that a text says as JSON; null of null."""
        return None if text is None else orjson.loads(text)


class _Deciding(TreeInterpreter):
    """JMESPath takes all text as true that is not empty: `__deleted: "false"` would make a deletion of an insert."""

    def _is_false(self, value: Any) -> bool:
        return super()._is_false(value) or (type(value) is str and value.lower() == "false")

    def visit_not_expression(self, node: Any, value: Any) -> bool:
        """Return whether an operand is false."""
        return self._is_false(self.visit(node["children"][0], value))


_OPTIONS = jmespath.Options(custom_functions=_Functions())
_PLAIN, _DECIDING = TreeInterpreter(_OPTIONS), _Deciding(_OPTIONS)


def value_of(node: Any, record: Any) -> Any:
    """Return what a parsed expression gives for a record."""
    return _PLAIN.visit(node, record)


class Expression:
    """A compiled expression."""

    def __init__(self, compiled: ParsedResult) -> None:
        self.expression, self.parsed = compiled.expression, compiled.parsed

    def search(self, record: Any) -> Any:
        """Return what the expression gives for a record."""
        return value_of(self.parsed, record)


class Decision(Expression):
    """One that decides whether there is an event, or which."""

    def search(self, record: Any) -> Any:
        """Return what the expression gives for a record."""
        return _DECIDING.visit(self.parsed, record)

    def holds(self, record: Any) -> bool:
        """Return whether what it gives is true."""
        return not _DECIDING._is_false(self.search(record))
