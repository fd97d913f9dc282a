"""Numbers for ids in the order of their first coming."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from freshet.operators.embed.files import DiskFile
from freshet.operators.embed.order_kernels import number_ints, number_names
from freshet.partitioner.hash_index import grown, make_index
from freshet.partitioner.ids import INT, Ids
from freshet.state.salt import scratch_salt

IDS, BOUNDS = "ids", "bounds"


def dictionary_bytes(ids: int, text: int) -> int:
    """Return the memory of a dictionary of ids with this much text: ids or texts, and the index."""
    entries = max(1024, 1 << (2 * max(ids, 1)).bit_length())
    return 8 * entries + 8 * ids + 2 * text


class IdNumbers:
    """The dictionary of ids; afterwards their texts or numbers lie in files, by number.

    Shapes: ids (n,) int64, or (bytes,) uint8 with bounds (n + 1,) int64
    """

    def __init__(self, kind: str, expected: int) -> None:
        """`expected`: how many ids there will be, roughly."""
        self.kind, self.count = kind, 0
        room = max(16, expected)
        self._index = make_index(scratch_salt(), room)
        self._keys = np.empty(room if kind == INT else 0, np.int64)
        self._bounds = np.zeros(0 if kind == INT else room + 1, np.int64)
        self._pool = np.empty(0 if kind == INT else 16 * room, np.uint8)

    def of(self, ids: Ids) -> np.ndarray:
        """The numbers of these ids, (n,) int32; new ids get new numbers."""
        out = np.empty(len(ids), np.int32)
        at, packed = 0, ids.compact()
        while at < len(ids):
            if self.kind == INT:
                keys = np.ascontiguousarray(packed.ints)
                at, self.count = number_ints(self._index, self._keys, self.count, owned(keys), at, out)
            else:
                offsets, data = owned(packed.offsets), owned(packed.data)
                at, self.count = number_names(self._index, self._bounds, self._pool, self.count, offsets, data, at, out)
            if at < len(ids):
                self._grow(0 if self.kind == INT else int(packed.offsets[at + 1] - packed.offsets[at]))
        return out

    def _grow(self, text: int) -> None:
        more = self.count + (self.count >> 1) + 16
        self._index = grown(self._index, more)
        if self.kind == INT:
            self._keys = _longer(self._keys, more)
            return
        self._bounds = _longer(self._bounds, more + 1)
        used = int(self._bounds[self.count])
        if used + text > len(self._pool) or used * 4 > len(self._pool) * 3:
            self._pool = _longer(self._pool, used + (used >> 1) + text + 64)

    def save(self, folder: Path) -> None:
        """Write the ids in the order of their numbers."""
        if self.kind == INT:
            save_ids(folder, Ids(INT, self._keys[: self.count]))
        else:
            save_ids(folder, Ids(self.kind, offsets=self._bounds[: self.count + 1], data=self._pool))


def save_ids(folder: Path, ids: Ids) -> None:
    """Write ids as `SavedIds` reads them.

    Raises: EmbedError when the disk is full.
    """
    if ids.kind == INT:
        _save(folder / IDS, ids.ints)
        return
    packed = ids.compact()
    _save(folder / IDS, packed.data)
    _save(folder / BOUNDS, packed.offsets)


class SavedIds:
    """The ids that `IdNumbers` saved, read for ranges of numbers."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._kind = kind
        self._ids = DiskFile(folder / IDS)
        self._bounds = None if kind == INT else DiskFile(folder / BOUNDS)

    def read(self, first: int, last: int) -> Ids:
        """The ids of these numbers."""
        if self._bounds is None:
            return Ids(INT, self._ids.read(8 * first, np.empty(last - first, np.int64)))
        bounds = self._bounds.read(8 * first, np.empty(last - first + 1, np.int64))
        data = self._ids.read(int(bounds[0]), np.empty(int(bounds[-1] - bounds[0]), np.uint8))
        return Ids(self._kind, offsets=bounds - bounds[0], data=data)

    def close(self) -> None:
        """Close the files."""
        self._ids.close()
        if self._bounds is not None:
            self._bounds.close()


def owned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy that may be written to: kernels are compiled for those."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()


def _longer(array: np.ndarray, length: int) -> np.ndarray:
    out = np.zeros(max(length, len(array)), array.dtype)
    out[: len(array)] = array
    return out


def _save(path: Path, data: np.ndarray) -> None:
    file = DiskFile(path, data.nbytes)
    file.write(0, np.ascontiguousarray(data))
    file.sync()
    file.close()
