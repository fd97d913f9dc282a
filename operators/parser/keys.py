"""Keys of edges in records: the field that has them, and what they must be."""

from __future__ import annotations

from typing import Any

from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.records import show
from freshet.partitioner.events import ALL_KEYS, OP_DEL_EDGE
from freshet.partitioner.ids import INT, NO_KEY, STRING

KEY_FIELD = "key"
OFFSET = "offset"  # in place of a field: each record that adds an edge has the key of its place in the input
_WANTED = {None: "an integer or a string", INT: "an integer", STRING: "a string"}
_KINDS: dict[type, str] = {int: INT, str: STRING}


class KeyRules:
    """Rules of the keys of a job's edges.

    Args:
        field: as --edge-key has it; empty: not given.
        kind: "int" or "string"; empty: edges have no keys; None: the first edges that are added are to decide it.
        sources: number of the job's sources.
    """

    def __init__(self, field: str = "", kind: str | None = "", bytes_max: int = ID_BYTES_MAX, sources: int = 1) -> None:
        self.by_offset, self.sources = field == OFFSET, sources
        self.field = KEY_FIELD if self.by_offset else field or KEY_FIELD
        self.kind, self.is_given, self._bytes_max = kind, bool(field), bytes_max

    def error(self, key: Any, op: int) -> str | None:
        """Describe why the value is no key of an edge."""
        name, kind = self.field, _KINDS.get(type(key))
        if self.kind == "":
            return f"{name}: edges of this job have no keys; a new job with --edge-key {name} takes them"
        if key == ALL_KEYS and kind == STRING:
            return None if op == OP_DEL_EDGE else f"{name}: '*' stands for all keys, and only in del_edge"
        if self.by_offset:
            return f"{name}: --edge-key offset gives each edge a key of its own; expected none, or '*' in del_edge"
        if kind is None or self.kind not in (None, kind):
            if type(key) is float and abs(key) >= 2.0**63 and self.kind != STRING:
                return f"{name}: expected an integer above -2**63 and below 2**63, got {key}"
            like = f" like the job's other keys, got {show(key)}" if kind else f", got {show(key)}"
            return f"{name}: expected {_WANTED[self.kind]}{like}"
        if kind == INT:
            fits = NO_KEY < key < 2**63
            return None if fits else f"{name}: expected an integer above -2**63 and below 2**63, got {key}"
        if not key:
            return f"{name}: expected a key, got an empty string"
        size = len(key.encode())
        return None if size <= self._bytes_max else f"{name}: expected at most {self._bytes_max} bytes, got {size}"

    def decide(self, key: Any) -> None:
        """Let an edge that is added, which has this key or None, decide the kind while it is open."""
        if self.kind is None and (key is not None or not self.is_given):
            self.kind = "" if key is None else _KINDS[type(key)]

    @property
    def kind_at_end(self) -> str:
        """The kind where no edge has decided it."""
        return self.kind if self.kind is not None else INT if self.is_given else ""
