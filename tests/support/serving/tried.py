"""Events of a stream as what is tried before they happen, and the rows that the job then has."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import freshet

Event = dict[str, Any]
_OF_EDGES = ("weight", "type", "attr", "key")


class Rows:
    """The rows of a job by id and epoch."""

    def __init__(self, out: Path, ids: list[Any]) -> None:
        self._of = defaultdict[Any, list[tuple[int, Any]]](list)
        table = freshet.history(out, ids)
        for one, epoch, row in zip(*(table[name].to_pylist() for name in ("id", "epoch", "embedding")), strict=True):
            self._of[one].append((epoch, row))

    def at(self, vertex: Any, epoch: int) -> Any:
        return next((row for its, row in reversed(self._of[vertex]) if its <= epoch), None)


def item_of(event: Event, kind: str) -> dict[str, Any] | None:
    """What is tried, in the place of an event; None of one that can't be tried on a vertex of the kind."""
    if event["op"] == "del_vertex" or event.get("ts") is not None:
        return None
    if "src" not in event:
        return {"id": event["id"], "x": event.get("x")} if event.get("kind", "") == kind else None
    prefix = "del_" if event["op"] == "del_edge" else ""
    for mine, other, name in (("dst", "src", "in_edges"), ("src", "dst", "out_edges")):
        if event.get(f"{mine}_kind", "") == kind:
            edge = {"id": event[other]} | {field: event[field] for field in _OF_EDGES if field in event}
            its = event.get(f"{other}_kind", "")
            edge |= {"kind": its} if its else {}
            also = [event[other]] if its == kind and event[other] != event[mine] else []
            return {"id": event[mine], f"{prefix}{name}": [edge], "also": also}
    return None
