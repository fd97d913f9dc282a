"""The interface of durable state: of Flink's keyed state (state/flink_backend.py), and of what stands in for it here.

`tests/unit/state/backend_contract.py` is run against Flink's, against the RocksDB of the local runtime
(state/rocks_backend.py), and against the dict that the simulator uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Backend(Protocol):
    """Entries of one operator's part.

    Contract: an entry that was put holds the last value put, until it is deleted.
    """

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        """Set entries, in this order, and then remove some; removing an absent entry is no error."""

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry once, in any order."""
