"""Upper bounds of the memory of requests and answers, computed before either is made."""

from __future__ import annotations

from typing import NamedTuple

OBJECT_BYTES = 256  # of an id in the lists and sets that a JSON answer is made from, and of a nested list or object
_PARSED = 16  # bytes of Python's numbers and strings, for each character of JSON
NUMBER = 21  # characters of an integer of 64 bits, with a comma
FLOAT = 16  # of a float of 32 bits, with a comma
_OF_ROW = 64  # the names of a JSON row's fields, and what stands around them


class RowShape(NamedTuple):
    """Contents of a row of an answer: the numbers of its embedding and of its logits."""

    width: int
    logits: int

    @property
    def in_arrow(self) -> int:
        """Bytes of a row as Arrow columns, but for the text of its id."""
        return 16 + 4 * self.width + (4 * self.logits + 8 if self.logits else 0)

    @property
    def in_json(self) -> int:
        """Characters of a row as a JSON object, but for its id."""
        return _OF_ROW + NUMBER + FLOAT * self.width + (FLOAT * self.logits + NUMBER if self.logits else 0)


def parsed(raw: bytes) -> int:
    """Bytes of what JSON of these bytes becomes in Python."""
    return _PARSED * len(raw) + OBJECT_BYTES * (raw.count(b"[") + raw.count(b"{"))
