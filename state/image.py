"""Base images: the state of one operator's part as immutable files, one raw array a table.

An image is what the cores held after epoch 0 (the snapshot). Neither messages nor checkpoints carry it: keyed state
holds its hash and the pages that changed since. A folder holds `image.json` (format, epoch, tables with dtype, shape,
rows, and the CRC-32 of each page of the file) and `TABLE.bin`; rows that were never touched are left out. Format 2 had
one CRC-32 of the whole file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, Required

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, parse_json, write_json
from freshet.files.listing import paths_in, size_of
from freshet.state.codec import UnknownFormatError
from freshet.state.memory.mapped_file import MappedFile
from freshet.state.page_checksums import PAGE_BYTES, PageChecksums
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import DENSE_PARTS

IMAGE_FORMAT = 3
FORMATS_READ = (2, IMAGE_FORMAT)
# What can be done with what another version has written.
GO_ON = "Resume with the version that wrote it, or `freshet export` the graph with that one and start from the snapshot"
_PUT_BACK = "put it back from a copy, embed the snapshot again, or run again without --resume"
# What is mapped: an operator's tables of so many bytes, where the images of all operators together have so many.
# Smaller ones are soon read, and in huge pages of memory from the first event on; of what is mapped, each small page
# costs some microseconds when it is first written to, as other threads' processors have to be told of it.
_MAPPED_BYTES, _MAPPED_JOB_BYTES = 512 << 20, 3 << 30
_MAPPED_TABLE_BYTES = 1 << 20  # of each part


@with_config(ConfigDict(extra="allow"))
class _Entry(TypedDict, total=False):
    dtype: Required[str]
    shape: Required[list[int]]
    rows: Required[int]
    crc32s: str
    crc32: int


@with_config(ConfigDict(extra="allow"))
class _Manifest(TypedDict):
    format: int
    epoch: int
    page_bytes: NotRequired[int]
    tables: dict[str, _Entry]


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
            shape, checksums = list(written.shape), PageChecksums.of_writing(folder / f"{table.name}.bin", written)
        else:
            shape, checksums = _finished(table, table.file)
        rows, crc32s = int(table.part_rows[part]), checksums.encode()
        entries[table.name] = {"dtype": table.dtype.str, "shape": shape, "rows": rows, "crc32s": crc32s}
    told = {"format": IMAGE_FORMAT, "epoch": epoch, "page_bytes": PAGE_BYTES, "tables": entries}
    write_json(folder / "image.json", told)


def _written(table: Table, part: int) -> np.ndarray:
    """Return all rows that the part ever had, in whole pages; the image does not record the part's capacity."""
    extent = table.extent_of(part)
    written = np.ascontiguousarray(table.part(part)[:extent])
    if len(written) == extent:
        return written
    padded = np.full((extent, *written.shape[1:]), table.fill, table.dtype)
    padded[: len(written)] = written
    return padded


def _finished(table: Table, file: MappedFile) -> tuple[list[int], PageChecksums]:
    """Cut the table's file to what the image has of it; its shape and checksums.

    Kernels have written to it in any order, so that nothing was known of a page before its end.
    """
    extent = table.extent_of()
    shape = [extent, *table.data.shape[1:]]
    table.data = table.data[:0]
    nbytes = math.prod(shape) * table.dtype.itemsize
    file.finish(nbytes)
    with file.path.open("rb", buffering=0) as written:
        return shape, PageChecksums.of(written.fileno(), nbytes)


def load_images(tables: TableSet, folders: Mapping[int, Path]) -> list[int]:
    """Fill parts of the tables, which are empty, from their images; returns the epochs of those.

    Large images are mapped: every page is read once, to be checked, and from then on is memory of the process only
    when it has changed. A check at the first touch can't be had: kernels touch pages by pointers.

    Raises:
        UnknownFormatError: an image of another format version.
        DamagedFileError: files that do not fit their manifest.
    """
    manifests = {part: _read_manifest(folder, tables) for part, folder in folders.items()}
    stored = {table.name: {p: _Stored.of(table, folders[p], one) for p, one in manifests.items()} for table in tables}
    in_use = sum(_in_use(table, stored[table.name]) for table in tables)
    is_large = in_use >= _MAPPED_BYTES and _bytes_beside(folders.values()) >= _MAPPED_JOB_BYTES
    for table in tables:
        _load_table(table, stored[table.name], is_large)
    return [int(one["epoch"]) for one in manifests.values()]


def _bytes_beside(folders: Iterable[Path]) -> int:
    """Return the bytes of all images in the same place, including those of other operators."""
    paths = (path for place in {folder.parent for folder in folders} for path in paths_in(place, "*/*.bin"))
    return sum(size_of(path) or 0 for path in paths)  # an embedding removes images that it needs no more


