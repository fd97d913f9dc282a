"""The entries of one part of an operator as a file: taken out of a savepoint, and restored without an engine.

Layout: for each entry the lengths of key and value (little-endian uint32, uint64), the key as UTF-8, the value; at the
end the number of entries, as the value (uint64) of an entry with an empty key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_LENGTHS, _COUNT = struct.Struct("<IQ"), struct.Struct("<Q")


class TornEntriesError(ValueError):
    """The file was not written to its end."""


def write_entries(path: Path, items: Iterable[tuple[str, bytes]]) -> None:
    """Write all entries."""
    count = 0
    with path.open("wb") as file:
        for key, value in items:
            name = key.encode()
            file.write(_LENGTHS.pack(len(name), len(value)) + name)
            file.write(value)
            count += 1
        file.write(_LENGTHS.pack(0, _COUNT.size) + _COUNT.pack(count))


def read_entries(path: Path) -> Iterator[tuple[str, bytes]]:
    """The entries, in the order in which they were written.

    Raises:
        TornEntriesError: the file ends before they do.
    """
    count = 0
    with path.open("rb") as file:
        while len(head := file.read(_LENGTHS.size)) == _LENGTHS.size:
            key_bytes, value_bytes = _LENGTHS.unpack(head)
            key, value = file.read(key_bytes).decode(), file.read(value_bytes)
            if not key and value == _COUNT.pack(count):
                return
            yield key, value
            count += 1
    msg = f"{path}: cut short after {count} entries"
    raise TornEntriesError(msg)
