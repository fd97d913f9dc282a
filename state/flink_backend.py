"""Durable state in Flink's keyed state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyflink.common.typeinfo import Types
from pyflink.datastream.state import MapStateDescriptor

if TYPE_CHECKING:
    from pyflink.datastream import RuntimeContext

_STATE_NAME = "pages"


class FlinkBackend:
    """The map state of the current key: what it reads and writes belongs to the part whose element is processed.

    Contract: an entry that was put holds the last value put, until it is deleted.
    """

    def __init__(self, context: RuntimeContext) -> None:
        """Declare the state; call it in `open`, where it can't be read yet."""
        # Any other type than PICKLED_BYTE_ARRAY costs 300 ms per MB in thread mode, and fails on RocksDB.
        descriptor = MapStateDescriptor(_STATE_NAME, Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        self._state = context.get_map_state(descriptor)
        self._context = context
        self._keys: dict[int, Any] = {}

    def select(self, key: int) -> None:
        """Go on with the state of another key of this subtask, until Flink processes its next element.

        PyFlink has no way to do so, but Flink's keyed state backend has. It wants Flink's own Row with a Java Integer,
        which pemja can't make (Python's ints become Longs), so a row is made by its serializer, from the current one.
        """
        backend = self._context._keyed_state_backend._keyed_state_backend  # Java's, in PyFlink's
        if key not in self._keys:
            from pemja import findClass

            serializer = backend.getKeySerializer()
            written = findClass("org.apache.flink.core.memory.DataOutputSerializer")(64)
            serializer.serialize(backend.getCurrentKey(), written)
            data = bytes(written.getCopyOfBuffer())[:-4] + key.to_bytes(4, "big")
            self._keys[key] = serializer.deserialize(
                findClass("org.apache.flink.core.memory.DataInputDeserializer")(data)
            )
        backend.setCurrentKey(self._keys[key])

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every entry."""
        return iter(self._state.items())

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        """Set entries, then remove some: one call for all that are set."""
        if puts:
            self._state.put_all(dict(puts))
        for key in deletes:
            self._state.remove(key)
