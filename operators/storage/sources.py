"""The new source values that an epoch brings to a Storage from all its blocks, in the order of their merging."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.storage.part_rows import PartRows, frozen
from state.codec import Block

_NO_SLOTS = frozen(np.empty(0, np.int32))


class Sources(NamedTuple):
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


def read_sources(blocks: list[Block], at: PartRows, width: int) -> Sources:
    """The sources of an epoch's blocks; `width` is that of messages.

    A job of several parts orders them by slot: then sums, which may be rounded, depend neither on who sent them nor on
    which parts are in the same task.
    """
    slots, places, matrices, selves = [], [], [], []
    begin = 0
    for block in blocks:
        matrix = block.columns.get("zo", block.columns.get("z"))
        if matrix is None:
            continue
        masters, replicas = at.of(block, "o"), at.of(block, "z")
        if masters.size:
            slots.append(masters)
            places.append(np.arange(begin, begin + masters.size, dtype=np.int32))
            selves.append((masters, matrix))
        if replicas.size:
            row = block.columns.get("z_row")
            slots.append(replicas)
            places.append(np.arange(begin, begin + replicas.size, dtype=np.int32) if row is None else row + begin)
        matrices.append(matrix)
        begin += len(matrix)
    if not matrices:
        return Sources(_NO_SLOTS, _NO_SLOTS, frozen(np.empty((0, width), np.float32)), [])
    rows = matrices[0]
    if len(matrices) > 1:
        rows = frozen(np.concatenate([matrix[:, :width] for matrix in matrices]))
    if at.tasks.parts == 1:  # and one sender
        return Sources(slots[0], frozen(places[0]), rows, selves)
    slot, place = np.concatenate(slots), np.concatenate(places)
    order = np.argsort(slot)
    return Sources(frozen(slot[order]), frozen(place[order]), rows, selves)
