"""The new source values that an epoch brings to a Storage from all its blocks, in the order of their merging."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import quick
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.state.codec import Block

_NO_SLOTS = frozen(np.empty(0, np.int32))


class SourceRows(NamedTuple):
    """Row `rows[places[i]]` is what the vertex in `slots[i]` sends from now on.

    `selves` are slots and rows of the masters among them, block by block: the columns after the message are their self
    inputs. Shapes: slots, places (n,) int32; rows (m, >= message_width) float32.
    """

    slots: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    selves: list[tuple[np.ndarray, np.ndarray]]

    @property
    def masters(self) -> np.ndarray:
        """The slots of `selves` together."""
        slots = [slots for slots, _ in self.selves]
        return slots[0] if len(slots) == 1 else np.concatenate([_NO_SLOTS, *slots])


NO_SOURCES = SourceRows(_NO_SLOTS, _NO_SLOTS, frozen(np.empty((0, 1), np.float32)), [])


@quick
def _lay(slots: np.ndarray, row: np.ndarray, begin: int, keys: np.ndarray) -> None:
    """Keys that sort by these slots and end with the place of each one's value.

    `row` is empty where values are as many as slots.
    """
    for i in range(len(slots)):
        place = begin + (row[i] if len(row) > 0 else np.int32(i))
        keys[i] = np.int64(slots[i]) << 32 | np.int64(place)


@quick
def _take_apart(keys: np.ndarray, slots: np.ndarray, places: np.ndarray) -> None:
    for i in range(len(keys)):
        slots[i], places[i] = keys[i] >> 32, keys[i] & 0xFFFFFFFF


_PLACES = frozen(np.arange(1 << 10, dtype=np.int32))


def _first_places(count: int) -> np.ndarray:
    return _PLACES[:count] if count <= _PLACES.size else frozen(np.arange(count, dtype=np.int32))


def read_sources(blocks: list[Block], at: PartRows, width: int) -> SourceRows:
    """The sources of an epoch's blocks; `width` is that of messages.

    A job of several parts orders them by slot: then sums, which may be rounded, depend neither on who sent them nor on
    which parts are in the same task.
    """
    found = [block for block in blocks if "zo" in block.columns or "z" in block.columns]
    if not found:
        return SourceRows(_NO_SLOTS, _NO_SLOTS, frozen(np.empty((0, width), np.float32)), [])
    matrices = [block.columns["zo" if "zo" in block.columns else "z"] for block in found]
    rows = matrices[0]
    if at.tasks.parts == 1:  # and one sender
        masters = found[0].get("o_slot")
        return SourceRows(masters, _first_places(masters.size), rows, [(masters, rows)])
    keys = np.empty(sum(block.get("o_slot").size + block.get("z_slot").size for block in found), np.int64)
    selves, done, begin = [], 0, 0
    for block, matrix in zip(found, matrices, strict=True):
        for name, row in (("o", _NO_SLOTS), ("z", block.get("z_row"))):
            slots = at.of(block, name)
            if slots.size:
                _lay(slots, row, begin, keys[done:])
                done += slots.size
                if name == "o":
                    selves.append((slots, matrix))
        begin += len(matrix)
    keys.sort()
    slots, places = np.empty(keys.size, np.int32), np.empty(keys.size, np.int32)
    _take_apart(keys, slots, places)
    if len(matrices) > 1:
        rows = frozen(np.concatenate([matrix[:, :width] for matrix in matrices]))
    return SourceRows(frozen(slots), frozen(places), rows, selves)
