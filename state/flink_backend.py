"""Durable state in Flink's keyed state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyflink.common.typeinfo import Types
from pyflink.datastream.state import MapStateDescriptor

from state.backend import Backend

if TYPE_CHECKING:
    from pyflink.datastream import RuntimeContext

_STATE_NAME = "pages"


class FlinkBackend(Backend):
    """The map state of the current key: what it reads and writes belongs to the part whose element is processed."""

    def __init__(self, context: RuntimeContext) -> None:
        """Declare the state; call it in `open`, where it can't be read yet."""
        # Any other type than PICKLED_BYTE_ARRAY costs 300 ms per MB in thread mode, and fails on RocksDB.
        descriptor = MapStateDescriptor(_STATE_NAME, Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        self._state = context.get_map_state(descriptor)

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""
        return iter(self._state.items())

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        """Set entries, then remove some: one call for all that are set."""
        if puts:
            self._state.put_all(dict(puts))
        for key in deletes:
            self._state.remove(key)
