"""The byte layout of a block: a small header, a directory of columns, and the columns as raw little-endian arrays.

Everything that travels between operators or stands in the journal is such a block. Decoding copies nothing.

Layout (little-endian):
    header     24 bytes: magic "FB", version u8, kind u8, layer u8, flags u8, source i16, epoch i64, columns u32,
               pad u32
    directory  32 bytes a column: name 16 bytes (ASCII, zero-padded), dtype char u8, dimensions u8, pad u16,
               row width u32, rows u64
    data       the columns in that order, each at a multiple of 8 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from freshet.errors import InputError
from freshet.state.block_columns import DTYPES, Columns, split_name

FORMAT_VERSION = 1

_MAGIC = b"FB"
_HEADER = struct.Struct("<2sBBBBhqII")
_COLUMN = struct.Struct("<16sBBHIQ")
_NAME_BYTES = 16
_DTYPES: dict[int, np.dtype[Any]] = {
    ord("b"): np.dtype("<i1"),
    ord("B"): np.dtype("u1"),
    ord("h"): np.dtype("<i2"),
    ord("i"): np.dtype("<i4"),
    ord("q"): np.dtype("<i8"),
    ord("f"): np.dtype("<f4"),
    ord("d"): np.dtype("<f8"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_PADDING = [b"\0" * k for k in range(8)]


class UnknownFormatError(InputError):
    """A block or a state entry was written by a version of Freshet that this one does not know."""


def _empty(dtype: np.dtype[Any]) -> np.ndarray:
    """An empty column, read-only as decoded ones are: kernels are compiled for one kind of array only."""
    column = np.empty(0, dtype)
    column.flags.writeable = False
    return column


class _Empty(dict[str, np.ndarray]):
    """Empty columns by name, that of a prefixed name among them."""

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = made = _empty(DTYPES[name])
        return made


_EMPTY = _Empty({name: _empty(dtype) for name, dtype in DTYPES.items()})


class Header(NamedTuple):
    """Header of a block: its kind, layer and epoch, and the part that sent it."""

    kind: int
    epoch: int = 0
    layer: int = 0
    source: int = 0
    flags: int = 0


@dataclass(slots=True)  # not frozen, which takes four times as long to make
class Block:
    """A decoded block; a column that the sender left out reads as absent."""

    header: Header
    columns: Columns = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes that the block has when it is encoded."""
        directory = _HEADER.size + len(self.columns) * _COLUMN.size
        return directory + sum(-(-column.nbytes // 8) * 8 for column in self.columns.values())

    def get(self, name: str) -> np.ndarray:
        """The column, or an empty one of its dtype where the sender left it out (see state/block_columns.py)."""
        column = self.columns.get(name)
        return _EMPTY[name] if column is None else column


def views(block: Block) -> dict[str, Block]:
    """Return the columns of each kind and each relation that a block has any of as a block of their own, by prefix.

    Their names are without it, so that each is read as a block of one kind is. Columns without a prefix, such as the
    control values, are under the empty one.
    """
    if "." not in "".join(block.columns):
        return {"": block}
    found: dict[str, Columns] = {}
    for name, column in block.columns.items():
        prefix, plain = split_name(name)
        found.setdefault(prefix, {})[plain] = column
    return {prefix: Block(block.header, columns) for prefix, columns in found.items()}


def view(block: Block, prefix: str) -> Block:
    """Return one of the `views`, without columns where the block has none of it."""
    columns = {name[len(prefix) :]: column for name, column in block.columns.items() if name.startswith(prefix)}
    return Block(block.header, columns)


def seal(header: Header, columns: Mapping[str, np.ndarray], passed: Columns | None = None) -> Block:
    """A block as decoding its bytes would give it: empty columns are left out, the others are contiguous and read-only.

    The columns themselves are taken over, not copied: nobody may write to them any more. `passed`: the first columns,
    made of those of another block.
    """
    kept = {name: np.ascontiguousarray(column) for name, column in columns.items() if column.size}
    for column in kept.values():
        column.setflags(write=False)  # a fifth of the time of an assignment to `flags`
    return Block(header, passed | kept if passed else kept)


def encode(header: Header, columns: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a block; empty columns are left out.

    Raises: as `pieces_of` does.
    """
    return b"".join(pieces_of(header, columns))


def pieces_of(header: Header, columns: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """The bytes of a block, in pieces that follow each other: those of columns are views.

    Raises:
        KeyError: a dtype that the layout has no code for.
        ValueError: a column name that is too long.
    """
    kept = [(name, np.ascontiguousarray(column)) for name, column in columns.items() if column.size]
    begin = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        header.kind,
        header.layer,
        header.flags,
        header.source,
        header.epoch,
        len(kept),
        0,
    )
    pieces: list[bytes | memoryview] = [begin]
    for name, column in kept:
        width = column.shape[1] if column.ndim == 2 else 0
        if len(name) > _NAME_BYTES:
            msg = f"column name {name!r}: expected at most {_NAME_BYTES} bytes"
            raise ValueError(msg)
        pieces.append(_COLUMN.pack(name.encode(), _CODES[column.dtype], column.ndim, 0, width, column.shape[0]))
    for _, column in kept:
        pieces.append(column.data.cast("B"))
        pieces.append(_PADDING[-column.nbytes % 8])
    return pieces


def read_header(data: bytes) -> Header:
    """The header alone.

    Raises:
        UnknownFormatError: not a block, or one of another format version.
    """
    magic, version, kind, layer, flags, source, epoch, _, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        msg = f"not a block: expected magic {_MAGIC!r}, got {magic!r}"
        raise UnknownFormatError(msg)
    if version != FORMAT_VERSION:
        msg = f"block format version {version} is not known to this Freshet (it reads {FORMAT_VERSION})"
        raise UnknownFormatError(msg)
    return Header(kind, epoch, layer, source, flags)


def decode(data: bytes) -> Block:
    """The block, its columns as read-only views of `data`.

    Raises:
        UnknownFormatError: not a block, or one of another format version.
    """
    header = read_header(data)
    (count,) = struct.unpack_from("<I", data, 16)
    columns: Columns = {}
    at = _HEADER.size + count * _COLUMN.size
    for k in range(count):
        name, code, ndim, _, width, rows = _COLUMN.unpack_from(data, _HEADER.size + k * _COLUMN.size)
        dtype = _DTYPES[code]
        size = rows * (width if ndim == 2 else 1)
        column = np.frombuffer(data, dtype, size, at)
        columns[name.rstrip(b"\0").decode()] = column.reshape(rows, width) if ndim == 2 else column
        at += size * dtype.itemsize
        at += -at % 8
    return Block(header, columns)
