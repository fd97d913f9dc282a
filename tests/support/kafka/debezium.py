"""Changes of a table of purchases, as Debezium sends them, and the map of their events."""

from __future__ import annotations

import random
from typing import Any

MAPS = [
    {"when": "(payload || @).before", "op": "`del_edge`", "src": "(payload || @).before.customer"}
    | {"dst": "(payload || @).before.merchant"},
    {"when": "(payload || @).after", "op": "`add_edge`", "src": "(payload || @).after.customer"}
    | {"dst": "(payload || @).after.merchant", "weight": "(payload || @).after.amount", "ts": "ts_ms"},
    {"when": "op == 'm'"},
]


# The same of payments, several of which may be from one customer to one merchant: the primary key tells them apart.
KEYED_MAPS = [
    MAPS[0] | {"key": "(payload || @).before.id"},
    MAPS[1] | {"key": "(payload || @).after.id"},
    MAPS[2],
]


def envelope(op: str, before: Any = None, after: Any = None, has_schema: bool = False) -> dict[str, Any]:
    found = {"op": op, "ts_ms": 1, "before": before, "after": after, "source": {"table": "purchases"}}
    return {"schema": {"type": "struct"}, "payload": found} if has_schema else found


def row(customer: Any, merchant: Any, amount: Any = 1.0) -> dict[str, Any]:
    return {"customer": customer, "merchant": merchant, "amount": amount}


def changes(seed: int, count: int, has_schema: bool = False) -> list[dict[str, Any] | None]:
    """Inserts, updates that move an edge or not, deletions with their tombstones, and messages."""
    draw, rows, found = random.Random(seed), dict[int, dict[str, Any]](), list[dict[str, Any] | None]()
    while len(found) < count:
        key = draw.randrange(40)
        before = rows.get(key)
        if draw.random() < 0.05:
            found.append({"op": "m", "ts_ms": 1})
        elif before is not None and draw.random() < 0.4:
            del rows[key]
            found += [envelope("d", before, None, has_schema), None]
        else:
            rows[key] = row(draw.randrange(30), 100 + draw.randrange(30), float(draw.randrange(1, 4)))
            found.append(envelope("u" if before else draw.choice("cr"), before, rows[key], has_schema))
    return found


ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": name, "type": ["null", "long", "string"]} for name in ("customer", "merchant")]
    + [{"name": "amount", "type": "double"}],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Row"], "default": None},
    ],
}
