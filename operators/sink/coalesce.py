"""The last change of each vertex in an interval of epochs: what a compacted output gets to see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.state.salt import Salt, mix, scratch_salt


@dataclass(frozen=True, slots=True)
class TextIds:
    """String ids as UTF-8.

    Shapes: offsets (n + 1,) int64; data (bytes,) uint8
    """

    offsets: np.ndarray
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class Changes:
    """The last change of each vertex, in the order in which these changes came.

    Shapes:
        ids: (n,) int64, or n strings
        epochs: (n,) int64, the epoch of the change
        deleted: (n,) bool
        rows: (n, width) float32, without meaning where a vertex was deleted
    """

    ids: np.ndarray | TextIds
    epochs: np.ndarray
    deleted: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.epochs)


@inner
def _same_text(offsets: np.ndarray, data: np.ndarray, i: int, j: int) -> bool:
    length = offsets[i + 1] - offsets[i]
    if offsets[j + 1] - offsets[j] != length:
        return False
    for k in range(length):
        if data[offsets[i] + k] != data[offsets[j] + k]:
            return False
    return True


@kernel
def _mark_last(
    salt: Salt, keys: np.ndarray, offsets: np.ndarray, data: np.ndarray, place: np.ndarray, last: np.ndarray
) -> int:
    """Mark the last place of each id; returns how many there are.

    Two strings may have one key, one after the other (it was freed in between), so strings are compared themselves.
    """
    mask = np.uint64(len(place) - 1)
    texts = len(offsets) > 0
    count = 0
    for back in range(len(keys)):
        i = len(keys) - 1 - back
        at = mix(salt, keys[i]) & mask
        while place[at] != 0:
            other = place[at] - 1
            if keys[other] == keys[i] and (not texts or _same_text(offsets, data, other, i)):
                break
            at = (at + np.uint64(1)) & mask
        if place[at] == 0:
            place[at] = i + 1
            last[i] = True
            count += 1
    return count


@kernel
def _pick_texts(offsets: np.ndarray, data: np.ndarray, chosen: np.ndarray, picked: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(chosen)):
        start = offsets[chosen[i]]
        for k in range(offsets[chosen[i] + 1] - start):
            out[picked[i] + k] = data[start + k]


class Coalescer:
    """Holds the rows of an interval's epochs until `take`.

    Invariant: `bytes_held` grows with what `add` is given, so that whoever bounds it bounds this.
    """

    def __init__(self, width: int, id_kind: str) -> None:
        self.width, self.id_kind = width, id_kind
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._epochs: list[EpochRows] = []
        self._keys: list[np.ndarray] = []
        self.bytes_held = 0

    def add(self, keys: np.ndarray, rows: EpochRows) -> None:
        """Take the changes of an epoch; `keys` (int64) are those of the changed vertices, then of the deleted ones."""
        if not rows.size:
            return
        self._keys.append(keys)
        self._epochs.append(rows)
        self.bytes_held += rows.nbytes

    def take(self) -> Changes:
        """The last change of each vertex since the last call; nothing is held afterwards."""
        epochs, keys = self._epochs, np.concatenate([np.empty(0, np.int64), *self._keys])
        ids = self._texts() if self.id_kind == "string" else np.concatenate([np.empty(0, np.int64), *self._chunks()])
        self.clear()
        n = len(keys)
        last = np.zeros(n, bool)
        place = np.zeros(1 << max(4, (2 * n).bit_length()), np.int32)
        offsets, data = (ids.offsets, ids.data) if isinstance(ids, TextIds) else (_NO_OFFSETS, _NO_BYTES)
        _mark_last(scratch_salt(), keys, offsets, data, place, last)
        chosen = np.flatnonzero(last)
        numbers = np.repeat([one.epoch for one in epochs], [one.size for one in epochs]).astype(np.int64)
        flags = [flag for one in epochs for flag in (np.zeros(one.changed, bool), np.ones(one.deleted, bool))]
        deleted = np.concatenate([np.zeros(0, bool), *flags])[chosen]
        picked = _picked(ids, chosen) if isinstance(ids, TextIds) else ids[chosen]
        return Changes(picked, numbers[chosen], deleted, self._rows(epochs, chosen))

    def _chunks(self) -> list[np.ndarray]:
        return [chunk for one in self._epochs for chunk in one.ids if isinstance(chunk, np.ndarray)]

    def _texts(self) -> TextIds:
        pairs = [chunk for one in self._epochs for chunk in one.ids if not isinstance(chunk, np.ndarray)]
        offsets, end = [np.zeros(1, np.int64)], 0
        for chunk, text in pairs:
            offsets.append(chunk[1:].astype(np.int64) + end)
            end += len(text)
        return TextIds(np.concatenate(offsets), np.concatenate([_NO_BYTES, *(text for _, text in pairs)]))

    def _rows(self, epochs: list[EpochRows], chosen: np.ndarray) -> np.ndarray:
        """The rows at these places, gathered epoch by epoch: a copy of all that is held would double it."""
        out = np.zeros((len(chosen), self.width), np.float32)
        first = 0
        for one in epochs:
            at = first
            for array in one.rows:
                begin, end = np.searchsorted(chosen, (at, at + len(array)))
                if begin < end:
                    out[begin:end] = array[chosen[begin:end] - at]
                at += len(array)
            first += one.size
        return out


_NO_OFFSETS, _NO_BYTES = np.empty(0, np.int64), np.empty(0, np.uint8)


def _picked(ids: TextIds, chosen: np.ndarray) -> TextIds:
    lengths = np.diff(ids.offsets)[chosen]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    out = np.empty(int(offsets[-1]), np.uint8)
    _pick_texts(ids.offsets, ids.data, chosen, offsets, out)
    return TextIds(offsets, out)
