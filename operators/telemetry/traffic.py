"""Messages and bytes that an operator has read from a topic, or handed over for one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Counted since the attempt began; a tombstone has no bytes but those of its key.

    Units: bytes are those of values for messages that were read, of keys and values for those that are written.
    """

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages and their bytes."""
        self.messages += messages
        self.bytes += size

    def sums(self) -> dict[str, float]:
        """Return the counts by name."""
        return {"messages": self.messages, "bytes": self.bytes}


def all_traffic(parts: Iterable[Traffic]) -> Traffic:
    """Return the traffic of several parts together."""
    found = list(parts)
    return Traffic(sum(one.messages for one in found), sum(one.bytes for one in found))