def _read_manifest(folder: Path, tables: TableSet) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = dict(parse_json(_manifest(folder), _Manifest))
    except ValueError as error:
        msg = f"base image {folder}: image.json is damaged: {error}; {_PUT_BACK}"
        raise DamagedFileError(msg) from None
    if manifest["format"] not in FORMATS_READ:
        known = " and ".join(map(str, FORMATS_READ))
        msg = f"base image format {manifest['format']} is not known to this Freshet (it reads {known})"
        raise UnknownFormatError(msg)
    if refusal := refusal_of(manifest["tables"], tables):
        msg = f"base image {folder}: {refusal}"
        raise DamagedFileError(msg)
    return manifest


def refusal_of(names: Iterable[str], tables: TableSet) -> str:
    """Return why an image of tables with these names cannot be read into `tables`; empty if it can."""
    stored, here = sorted(names), sorted(table.name for table in tables)
    if stored == here:
        return ""
    return (
        f"has tables {stored}, the operator has {here}: another version of Freshet wrote it (earlier ones had a column "
        f"for each part also of more than {DENSE_PARTS}). {GO_ON}"
    )


def image_id(folder: Path) -> bytes:
    """A hash of all that the image holds (its manifest has the tables' checksums)."""
    return hashlib.sha256(_manifest(folder)).hexdigest()[:32].encode()


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / "image.json").read_bytes()
    except OSError as error:
        what = "there is no image.json" if isinstance(error, FileNotFoundError) else f"image.json: {error.strerror}"
        msg = f"base image {folder}: {what}; {_PUT_BACK}"
        raise DamagedFileError(msg) from None


class _Stored(NamedTuple):
    """A part of a table in its file, which has as many bytes as it must."""

    path: Path
    shape: list[int]
    rows: int
    nbytes: int
    checksums: PageChecksums

    @staticmethod
    def of(table: Table, folder: Path, manifest: dict[str, Any]) -> _Stored:
        entry, path = manifest["tables"][table.name], folder / f"{table.name}.bin"
        shape, item = entry["shape"], table.dtype.itemsize
        nbytes = math.prod(shape) * item
        size = path.stat().st_size if path.is_file() else 0
        fits = entry["dtype"] == table.dtype.str and shape[1:] == list(table.data.shape[1:])
        if not fits or size != nbytes:
            expected = {name: entry[name] for name in ("dtype", "shape", "rows")}
            msg = f"base image {folder}: table {table.name} has {size // item} values, its manifest says {expected}"
            raise DamagedFileError(msg)
        if manifest["format"] == IMAGE_FORMAT:
            checksums = PageChecksums.decode(entry["crc32s"], manifest["page_bytes"])
        else:
            checksums = PageChecksums(max(1, nbytes), np.full(1 if nbytes else 0, entry["crc32"], np.uint32))
        return _Stored(path, shape, entry["rows"], nbytes, checksums)

    def check(self, file: int, into: np.ndarray | None = None) -> None:
        """Check all of the open file, and read it into an array if there is one.

        Raises: DamagedFileError naming the first page that is not what was written.
        """
        found = PageChecksums.of(file, self.nbytes, self.checksums.page_bytes, into)
        where = self.checksums.difference(found, self.nbytes)
        if where is not None:
            msg = (
                f"base image {self.path.parent}: table {self.path.stem} does not match its checksums: {self.path}, "
                f"{where}; {_PUT_BACK}"
            )
            raise DamagedFileError(msg)


def _in_use(table: Table, stored: dict[int, _Stored]) -> int:
    """Bytes of the rows that the parts of a table have in use."""
    return sum(one.rows * math.prod(one.shape[1:]) for one in stored.values()) * table.dtype.itemsize


def _load_table(table: Table, stored: dict[int, _Stored], is_large: bool) -> None:
    if is_large and _in_use(table, stored) >= _MAPPED_TABLE_BYTES * max(1, len(stored)):
        try:
            return _map_table(table, stored)
        except OSError:  # a limit on address space, or a file system that maps nothing: it has to be memory
            pass
    for part, one in stored.items():
        values = np.empty(one.shape, table.dtype)
        with one.path.open("rb", buffering=0) as file:
            one.check(file.fileno(), values)
        table.load_rows(values, one.rows, part)


def _map_table(table: Table, stored: dict[int, _Stored]) -> None:
    """Map all parts of a table; the checked file is the mapped one, even if its name is reused meanwhile."""
    held, rows = np.zeros(table.parts, np.int64), np.zeros(table.parts, np.int64)
    with ExitStack() as opened:
        files = {p: opened.enter_context(one.path.open("rb", buffering=0)) for p, one in stored.items() if one.shape[0]}
        for part, one in stored.items():
            held[part], rows[part] = one.shape[0], one.rows
        for part, file in files.items():
            stored[part].check(file.fileno())
        table.map_files(files, held, rows)
