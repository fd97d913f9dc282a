"""Checksums of the entries of keyed state: one with each entry, and one of all entries of a part together.

An entry is stored under `KEY#`, with the CRC-32C of its part, key and value behind the value; a large one, which is not
to be copied, under `KEY#CRC32C`. The entry `#` has the number of entries and the sum of their checksums, so that a part
that has lost one, or has an older one, is noticed. Entries without `#` are of a version without checksums: they are
taken as they are, and counted, so that no entry becomes one of those. Each gets its own when it is written again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from crc32c import crc32c

from freshet.files.json_file import DamagedFileError
from freshet.state.sweep import Mutations

SEALED = "#"  # in the keys of entries with a checksum
_IN_VALUE_BYTES = 4096  # of values that have their checksums behind them
_CHECKSUM = struct.Struct("<I")
_TOTAL = struct.Struct("<QQQ")  # entries with a checksum, entries without, sum of the checksums


class SealedEntries:
    """The entries of one operator's part. Call `opened` once, before all else, and `seal` for every change.

    Invariant: after a change is applied, the entry `#` has the checksum of exactly the existing entries.
    """

    def __init__(self, part: str) -> None:
        """`part`: the operator's part, by its name; its entries are not taken for those of another."""
        self.part = part
        self._begin = crc32c(part.encode())
        self._stored: dict[str, str] = {}  # under which key each entry lies
        self._checksums: dict[str, int] = {}
        self._sum = 0

    def opened(self, items: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """The entries as they were before `seal`.

        Raises:
            DamagedFileError: one does not match its checksum, or, at the end, entries are missing.
        """
        total: bytes | None = None
        for stored, data in items:
            key, mark, in_key = stored.rpartition(SEALED)
            if not mark:
                self._stored[stored] = stored
                yield stored, data
                continue
            value = data if in_key else data[: -_CHECKSUM.size]
            checksum = self._checksum(key, value)
            found = in_key.encode() or data[len(value) :]
            if found != (f"{checksum:08x}".encode() if in_key else _CHECKSUM.pack(checksum)):
                msg = f"{self.part}: the entry {key or SEALED!r} in its state does not match its checksum"
                raise DamagedFileError(msg)
            if key:
                self._note(key, stored, checksum)
                yield key, value
            else:
                total = value
        self._check_total(total)

    def read(self, key: str, value_of: Callable[[str], bytes]) -> bytes:
        """Return the value of an entry again, given what returns that of a stored key.

        Raises:
            DamagedFileError: it does not match its checksum.
        """
        stored = self._stored[key]
        data = value_of(stored)
        if stored == key:
            return data
        value = data[: -_CHECKSUM.size] if stored.endswith(SEALED) else data
        if self._checksum(key, value) != self._checksums[key]:
            msg = f"{self.part}: the entry {key!r} in its state does not match its checksum"
            raise DamagedFileError(msg)
        return value

    def _check_total(self, total: bytes | None) -> None:
        if total is None and not self._checksums:  # empty, or of a version without checksums
            return
        if total != self._total():
            count = "no number of them" if total is None else f"{sum(_TOTAL.unpack(total)[:2]):,} of them"
            there = f"its state has {len(self._stored):,} entries"
            msg = f"{self.part}: {there}, which are not those that were written ({count})"
            raise DamagedFileError(msg)

    def seal(self, changes: Mutations) -> Mutations:
        """The changes as they are to be stored: puts in their order, then deletes."""
        out = Mutations()
        if not changes.puts and not changes.deletes:
            return out
        gone: list[str] = []
        for key, value in changes.puts:
            checksum = self._checksum(key, value)
            if len(value) > _IN_VALUE_BYTES:
                stored, data = f"{key}{SEALED}{checksum:08x}", value
            else:
                stored, data = f"{key}{SEALED}", value + _CHECKSUM.pack(checksum)
            out.puts.append((stored, data))
            gone.append(self._stored.get(key, stored))
            self._note(key, stored, checksum)
        for key in changes.deletes:
            gone += [self._stored.pop(key)] if key in self._stored else []
            self._sum -= self._checksums.pop(key, 0)
        there = {self._stored.get(key) for key, _ in changes.puts}
        out.deletes += [stored for stored in gone if stored not in there]
        total = self._total()
        out.puts.append((SEALED, total + _CHECKSUM.pack(self._checksum("", total))))
        return out

    def _checksum(self, key: str, value: bytes) -> int:
        return crc32c(value, crc32c(f"|{key}|".encode(), self._begin))

    def _note(self, key: str, stored: str, checksum: int) -> None:
        self._stored[key] = stored
        self._sum += checksum - self._checksums.get(key, 0)
        self._checksums[key] = checksum

    def _total(self) -> bytes:
        return _TOTAL.pack(len(self._checksums), len(self._stored) - len(self._checksums), self._sum)
