"""An epoch's blocks, dealt to the sink parts of a task: what each part gets of keys and rows, in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import kernel, quick
from freshet.operators.control import FLAGS, MARKER, control_values
from freshet.operators.graph.part_rows import frozen
from freshet.state.codec import Block
from freshet.state.salt import Salt, mix, scratch_salt

_NO_KEYS = np.empty(0, np.int64)


class BadEpochError(RuntimeError):
    """The blocks of an epoch contradict each other: an operator before the sink is wrong."""


class Dealt(NamedTuple):
    """Rows of an epoch for one sink part.

    Shapes: keys (changed + dead,) int64, of changed vertices and then of deleted ones; rows: arrays (k, width) float32,
    one row for each of the changed, in their order.
    """

    keys: np.ndarray
    rows: list[np.ndarray]
    changed: int

    @property
    def dead(self) -> int:
        """Number of deleted vertices, which have no row."""
        return len(self.keys) - self.changed


class _Spans(NamedTuple):
    """A column of all blocks, and where in it each block has what goes to each part.

    Shapes: values (n,) int64; begins, ends (blocks, parts) int64.
    """

    values: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


@kernel
def _deal(salt: Salt, changed: _Spans, dead: _Spans, place: np.ndarray, keys: np.ndarray, counts: np.ndarray) -> int:
    """Write the keys of each part: of changed vertices, then of those that died and have no row in this epoch.

    Returns the place of a key that comes twice, or -1. Shapes: place (a power of two,) int32, zeros; counts (parts, 2).
    """
    mask, n = np.uint64(len(place) - 1), 0
    for part in range(len(counts)):
        first, rows_end = n, n
        for kind in range(2):
            spans = dead if kind else changed
            for block in range(len(spans.begins)):
                for i in range(spans.begins[block, part], spans.ends[block, part]):
                    keys[n] = spans.values[i]
                    at = mix(salt, keys[n]) & mask
                    while place[at] != 0 and keys[place[at] - 1] != keys[n]:
                        at = (at + np.uint64(1)) & mask
                    if place[at] == 0:
                        n += 1
                        place[at] = n
                    elif kind == 0 or place[at] > rows_end:
                        return n
            if kind == 0:
                rows_end = n
        counts[part, 0], counts[part, 1] = rows_end - first, n - rows_end
    return -1


@quick
def _find_twice(salt: Salt, keys: np.ndarray, place: np.ndarray) -> int:
    """The place of a key that comes twice, or -1. Shapes: place (a power of two,) int32, zeros."""
    mask = np.uint64(len(place) - 1)
    for i in range(len(keys)):
        at = mix(salt, keys[i]) & mask
        while place[at] != 0 and keys[place[at] - 1] != keys[i]:
            at = (at + np.uint64(1)) & mask
        if place[at] != 0:
            return i
        place[at] = i + 1
    return -1


def control_of(name: str, epoch: int, blocks: Sequence[Block]) -> np.ndarray:
    """The control values of an epoch.

    Raises:
        BadEpochError: its blocks have different ones, or none.
    """
    controls = [block.columns["ctl"] for block in blocks if "ctl" in block.columns]
    if not controls:
        if epoch == 0:
            return control_values()
        msg = f"{name}: no block of epoch {epoch} carries its control values"
        raise BadEpochError(msg)
    for other in controls[1:]:
        if other[MARKER] != controls[0][MARKER] or other[FLAGS] != controls[0][FLAGS]:
            msg = f"{name}: epoch {epoch} has control values {controls[0]} and {other}"
            raise BadEpochError(msg)
    return controls[0]


def deal(name: str, epoch: int, blocks: Sequence[Block], width: int, parts: int) -> list[Dealt]:
    """Return the rows of each part of the task.

    Raises:
        BadEpochError: keys without rows or rows of another width, or an id has two rows.
    """
    some = [block for block in blocks if "row" in block.columns or "key" in block.columns]
    for block in some:
        keys, rows = block.get("key"), block.columns.get("row")
        if rows is None or rows.shape != (keys.size, width):
            shape = None if rows is None else rows.shape
            msg = f"{name}: epoch {epoch} has {keys.size} keys for rows of shape {shape}, width {width}"
            raise BadEpochError(msg)
    gone = [block for block in blocks if "del_key" in block.columns]
    if parts == 1 and len(some) == 1 and not gone:
        return [_dealt_to_one(name, epoch, some[0])]
    within = _within(some, "key", parts)
    changed = _spans_of(some, "key", *within)
    dead = _spans_of(gone, "del_key", *_within(gone, "del_key", parts))
    most = len(changed.values) + len(dead.values)
    keys, counts = np.empty(most + 1, np.int64), np.zeros((parts, 2), np.int64)
    place = np.zeros(1 << max(4, (2 * most).bit_length()), np.int32)
    twice = _deal(scratch_salt(), changed, dead, place, keys, counts) if most else -1
    if twice >= 0:
        raise BadEpochError(_said_twice(name, epoch, keys[twice]))
    rows_of: list[list[np.ndarray]] = [[] for _ in range(parts)]
    for block, begins, ends in zip(some, *within, strict=True):
        row = block.columns["row"]
        for found, begin, end in zip(rows_of, begins.tolist(), ends.tolist(), strict=True):
            if begin < end:
                found.append(row[begin:end])
    bounds = pairwise([0, *np.cumsum(counts.sum(axis=1)).tolist()])
    changed_of = counts[:, 0].tolist()
    return [Dealt(keys[a:b], rows, n) for (a, b), rows, n in zip(bounds, rows_of, changed_of, strict=True)]


def _dealt_to_one(name: str, epoch: int, block: Block) -> Dealt:
    """Return the rows of one sender for one part, where no vertex was deleted, as they are.

    Raises: BadEpochError, as `deal`.
    """
    keys = block.columns["key"].copy()
    if len(keys) > 1:
        place = np.zeros(1 << max(4, (2 * len(keys)).bit_length()), np.int32)
        if (twice := _find_twice(scratch_salt(), keys, place)) >= 0:
            raise BadEpochError(_said_twice(name, epoch, keys[twice]))
    return Dealt(keys, [block.columns["row"]], len(keys))


def _said_twice(name: str, epoch: int, key: int) -> str:
    return f"{name}: key {key} comes twice in epoch {epoch}"


def _within(blocks: Sequence[Block], column: str, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of each part in the column of each block, (blocks, parts) int64; see state/block_columns."""
    begins, ends = np.zeros((2, len(blocks), parts), np.int64)
    for k, block in enumerate(blocks):
        if parts == 1:
            ends[k] = block.get(column).size
        else:
            begins[k], ends[k] = block.get(f"{column}_begin"), block.get(f"{column}_end")
    return begins, ends


def _spans_of(blocks: Sequence[Block], column: str, begins: np.ndarray, ends: np.ndarray) -> _Spans:
    """The column of all blocks, given where it begins and ends in each of them."""
    values = [block.get(column) for block in blocks]
    if len(values) > 1:
        first = np.cumsum([0, *map(len, values[:-1])])[:, None]
        begins, ends = begins + first, ends + first
    joined = values[0] if len(values) == 1 else np.concatenate([_NO_KEYS, *values])
    return _Spans(frozen(joined), begins, ends)
