"""The rows of all vertices on disk, in blocks of neighbouring vertices; inside a block in the order of their coming.

A layer's rows are finished in any order. Each block has its place in the file beforehand and is filled from its start,
so that writes are long however random the order is, and a block, which fits in memory, is put in order when it is read.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from freshet.operators.embed.files import DiskFile, EmbedError
from freshet.operators.embed.row_kernels import place_rows
from freshet.state.memory.machine_memory import available_memory


class RowsFile:
    """Rows of `vertices` vertices, `width` float32 wide.

    Shapes: NAME.rows (vertices, width) float32; NAME.at (vertices,) int32, each row's vertex less the first one of its
    block. Without `shuffled` there is no NAME.at, and rows stand in order.
    Invariant: every vertex of a full block has one row (`read` checks it), whose checksum is `crc` of the block.
    Processes may each fill blocks of their own: `new` makes the file where nobody has, and changes nothing of one.
    """

    def __init__(self, path: Path, vertices: int, width: int, block_rows: int, *, shuffled: bool, new: bool) -> None:
        self.path, self.vertices, self.width, self.block_rows = path, vertices, width, block_rows
        self.blocks = -(-vertices // block_rows)
        self.crc, self.crc_at, self.filled = [0] * self.blocks, [0] * self.blocks, [0] * self.blocks
        self._rows = DiskFile(path.with_suffix(".rows"), vertices * width * 4 if new else None, shared=True)
        self._at = DiskFile(path.with_suffix(".at"), vertices * 4 if new else None, shared=True) if shuffled else None

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self.vertices * self.width * 4

    def rows_of(self, block: int) -> tuple[int, int]:
        """The first vertex of a block, and the one after its last."""
        return block * self.block_rows, min(self.vertices, (block + 1) * self.block_rows)

    def append(self, block: int, at: np.ndarray, rows: np.ndarray) -> None:
        """Add rows to a block; `at` are their vertices less the first of the block."""
        first, last = self.rows_of(block)
        place = first + self.filled[block]
        if place + len(rows) > last:
            msg = f"{self.path}: block {block} has {place - first + len(rows)} rows, expected {last - first}"
            raise EmbedError(msg)
        rows = np.ascontiguousarray(rows, np.float32)
        self._rows.write(place * self.width * 4, rows)
        self.crc[block] = zlib.crc32(rows.data, self.crc[block]) if rows.size else self.crc[block]
        if self._at is not None:
            at = np.ascontiguousarray(at, np.int32)
            self._at.write(place * 4, at)
            self.crc_at[block] = zlib.crc32(at.data, self.crc_at[block]) if at.size else self.crc_at[block]
        self.filled[block] += len(rows)

    def replace(self, vertex: int, row: np.ndarray) -> None:
        """Overwrite one vertex's row, of a file in order; `seal` adds its checksum."""
        self._rows.write(vertex * self.width * 4, row)

    def put(self, first: int, rows: np.ndarray) -> None:
        """Write the rows of neighbouring vertices, of a file in order; their checksums come with `seal`."""
        self._rows.write(first * self.width * 4, np.ascontiguousarray(rows, np.float32))

    def _read(self, block: int) -> np.ndarray:
        first, last = self.rows_of(block)
        if not self._is_larger_than_cache:
            return self._rows.read(first * self.width * 4, np.empty((last - first, self.width), np.float32))
        found = self._rows.read_once(first * self.width * 4, (last - first) * self.width * 4)
        return found.view(np.float32).reshape(last - first, self.width)

    @cached_property
    def _is_larger_than_cache(self) -> bool:
        """Return whether the next pass would not find the rows in the page cache."""
        return self.size > available_memory() // 2

    def seal(self) -> None:
        """Take the checksums of a file that was written by `put` and `replace`."""
        for block in range(self.blocks):
            first, last = self.rows_of(block)
            rows = self._read(block)
            self.crc[block], self.filled[block] = zlib.crc32(rows.data) if rows.size else 0, last - first

    def read(self, block: int) -> np.ndarray:
        """The rows of a full block, in the order of its vertices.

        Raises: EmbedError when it is not what was written.
        """
        first, last = self.rows_of(block)
        rows = self._read(block)
        self._check(block, zlib.crc32(rows.data) if rows.size else 0, self.crc)
        if self._at is None:
            return rows
        at = self._at.read(first * 4, np.empty(last - first, np.int32))
        self._check(block, zlib.crc32(at.data), self.crc_at)
        if len(np.unique(at)) != last - first or at.min() != 0 or at.max() != last - first - 1:
            msg = f"{self.path}: block {block} does not have each vertex once: it is damaged; remove the folder"
            raise EmbedError(msg)
        ordered = np.empty_like(rows)
        place_rows(rows, at, ordered)
        return ordered

    def _check(self, block: int, crc: int, recorded: list[int]) -> None:
        if crc != recorded[block]:
            msg = f"{self.path}: block {block} does not match its checksum: remove the folder and embed again"
            raise EmbedError(msg)

    def forget(self, block: int) -> None:
        """Fill a block from its start again."""
        self.crc[block] = self.crc_at[block] = self.filled[block] = 0

    def record(self, blocks: range | None = None) -> dict[str, Any]:
        """Return the record that `restore` needs of these blocks, or of all."""
        of = range(self.blocks) if blocks is None else blocks
        here = slice(of.start, of.stop)
        return {
            "first": of.start,
            "crc": self.crc[here],
            "crc_at": self.crc_at[here],
            "filled": self.filled[here],
        }

    def restore(self, record: dict[str, Any]) -> None:
        """Take over what a record says of its blocks."""
        here = slice(record["first"], record["first"] + len(record["crc"]))
        self.crc[here], self.crc_at[here], self.filled[here] = record["crc"], record["crc_at"], record["filled"]

    def sync(self) -> None:
        """Have all rows on the disk."""
        self._rows.sync()
        if self._at is not None:
            self._at.sync()

    def close(self) -> None:
        """Close the files."""
        self._rows.close()
        if self._at is not None:
            self._at.close()

    @staticmethod
    def remove(path: Path) -> None:
        """Take the files away."""
        for suffix in (".rows", ".at"):
            path.with_suffix(suffix).unlink(missing_ok=True)
