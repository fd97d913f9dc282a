"""Blocks in folders, a raw file for each column; read as arrays that are mapped."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.operators.embed.files import EmbedError, full_disk
from freshet.state.checksums.files import checksum_of
from freshet.state.codec import Block, Header
from freshet.state.memory.mapped_file import mapped

_COLUMNS = "columns.json"


@with_config(ConfigDict(extra="allow"))
class _Columns(TypedDict):
    columns: dict[str, tuple[str, int | None]]
    sums: dict[str, int]


class ColumnWriter:
    """Writes columns piece by piece; whole after `close`."""

    def __init__(self, folder: Path) -> None:
        """The folder is made, or emptied."""
        remove_columns(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._kinds: dict[str, tuple[str, int | None]] = {}

    def add(self, name: str, values: np.ndarray) -> None:
        """Add rows to a column, (n,) or (n, width).

        Raises: EmbedError when the disk is full.
        """
        if name not in self._files:
            self._files[name] = (self.folder / f"{name}.bin").open("wb", buffering=1 << 20)
            self._kinds[name] = values.dtype.str, values.shape[1] if values.ndim == 2 else None
        try:
            self._files[name].write(np.ascontiguousarray(values).data.cast("B") if values.size else b"")
        except OSError as error:
            raise full_disk(self.folder / name, error) from None

    def close(self, meta: Mapping[str, Any] | None = None) -> None:
        """Have everything in the files, with what else there is to know of the block."""
        try:
            for file in self._files.values():
                file.close()
        except OSError as error:
            raise full_disk(self.folder, error) from None
        sums = {name: checksum_of(self.folder / f"{name}.bin", zlib.crc32) for name in self._files}
        description = {"columns": self._kinds, "sums": sums, **(meta or {})}
        try:
            write_json(self.folder / _COLUMNS, description)
        except OSError as error:
            raise full_disk(self.folder / _COLUMNS, error) from None

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()


def remove_columns(folder: Path) -> None:
    """Remove a folder; until its end it does not look like a whole one."""
    (folder / _COLUMNS).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def are_whole(folder: Path) -> bool:
    """Return whether all columns were written."""
    return (folder / _COLUMNS).is_file()


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the metadata of a folder's columns.

    Raises: EmbedError when it is not there, or damaged.
    """
    try:
        found = read_json(folder / _COLUMNS, _Columns, "remove the folder above it and embed again")
    except DamagedFileError as error:
        raise EmbedError(str(error)) from None
    if found is None:
        msg = f"{folder / _COLUMNS}: is missing; remove the folder above it and embed again"
        raise EmbedError(msg)
    return dict(found)


def check_columns(folder: Path) -> None:
    """Check that the files are what was written.

    Raises: EmbedError naming the one that is not.
    """
    for name, crc32 in read_meta(folder)["sums"].items():
        path = folder / f"{name}.bin"
        if not path.is_file() or checksum_of(path, zlib.crc32) != crc32:
            msg = f"{path}: does not match its checksum; remove the folder and embed again"
            raise EmbedError(msg)


def read_columns(folder: Path, *, writable: bool = False) -> dict[str, np.ndarray]:
    """The columns, mapped; `writable`: see `mapped`."""
    kinds = read_meta(folder)["columns"]
    return {
        name: mapped(folder / f"{name}.bin", np.dtype(dtype), width, writable=writable)
        for name, (dtype, width) in kinds.items()
    }


def read_block(folder: Path, header: Header) -> Block:
    """The columns as a block; empty ones are left out as everywhere."""
    return Block(header, {name: column for name, column in read_columns(folder).items() if column.size})
