"""Changes of tables as records: expressions that are true of them, and old rows that a database has not sent.

PostgreSQL sends the key of an old row alone, unless its table has REPLICA IDENTITY FULL: `before` is null in an update,
and in a deletion all fields but the key are null, or 0 and "" where they can't be null. Such a record can't say which
edge goes; without these rules the old edge would stay, or another one go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jmespath
import orjson
from jmespath.functions import Functions, signature
from jmespath.parser import ParsedResult
from jmespath.visitor import TreeInterpreter

from freshet.partitioner.events import OP_DEL_EDGE, OP_DEL_VERTEX, OP_NAMES


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


BEFORE, AFTER, PAYLOAD = "before", "after", "payload"
DEL_EDGE, DEL_VERTEX = DELETIONS = OP_NAMES[OP_DEL_EDGE], OP_NAMES[OP_DEL_VERTEX]
_ADVICE = (
    " (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL); or, where updates can't change what the map reads, let it "
    "delete in deletions alone (when: op == 'd')"
)
# Reasons are counted by their first 80 characters.
NOT_SENT = f"before: null, but the map needs the old row: set REPLICA IDENTITY FULL{_ADVICE}"
KEY_ALONE = f"before: a key, but the map needs the old row: set REPLICA IDENTITY FULL{_ADVICE}"
# As text: of any type, such as numbers, decimals as bytes, dates and flags; and of those that ids have.
_EMPTY_TEXT = re.compile(r"[0.]*|AA==|1970-01-01.*|false|0{8}(-0{4}){3}-0{12}")
_EMPTY_ID = re.compile(r"|0{8}(-0{4}){3}-0{12}")
# Debezium's connectors of databases that send no placeholders.
_NO_PLACEHOLDERS = frozenset(("mysql", "mariadb", "oracle", "sqlserver", "db2", "mongodb"))


def paths_of(node: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return the paths of fields in a parsed expression, as far as they are names."""
    if node["type"] == "field":
        yield (node["value"],)
    elif node["type"] == "current":
        yield ()
    elif node["type"] == "subexpression":
        ends = tuple(one["value"] if one["type"] == "field" else "" for one in node["children"][1:])
        for path in paths_of(node["children"][0]):
            yield (*path, *ends)
        for one in node["children"][1:]:
            if one["type"] != "field":
                yield from paths_of(one)
    else:
        for one in node["children"]:
            if isinstance(one, Mapping):
                yield from paths_of(one)


def _reads_text(node: Mapping[str, Any]) -> bool:
    """Return whether a parsed expression reads JSON within strings."""
    is_it = node["type"] == "function_expression" and node["value"] == "from_json"
    return is_it or any(_reads_text(one) for one in node["children"] if isinstance(one, Mapping))


class OldRow:
    """The fields of an old row that a map's ids are made of."""

    def __init__(self, ids: Mapping[str, Any]) -> None:
        """`ids` are the compiled expressions of `id`, `src` and `dst`, of those that the map has."""
        paths = [path for one in ids.values() for path in paths_of(one.parsed)]
        ends = [path[path.index(BEFORE) + 1 :] for path in paths if BEFORE in path]
        self.names = {path[0] for path in ends if path}
        self.is_text = any(_reads_text(one.parsed) for one in ids.values())
        self._flat = {path[0] for path in paths if len(path) == 1} if not ends else set[str]()

    def why_not(self, op: Any, record: Any) -> str | None:
        """Return why the deletion that a map makes of a record can't be meant; None where nothing speaks against it."""
        if op not in DELETIONS:
            return None
        names, row, changed = self.names, None, envelope_of(record)
        if self.names and changed is not None and changed["op"] in ("u", "d"):
            if (row := changed.get(BEFORE)) is None:
                return NOT_SENT
        elif self._flat and type(record) is dict and ("__op" in record or "__deleted" in record):
            names = self._flat
            row = {name: value for name, value in record.items() if not name.startswith("__")}
        if type(row) is not dict or not names:
            return None
        source = (changed or {}).get("source")
        fills = not isinstance(source, Mapping) or source.get("connector") not in _NO_PLACEHOLDERS
        return KEY_ALONE if _is_key_alone(row, names, op == DEL_EDGE, fills) else None


def envelope_of(record: Any) -> dict[str, Any] | None:
    """Return the part of a record that has Debezium's `op`, and `before` or `after`; None without."""
    for one in (record, record.get(PAYLOAD)) if type(record) is dict else ():
        if type(one) is dict and "op" in one and (BEFORE in one or AFTER in one):
            return one
    return None


def with_old_rows(record: Any, old: OldRow) -> Iterator[tuple[dict[str, Any], bool]]:
    """Return a change without its old row as it might have been sent, and whether anything differs in the new row.

    Nothing for a record that is no such change.
    """
    changed = envelope_of(record)
    if changed is None or changed["op"] not in ("u", "d") or changed.get(BEFORE) is not None:
        return
    after = changed.get(AFTER)
    same = after if type(after) is dict else dict.fromkeys(old.names, True)
    for differs, before in ((False, same), (True, {name: [value] for name, value in same.items()})):
        whole = {**changed, BEFORE: orjson.dumps(before).decode() if old.is_text else before}
        yield (whole if changed is record else {**record, PAYLOAD: whole}), differs


def _is_key_alone(row: Mapping[str, Any], names: set[str], is_edge: bool, fills: bool) -> bool:
    """Return whether the fields in `names` were not sent; `fills`: null or placeholders may stand in their place.

    A row of zeros may be one: an edge from vertex 0 to itself whose other fields are zeros is taken for a placeholder
    where it has another field than its ends. Vertex 0 is not, unless all that is known of it is one integer.
    """
    ids = [row.get(name) for name in names]
    if None in ids:
        return fills
    others = [value for name, value in row.items() if name not in names]
    if not fills or not all(_is_empty(value, _EMPTY_ID) for value in ids):
        return False
    known = [value for value in others if not _is_empty(value, _EMPTY_TEXT)]
    if any(type(value) not in (int, str) for value in known):
        return False
    if is_edge:
        return len(others) > len(known) or 0 < len(others) <= 1
    return len(known) == 1 and type(known[0]) is int and len(others) > 1


def _is_empty(value: Any, text: re.Pattern[str]) -> bool:
    if isinstance(value, str):
        return text.fullmatch(value) is not None
    return value is None or value in (0, [], {})
