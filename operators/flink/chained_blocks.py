"""Blocks between operators that Flink has chained: they call each other in one thread, so a block stays where it is.

Flink would copy it to Java and back, so a token passes instead. A token never outlives the call that made it: no
checkpoint holds one.
"""

from __future__ import annotations

import itertools
from typing import Any

_TOKEN, _TOKEN_BYTES = b"T", 9  # any other block has a longer header
_handed_over: dict[bytes, Any] = {}
_tokens = itertools.count()


def hand_over(block: Any) -> bytes:
    """A token for a block, which need not be encoded."""
    token = _TOKEN + next(_tokens).to_bytes(8, "little")
    _handed_over[token] = block
    return token


def taken(value: bytes) -> Any:
    """The value itself, or the block that a token stands for."""
    return _handed_over.pop(value) if len(value) == _TOKEN_BYTES and value.startswith(_TOKEN) else value
