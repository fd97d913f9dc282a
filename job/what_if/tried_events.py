"""Reads what a request tries as events of the job, by the job's own Parser and its rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.job.serving.bounds.asked_edges import AS_LIST, FIELDS, LISTED
from freshet.job.serving.bounds.asked_ids import as_stored
from freshet.job.serving.bounds.forms import FormError
from freshet.operators.factory import parser_of
from freshet.operators.live_graph import LiveState
from freshet.operators.parser.config import ParserConfig
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import OFFSET, KeyRules
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, Events
from freshet.partitioner.ids import STRING, Ids

Record = dict[str, Any]
IN, OUT = "in_edges", "out_edges"
_OPS = {"add_edge": OP_ADD_EDGE, "del_edge": OP_DEL_EDGE}
_EDGES = {"del_in_edges": "del_edge", "del_out_edges": "del_edge", IN: "add_edge", OUT: "add_edge"}
_ORIGIN = Origin(0, "what if")


class TriedEvents:
    """Makes events of what is tried on vertices of a job's graph."""

    def __init__(self, live: LiveState, plan: AnyPlan) -> None:
        self._core, self._kinds = live.core, plan.features.kinds
        config = live.settings.parsing
        self._by_offset = config.edge_key == OFFSET
        self._key_rules = KeyRules(config.edge_key, live.settings.partitioning.edge_keys)
        plain = ParserConfig(
            id_bytes_max=config.id_bytes_max,
            cast_ids=config.cast_ids,
            edge_key="" if self._by_offset else config.edge_key,
        )
        self._parser: Parser = parser_of(replace(live.settings, parsing=plain), plan)
        self.is_string = live.settings.id_kind == STRING

    def of(self, item: Mapping[str, Any], kind: str, where: str) -> tuple[Any, Events]:
        """Return the id of the vertex that an item is about, and its events; a vertex without an id gets a new one.

        `kind`: of the vertex; empty where vertices have none. `where` names the item in errors.

        Raises: FormError for what the job would reject, naming the field.
        """
        vertex = self._new_id(item, kind) if item.get("id") is None else self._stored(item["id"], f"{where}id")
        places, records = list[str](), list[Record]()
        for place, record in self._records(item, vertex, kind, where):
            places.append(place)
            records.append(record)
        lines = b"".join(map(_line, places, records))
        events, letters = self._parser.parse_jsonl(lines, _ORIGIN)
        if letters:
            msg = f"{places[letters[0].offset]}{letters[0].error}"
            raise FormError(msg)
        return vertex, events

    def ids(self, values: list[Any], where: str) -> Ids:
        """Return ids as the graph has them."""
        stored = [self._stored(one, where) for one in values]
        try:
            return Ids.of("string" if self.is_string else "int", stored)
        except OverflowError:
            wrong = next(one for one in stored if not -(2**63) <= one < 2**63)
            msg = f"{where}: expected an integer within int64, got {wrong}"
            raise FormError(msg) from None

    def _records(self, item: Mapping[str, Any], vertex: Any, kind: str, where: str) -> Iterator[tuple[str, Record]]:
        for name in ("del_in_edges", "del_out_edges"):
            yield from self._edges(item, name, vertex, kind, where)
        x = {} if item.get("x") is None else {"x": item["x"]}
        named = {"kind": kind} if self._kinds is not None and self._kinds.are_named else {}
        yield where, {"op": "add_vertex", "id": vertex, **x, **named}
        for name in (IN, OUT):
            yield from self._edges(item, name, vertex, kind, where)

    def _edges(
        self, item: Mapping[str, Any], name: str, vertex: Any, kind: str, where: str
    ) -> Iterator[tuple[str, Record]]:
        ends = ("dst", "src") if name.endswith(IN) else ("src", "dst")  # of the vertex, and of the other one
        for number, given in enumerate(item.get(name) or ()):
            place = f"{where}{name}[{number}]"
            fields = _fields_of(given, place)
            other = self._stored(fields.pop("id"), f"{place}.id")
            record: Record = {"op": _EDGES[name], ends[0]: vertex, ends[1]: other}
            if self._kinds is not None and self._kinds.are_named:
                its_kind = fields.pop("kind", None)
                record |= {f"{ends[0]}_kind": kind} | ({} if its_kind is None else {f"{ends[1]}_kind": its_kind})
            elif "kind" in fields:
                msg = f"{place}.kind: vertices of this job have no kinds; leave it out"
                raise FormError(msg)
            if (key := fields.pop("key", None)) is not None:
                if error := self._key_rules.error(key, _OPS[_EDGES[name]]):
                    msg = f"{place}: {error}"
                    raise FormError(msg)
                record[self._key_rules.field] = key
            if self._by_offset and _EDGES[name] == "add_edge":
                record[self._key_rules.field] = -1 - number - (len(item.get(IN) or ()) if name == OUT else 0)
            yield f"{place}: ", record | fields

    def _stored(self, value: Any, place: str) -> Any:
        (found,) = as_stored([value], self.is_string)
        if isinstance(found, bool) or not isinstance(found, str if self.is_string else int):
            msg = f"{place}: expected {'a string' if self.is_string else 'an integer'}, got {value!r}"
            raise FormError(msg)
        if isinstance(found, str) and not found.isascii() and found.encode(errors="ignore").decode() != found:
            msg = f"{place}: expected Unicode that UTF-8 can encode, got {found!a}"
            raise FormError(msg)
        return found

    def _new_id(self, item: Mapping[str, Any], kind: str) -> Any:
        """Return an id that no vertex of the kind has, and that the item does not name."""
        named = _named_in(item)
        code = self._kinds.kind_codes[kind] if self._kinds is not None and kind else 0
        number = 0
        while True:
            number += 1
            new: Any = f"new vertex {number}" if self.is_string else -(2**63) + number
            found = self._core.inspection().find(
                Ids.of("string" if self.is_string else "int", [new]), np.array([code], np.uint8),
                has_kinds=self._kinds is not None,
            )  # fmt: skip
            if found[0] < 0 and str(new) not in named:
                return new


def _line(place: str, record: Record) -> bytes:
    """Return a record as a line of JSON.

    Raises: FormError for a number that JSON does not have, as 1e400 is read.
    """
    try:
        return json.dumps(record, allow_nan=False).encode() + b"\n"
    except ValueError:
        numbers = ", ".join(LISTED[::2]) if "src" in record else "x"
        msg = f"{place}{numbers}: expected finite numbers, got one that is none"
        raise FormError(msg) from None


def _named_in(item: Mapping[str, Any]) -> set[str]:
    """Return the ids of other vertices that an item names, as text: those of `also`, and of the ends of edges."""
    edges = [one for name in _EDGES for one in item.get(name) or ()]
    ends = [one.get("id") if isinstance(one, dict) else one[0] for one in edges if one and isinstance(one, list | dict)]
    return {str(one) for one in [*ends, *(item.get("also") or ())]}


def _fields_of(given: Any, place: str) -> Record:
    """Return an edge as fields, also one that is a list.

    Raises: FormError
    """
    if isinstance(given, list) and 1 <= len(given) <= 1 + len(LISTED):
        values = dict(zip(LISTED, given[1:], strict=False))
        return {"id": given[0], **{name: value for name, value in values.items() if value is not None}}
    if isinstance(given, dict) and "id" in given and given.keys() <= FIELDS:
        return {name: value for name, value in given.items() if value is not None or name == "id"}
    msg = f"{place}: expected {AS_LIST}, or an object of {', '.join(sorted(FIELDS))}"
    raise FormError(msg)
