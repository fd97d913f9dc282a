"""Fields of events that columns of tables may be, by their names, and a map that takes them for these."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from freshet.operators.parser.rules import FIELDS, KIND_FIELDS
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, OP_NAMES
from freshet.schema import ATTR, WEIGHT

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VECTOR = re.compile(r"(?:x|f|feat|feature|features|emb|embedding|dim|v)[_.]?\[?[0-9]+\]?", re.IGNORECASE)
_CLOSE = 0.8
# Names that people give these fields, without signs and in small letters; the likelier ones first.
_NAMES = {
    "src": "source from sender payer user customer follower citing srcid sourceid fromid fromnode sourcenode head "
    "node1 id1 u nameorig txid1 userid customerid buyer account origin author subject fromaccount fromaddress start",
    "dst": "target to destination dest receiver recipient payee item merchant followee cited dstid targetid toid "
    "tonode targetnode tail node2 id2 v namedest txid2 itemid merchantid product seller object toaccount toaddress "
    "movie movieid post postid end",
    "id": "node nodeid vertex vertexid nid entity entityid",
    WEIGHT: "w amount value score rating strength count quantity price total",
    "ts": "timestamp time datetime date eventtime createdat createdtime t at when",
    "type": "edgetype relation rel relationship predicate etype",
    "x": "features feature feat embedding vector",
    "attr": "edgeattr edgefeatures attributes",
    "op": "",
}


def guesses(columns: Sequence[str], wanted: Collection[str]) -> dict[str, str]:
    """Return for some of the wanted fields the column that may be it."""
    left, found = [name for name in columns if name and name not in {*FIELDS, *KIND_FIELDS}], dict[str, str]()
    plain = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in left}
    for field in wanted:
        for known in (field, *_NAMES[field].split()):
            if (one := next((name for name in left if plain[name] == known), None)) is not None:
                found[field] = one
                left.remove(one)
                break
    for field in [field for field in wanted if field not in found]:
        every = {plain[name]: name for name in left}
        near = [
            close
            for known in (field, *_NAMES[field].split())
            if len(known) > 3
            for close in difflib.get_close_matches(known, every, 1, _CLOSE)
        ]
        if near:
            found[field] = every[near[0]]
            left.remove(found[field])
    return found


def proposed_map(columns: Sequence[str]) -> dict[str, str]:
    """Return a map by which rows with these columns may be events.

    It has what events have already. Where no name says what it is, the first columns are the ends of an edge.
    """
    there = [name for name in FIELDS if name in columns]
    found = guesses(columns, [name for name in _NAMES if name not in there])
    is_vertex = "id" in {*there, *found} and not {"src", "dst"} & {*there, *found}
    ends = ["id"] if is_vertex else ["src", "dst"]
    rest = [name for name in columns if name and name not in {*there, *found.values()}]
    for end in [end for end in ends if end not in {*there, *found}]:
        if rest:
            found[end] = rest.pop(0)
    op = "op" if "op" in there else found.get("op")
    made = {"op": _path(op) if op else f"`{OP_NAMES[OP_ADD_VERTEX if is_vertex else OP_ADD_EDGE]}`"}
    others = ("src", "dst", "type", WEIGHT, ATTR) if is_vertex else ("id", "x")
    fields = [name for name in FIELDS if name not in others]
    for field in FIELDS if op else fields:
        if field != "op" and (name := field if field in there else found.get(field)) is not None:
            made[field] = _path(name)
    if (is_vertex or op) and "x" not in made and (parts := [name for name in rest if _VECTOR.fullmatch(name)]):
        made["x"] = f"[{', '.join(map(_path, parts))}]"
    return made


def _path(column: str) -> str:
    """Return the JMESPath expression of a column."""
    return column if _NAME.fullmatch(column) else json.dumps(column, ensure_ascii=False)


def as_flag(events_map: Mapping[str, str]) -> str:
    """Return the flag that gives a map to a command."""
    return f"--events-map {shlex.quote(json.dumps(events_map, ensure_ascii=False))}"


def as_yaml(events_map: Mapping[str, str]) -> str:
    """Return the line of a --config file that gives a map."""
    return f"events_map: {json.dumps(events_map, ensure_ascii=False)}"
