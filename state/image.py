"""Base images: the state of one operator's part as immutable files, one raw array a table.

An image is what the cores held after epoch 0 (the snapshot). Neither messages nor checkpoints carry it: keyed state
holds its hash and the pages that changed since. A folder holds `image.json` (format, epoch, tables with dtype, shape,
rows, CRC-32) and `TABLE.bin`; rows that were never touched are left out.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gnn.errors import InputError
from state.codec import UnknownFormatError
from state.mapped_file import MappedFile
from state.table import Table, TableSet

IMAGE_FORMAT = 2
_READ_BYTES = 4 << 20


class DamagedImageError(InputError):
    """A base image does not hold what its manifest says."""


def write_image(tables: TableSet, folder: Path, epoch: int, part: int = 0) -> None:
    """Write a part of the tables as they stand; complete once `image.json` is there.

    Tables that are kept in files of this folder (`TableSet.keep_in`) are finished, and of no more use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.json").unlink(missing_ok=True)
    entries = {}
    for table in tables:
        if table.file is None:
            written = _written(table, part)
            written.tofile(folder / f"{table.name}.bin")
            shape, crc32 = list(written.shape), zlib.crc32(written.data) if written.size else 0
        else:
            shape, crc32 = _finished(table, table.file)
        rows = int(table.part_rows[part])
        entries[table.name] = {"dtype": table.dtype.str, "shape": shape, "rows": rows, "crc32": crc32}
    manifest = orjson.dumps({"format": IMAGE_FORMAT, "epoch": epoch, "tables": entries}, option=orjson.OPT_INDENT_2)
    aside = folder / ".image.json"
    aside.write_bytes(manifest)
    os.replace(aside, folder / "image.json")


def _written(table: Table, part: int) -> np.ndarray:
    """All that a part ever had, in whole pages: the image does not tell how much room the part had."""
    extent = table.extent_of(part)
    written = np.ascontiguousarray(table.part(part)[:extent])
    if len(written) == extent:
        return written
    padded = np.full((extent, *written.shape[1:]), table.fill, table.dtype)
    padded[: len(written)] = written
    return padded


def _finished(table: Table, file: MappedFile) -> tuple[list[int], int]:
    """Cut the table's file to what the image has of it; its shape and checksum."""
    extent = table.extent_of()
    shape = [extent, *table.data.shape[1:]]
    table.data = table.data[:0]
    file.finish(math.prod(shape) * table.dtype.itemsize)
    return shape, file_crc32(file.path)


def file_crc32(path: Path) -> int:
    """The CRC-32 of a file, which is read in steps."""
    crc32 = 0
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            crc32 = zlib.crc32(data, crc32)
    return crc32


def load_image(tables: TableSet, folder: Path, part: int = 0) -> int:
    """Fill a part of the tables, which is empty, from its image; returns the epoch of that.

    Raises:
        UnknownFormatError: an image of another format version.
        DamagedImageError: files that do not fit their manifest.
    """
    manifest = orjson.loads(_manifest(folder))
    if manifest["format"] != IMAGE_FORMAT:
        msg = f"base image format {manifest['format']} is not known to this Freshet (it reads {IMAGE_FORMAT})"
        raise UnknownFormatError(msg)
    wanted = {table.name for table in tables}
    if set(manifest["tables"]) != wanted:
        msg = f"base image {folder}: has tables {sorted(manifest['tables'])}, the operator has {sorted(wanted)}"
        raise DamagedImageError(msg)
    for name, entry in manifest["tables"].items():
        _load_table(tables[name], entry, folder, part)
    return int(manifest["epoch"])


def image_id(folder: Path) -> bytes:
    """A hash of all that the image holds (its manifest has the tables' checksums)."""
    return hashlib.sha256(_manifest(folder)).hexdigest()[:32].encode()


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / "image.json").read_bytes()
    except FileNotFoundError:
        msg = f"base image {folder}: there is no image.json; put the folder back, or run again without --resume"
        raise DamagedImageError(msg) from None


def _load_table(table: Table, entry: dict[str, Any], folder: Path, part: int) -> None:
    path, shape = folder / f"{table.name}.bin", entry["shape"]
    size = path.stat().st_size // table.dtype.itemsize if path.is_file() else 0
    fits = entry["dtype"] == table.dtype.str and shape[1:] == list(table.data.shape[1:])
    if not fits or size != int(np.prod(shape)):
        msg = f"base image {folder}: table {table.name} has {size} values, its manifest says {entry}"
        raise DamagedImageError(msg)
    if table.parts == 1:  # its own memory is what the file has
        data = table.room_for(shape[0], entry["rows"])
    else:
        data = np.empty(shape, table.dtype)
    if size and _read(path, data) != entry["crc32"]:
        msg = f"base image {folder}: table {table.name} does not match its checksum; run again without --resume"
        raise DamagedImageError(msg)
    if table.parts > 1:
        table.load_rows(data, entry["rows"], part)


def _read(path: Path, out: np.ndarray) -> int:
    """Fill an array from a file that has as many bytes; returns their CRC-32."""
    crc32, view = 0, out.reshape(-1).view(np.uint8).data
    with path.open("rb", buffering=0) as file:
        for begin in range(0, len(view), _READ_BYTES):
            some = view[begin : begin + _READ_BYTES]
            done = 0
            while done < len(some) and (got := file.readinto(some[done:])):
                done += got
            crc32 = zlib.crc32(some, crc32)
    return crc32
