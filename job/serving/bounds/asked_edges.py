"""Edges in a request: as lists, whose numbers and names stand in an order, or as objects."""

from __future__ import annotations

LISTED = ("weight", "type", "attr")
"""Fields behind the id of an edge that is a list; none of them is needed."""
FIELDS = frozenset({"id", "kind", "key", *LISTED})
"""Fields of an edge that is an object."""
AS_LIST = f"[ID, {', '.join(LISTED)}], of which ID is needed"
