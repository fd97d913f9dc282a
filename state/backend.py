"""What every place for durable state does; the bodies are RocksDB (state/rocks_backend.py) and Flink's keyed state.

`tests/unit/state/backend_contract.py` is run against both, and against the dict that the simulator has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Backend(Protocol):
    """Entries of one operator's part.

    Contract: an entry that was put holds the last value put, until it is deleted.
    """

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        """Set entries, in this order, and then remove some; removing what is not there is no error."""

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry once, in any order."""
