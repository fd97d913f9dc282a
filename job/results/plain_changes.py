"""A map of `events-map`, applied a second time for `freshet check`: flags as text, keys without values, old rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import jmespath
import orjson
from jmespath.visitor import TreeInterpreter

WHEN, KEY = "when", "__key"
_ZEROS = ("AA==", "false")
_DELETES = ("del_edge", "del_vertex")
_SENDS_WHOLE = {"mysql", "mariadb", "oracle", "sqlserver", "db2", "mongodb"}


class _Functions(jmespath.functions.Functions):
    """JMESPath's, and that of Freshet."""

    @jmespath.functions.signature({"types": ["string", "null"]})
    def _func_from_json(self, text: str | None) -> Any:
        return orjson.loads(text) if text is not None else None


_FUNCTIONS = jmespath.Options(custom_functions=_Functions())


def is_true(value: Any) -> bool:
    """Return whether a condition takes it as true: all but false, null, what is empty, and the text "false"."""
    if isinstance(value, str):
        return value.lower() not in ("", "false")
    return value is not None and value is not False and value not in ([], {})


class _Decision(TreeInterpreter):
    def _is_false(self, value: Any) -> bool:
        return not is_true(value)

    def visit_not_expression(self, node: Any, value: Any) -> bool:
        return not is_true(self.visit(node["children"][0], value))


def _names(node: Any) -> Iterator[list[str]]:
    """The dotted names in an expression, as lists; "" stands for a part that is no name."""
    first, *rest = node["children"] or [None]
    if node["type"] == "field":
        yield [node["value"]]
    elif node["type"] == "current":
        yield []
    elif node["type"] == "subexpression":
        tail = [one.get("value") or "" if one["type"] == "field" else "" for one in rest]
        yield from (path + tail for path in _names(first))
        yield from (path for one in rest if one["type"] != "field" for path in _names(one))
    else:
        yield from (path for one in node["children"] if isinstance(one, dict) for path in _names(one))


class PlainMap:
    """The expressions of one map, by field; `when` is its condition."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._all = {name: jmespath.compile(text) for name, text in expressions.items()}
        named = [path for one in self._all.values() for path in _names(one.parsed)]
        self.reads_key = any(KEY in path for path in named)
        self.makes_event = self._all.keys() != {WHEN}
        ids = [path for name in ("id", "src", "dst") if name in self._all for path in _names(self._all[name].parsed)]
        after = [path[path.index("before") + 1 :] for path in ids if "before" in path]
        self._old = {path[0] for path in after if path}
        self._in_text = any("from_json(" in expressions[name] for name in ("id", "src", "dst") if name in expressions)
        self._own = set[str]() if after else {path[0] for path in ids if len(path) == 1}

    def holds(self, record: Any) -> bool:
        """Return whether its condition holds."""
        return WHEN not in self._all or is_true(_Decision(_FUNCTIONS).visit(self._all[WHEN].parsed, record))

    def fields(self, record: Any) -> dict[str, Any]:
        """The fields of the event that it makes of a record."""
        return {
            name: _Decision(_FUNCTIONS).visit(one.parsed, record) if name == "op" else one.search(record, _FUNCTIONS)
            for name, one in self._all.items()
            if name != WHEN
        }

    def lacks_row(self, record: Any) -> bool:
        """Return whether it deletes in a change by an old row that was not sent."""
        inner = _change_in(record)
        if not (self._old and inner and inner["op"] in ("u", "d") and inner.get("before") is None):
            return False
        new: Any = inner.get("after")
        new = new if isinstance(new, dict) else dict.fromkeys(self._old, True)
        moved = {name: [value] for name, value in new.items()}
        tried = [(self._try(record, inner, row), row is moved) for row in (new, moved)]
        return any(op == "del_edge" or (op == "del_vertex" and not is_moved) for op, is_moved in tried)

    def _try(self, record: Any, inner: dict[str, Any], row: Any) -> Any:
        """The operation that it would make with an old row."""
        change = inner | {"before": orjson.dumps(row).decode() if self._in_text else row}
        whole = change if inner is record else record | {"payload": change}
        try:
            return self.fields(whole)["op"] if self.holds(whole) else None
        except Exception:  # it does not apply
            return None

    def has_key_alone(self, op: Any, record: Any) -> bool:
        """Return whether its event deletes by a row of which the key alone was sent."""
        inner = _change_in(record)
        if op not in _DELETES:
            return False
        if self._old and inner and inner["op"] in ("u", "d"):
            row, names = inner.get("before"), self._old
            if row is None:
                return True
        elif self._own and isinstance(record, dict) and {"__op", "__deleted"} & record.keys():
            row, names = {name: value for name, value in record.items() if name[:2] != "__"}, self._own
        else:
            return False
        if not isinstance(row, dict):
            return False
        origin = (inner or {}).get("source")
        if isinstance(origin, dict) and origin.get("connector") in _SENDS_WHOLE:
            return False
        if any(row.get(name) is None for name in names):
            return True
        rest = [row[name] for name in row if name not in names]
        said = [value for value in rest if not _is_zero(value) and value not in _ZEROS and not _is_epoch(value)]
        if not all(_is_zero(row[name]) for name in names) or not all(type(one) in (int, str) for one in said):
            return False
        if op == "del_vertex":
            return len(rest) > 1 and len(said) == 1 and type(said[0]) is int
        return len(said) < len(rest) or len(rest) == 1


def _change_in(record: Any) -> dict[str, Any] | None:
    for one in (record, record.get("payload")) if isinstance(record, dict) else ():
        if isinstance(one, dict) and "op" in one and {"before", "after"} & one.keys():
            return one
    return None


def _is_zero(value: Any) -> bool:
    if type(value) is str:
        return value in ("", str(UUID(int=0)))
    return value is None or value in (False, 0, [], {})


def _is_epoch(value: Any) -> bool:
    return type(value) is str and (value.startswith("1970-01-01") or not value.strip("0."))
