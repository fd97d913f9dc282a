"""Records that are wrong about kinds of vertices and relations, each with the words that its reason begins with.

They are of the graph of `shop_kinds`, whose ids are integers.
"""

from __future__ import annotations

import random
from typing import Any

import orjson

from tests.support.malformed.records import Way

EDGE = {"op": "add_edge", "src": 1, "dst": 2}
EVERY = "the model's kinds user, item, shop"
TYPES = "the model's edge types buys, rates, knows, near"
RATES = "edges of 'rates' lead from user to item or from user to shop or from shop to item"
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"op": "add_vertex", "id": 1}, f"kind: missing, expected one of {EVERY}"),
    ({"op": "del_vertex", "id": 1, "kind": None}, f"kind: missing, expected one of {EVERY}"),
    ({"op": "add_vertex", "id": 1, "kind": "users"}, f"kind: expected one of {EVERY}, got the string 'users'"),
    ({"op": "del_vertex", "id": 1, "kind": ""}, f"kind: expected one of {EVERY}, got the string ''"),
    ({"op": "set_features", "id": 1, "x": [1, 2], "kind": 0}, "kind: expected a string, got the integer 0"),
    ({"op": "add_vertex", "id": 1, "kind": ["user"]}, "kind: expected a string, got a list"),
    ({"op": "add_vertex", "id": 1, "kind": True}, "kind: expected a string, got the boolean true"),
    ({"op": "add_vertex", "id": 1, "kind": "user", "x": [1, 2, 3]}, "x: expected 2 numbers for the kind 'user', got 3"),
    ({"op": "set_features", "id": 1, "kind": "item", "x": [1, 2]}, "x: expected 3 numbers for the kind 'item', got 2"),
    ({"op": "set_features", "id": 1, "kind": "item"}, "x: missing, set_features needs it"),
    ({"op": "add_vertex", "id": 1, "kind": "shop", "x": [1, 1e39]}, "x: not finite in float32 at index 1"),
    ({"op": "add_vertex", "kind": "user"}, "id: missing"),
    (EDGE, f"type: missing, expected one of {TYPES}"),
    ({**EDGE, "op": "del_edge", "type": None}, f"type: missing, expected one of {TYPES}"),
    ({**EDGE, "type": 3}, "type: expected a string, got the integer 3"),
    ({**EDGE, "type": "sells"}, f"type: expected one of {TYPES}, got the string 'sells'"),
    ({**EDGE, "type": ""}, f"type: expected one of {TYPES}, got the string ''"),
    ({**EDGE, "type": "rev_buys"}, "type: edges of 'rev_buys' follow those of 'buys' by themselves, give only those"),
    ({**EDGE, "op": "del_edge", "type": "near_too"}, "type: edges of 'near_too' follow those of 'near' by themselves"),
    (
        {**EDGE, "type": "buys", "src_kind": "item"},
        "src_kind: edges of 'buys' lead from user to item, got the string 'i",
    ),
    (
        {**EDGE, "type": "buys", "dst_kind": "shop"},
        "dst_kind: edges of 'buys' lead from user to item, got the string 's",
    ),
    ({**EDGE, "type": "buys", "dst_kind": "no"}, f"dst_kind: expected one of {EVERY}, got the string 'no'"),
    ({**EDGE, "type": "buys", "src_kind": 1}, "src_kind: expected a string, got the integer 1"),
    ({**EDGE, "type": "rates"}, f"src_kind: missing, {RATES}"),
    ({**EDGE, "type": "rates", "src_kind": "user"}, f"dst_kind: missing, {RATES}"),
    ({**EDGE, "type": "rates", "dst_kind": "item"}, f"src_kind: missing, {RATES}"),
    ({**EDGE, "type": "rates", "src_kind": "item"}, f"src_kind: {RATES}, got the string 'item'"),
    ({**EDGE, "type": "rates", "src_kind": "shop", "dst_kind": "shop"}, f"dst_kind: {RATES}, got the string 'shop'"),
    ({**EDGE, "type": "rev_buys", "src_kind": "item"}, "type: edges of 'rev_buys' follow those of 'buys'"),
    ({**EDGE, "type": "buys", "attr": [1]}, "attr: expected 2 numbers for edges of 'buys', got 1"),
    (
        {**EDGE, "type": "rates", "src_kind": "user", "dst_kind": "item", "attr": [1, 2]},
        "attr: expected 1 numbers for edges of 'rates', got 2",
    ),
    ({**EDGE, "type": "knows", "attr": [None]}, "attr: expected numbers, got null at index 0"),
    ({**EDGE, "type": "buys", "attr": [1, 1e39]}, "attr: not finite in float32 at index 1"),
    ({"op": "add_edge", "src": 1, "type": "buys"}, "dst: missing"),
]


def kind_ways() -> list[Way]:
    """The records as ways to be wrong, named by their JSON."""
    return [_way(orjson.dumps(record), reason) for record, reason in REJECTED]


def _way(raw: bytes, reason: str) -> Way:
    def make(rng: random.Random) -> bytes:
        return raw

    return Way(raw.decode(), make, (reason,))
