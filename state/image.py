"""Base images: the state of one operator's part as immutable files, one raw array a table.

An image is what the cores held after epoch 0 (the snapshot). Neither messages nor checkpoints carry it: keyed state
holds its hash and the pages that changed since. A folder holds `image.json` (format, epoch, tables with dtype, shape,
rows, CRC-32) and `TABLE.bin`; rows that were never touched are left out.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gnn.errors import InputError
from state.codec import UnknownFormatError
from state.table import Table, TableSet

IMAGE_FORMAT = 2


class DamagedImageError(InputError):
    """A base image does not hold what its manifest says."""


def write_image(tables: TableSet, folder: Path, epoch: int) -> None:
    """Write the tables as they stand; complete once `image.json` is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.json").unlink(missing_ok=True)
    entries = {}
    for table in tables:
        written = np.ascontiguousarray(table.data[: table.extent])
        written.tofile(folder / f"{table.name}.bin")
        crc32 = zlib.crc32(written.data) if written.size else 0
        shape = list(written.shape)
        entries[table.name] = {"dtype": table.dtype.str, "shape": shape, "rows": table.rows, "crc32": crc32}
    manifest = orjson.dumps({"format": IMAGE_FORMAT, "epoch": epoch, "tables": entries}, option=orjson.OPT_INDENT_2)
    aside = folder / ".image.json"
    aside.write_bytes(manifest)
    os.replace(aside, folder / "image.json")


def load_image(tables: TableSet, folder: Path) -> int:
    """Fill the tables from an image; returns its epoch.

    Raises:
        UnknownFormatError: an image of another format version.
        DamagedImageError: files that do not fit their manifest.
    """
    manifest = orjson.loads(_manifest(folder))
    if manifest["format"] != IMAGE_FORMAT:
        message = f"base image format {manifest['format']} is not known to this Freshet (it reads {IMAGE_FORMAT})"
        raise UnknownFormatError(message)
    wanted = {table.name for table in tables}
    if set(manifest["tables"]) != wanted:
        message = f"base image {folder}: has tables {sorted(manifest['tables'])}, the operator has {sorted(wanted)}"
        raise DamagedImageError(message)
    for name, entry in manifest["tables"].items():
        _load_table(tables[name], entry, folder)
    return int(manifest["epoch"])


def image_id(folder: Path) -> bytes:
    """A hash of all that the image holds (its manifest has the tables' checksums)."""
    return hashlib.sha256(_manifest(folder)).hexdigest()[:32].encode()


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / "image.json").read_bytes()
    except FileNotFoundError:
        message = f"base image {folder}: there is no image.json; put the folder back, or run again without --resume"
        raise DamagedImageError(message) from None


def _load_table(table: Table, entry: dict[str, Any], folder: Path) -> None:
    path = folder / f"{table.name}.bin"
    data = np.fromfile(path, table.dtype) if path.is_file() else np.empty(0, table.dtype)
    written, rows, shape = entry["shape"][0], entry["rows"], entry["shape"]
    fits = entry["dtype"] == table.dtype.str and shape[1:] == list(table.data.shape[1:])
    if not fits or data.size != int(np.prod(shape)):
        message = f"base image {folder}: table {table.name} has {data.size} values, its manifest says {entry}"
        raise DamagedImageError(message)
    if data.size and zlib.crc32(data.data) != entry["crc32"]:
        message = f"base image {folder}: table {table.name} does not match its checksum; run again without --resume"
        raise DamagedImageError(message)
    table.reserve(max(written, rows))
    table.data[:written] = data.reshape(shape)
    table.rows = rows
