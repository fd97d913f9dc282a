"""Base images: the state of one operator's part as immutable files, one raw array a table.

An image is what the cores held after epoch 0 (the snapshot). Neither messages nor checkpoints carry it: keyed state
holds its hash and the pages that changed since. A folder holds `image.json` (format, epoch, tables with dtype, shape,
rows, and the CRC-32 of each page of the file) and `TABLE.bin`; rows that were never touched are left out. Format 2 had
one CRC-32 of the whole file.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, Required

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, parse_json, write_json
from freshet.files.listing import paths_in, size_of
from freshet.state.codec import UnknownFormatError
from freshet.state.memory.mapped_file import MappedFile
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import DENSE_PARTS

PAGE_BYTES = 1 << 20
_STEP_BYTES = PAGE_BYTES  # smaller ones stay in a core, but threads would wait for the interpreter more often
_THREADS_MAX = 4


class PageChecksums(NamedTuple):
    """The CRC-32 of each page of a file, of which the last one may be shorter.

    Shapes: crc32s (pages,) uint32. Units: `page_bytes` bytes.
    """

    page_bytes: int
    crc32s: np.ndarray

    @staticmethod
    def of(
        file: int,
        nbytes: int,
        page_bytes: int = PAGE_BYTES,
        into: np.ndarray | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> PageChecksums:
        """Compute those of an open file's first bytes, read `into` a contiguous array of that size if one is given.

        `between` is called after each page.
        """
        pages = -(-nbytes // page_bytes)
        crc32s, turns = np.zeros(pages, np.uint32), count()
        target = None if into is None else into.reshape(-1).view(np.uint8).data

        def take_turns() -> None:
            step = memoryview(bytearray(_STEP_BYTES if target is None else 0))
            while (page := next(turns)) < pages:
                begin, end = page * page_bytes, min((page + 1) * page_bytes, nbytes)
                crc32s[page] = _crc32(file, begin, end, step if target is None else target[begin:end])
                between()

        _side_by_side(take_turns, pages)
        return PageChecksums(page_bytes, crc32s)

    @staticmethod
    def of_writing(path: Path, data: np.ndarray) -> PageChecksums:
        """Write a contiguous array to a file; its checksums, each taken while the page is in the cache."""
        view = data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
        pages = [view[begin : begin + PAGE_BYTES] for begin in range(0, len(view), PAGE_BYTES)]
        crc32s = np.zeros(len(pages), np.uint32)
        with path.open("wb") as file:
            for k, page in enumerate(pages):
                crc32s[k] = zlib.crc32(page)
                file.write(page)
        return PageChecksums(PAGE_BYTES, crc32s)

    def encode(self) -> str:
        """The checksums as text: base64 of little-endian uint32."""
        return b64encode(self.crc32s.astype("<u4").tobytes()).decode()

    @staticmethod
    def decode(text: str, page_bytes: int) -> PageChecksums:
        """The checksums of their text."""
        return PageChecksums(page_bytes, np.frombuffer(b64decode(text), "<u4"))

    def difference(self, found: PageChecksums, nbytes: int) -> str | None:
        """Describe the difference of a file of this size from its checksums; None if there is none."""
        if len(found.crc32s) != len(self.crc32s):
            return f"it has {len(found.crc32s)} pages, expected {len(self.crc32s)}"
        damaged = np.flatnonzero(found.crc32s != self.crc32s).tolist()
        if not damaged:
            return None
        first = damaged[0] * self.page_bytes
        more = f"; {len(damaged):,} of its {len(self.crc32s):,} pages are damaged" if len(damaged) > 1 else ""
        return f"page {damaged[0]:,}, bytes {first:,} to {min(nbytes, first + self.page_bytes):,}{more}"


def _crc32(file: int, begin: int, end: int, room: memoryview) -> int:
    """The CRC-32 of a range of a file; `room` is for all of it, or for a step of it at a time."""
    crc32, at = 0, begin
    while at < end:
        to = at - begin if len(room) == end - begin else 0
        some = room[to : to + min(_STEP_BYTES, end - at)]
        got = os.preadv(file, [some], at)
        if not got:  # the file was cut off: the checksum tells
            break
        crc32 = zlib.crc32(some[:got], crc32)
        at += got
    return crc32


def _side_by_side(work: Callable[[], None], most: int) -> None:
    """Do the same in several threads, which share it out among them; reading and zlib let others run meanwhile."""
    threads = min(most, _THREADS_MAX, len(os.sched_getaffinity(0)))
    if threads <= 1:
        work()
        return
    with ThreadPoolExecutor(threads, "checksums") as pool:
        for waiting in [pool.submit(work) for _ in range(threads)]:
            waiting.result()


IMAGE_FORMAT = 3
FORMATS_READ = (2, IMAGE_FORMAT)
# What can be done with what another version has written.
GO_ON = "Resume with the version that wrote it, or `freshet export` the graph with that one and start from the snapshot"
_PUT_BACK = "put it back from a copy, embed the snapshot again, or run again without --resume"
# What is mapped: an operator's tables of so many bytes, where the images of all operators together have so many.
# Smaller ones are soon read, and in huge pages of memory from the first event on; of what is mapped, each small page
# costs some microseconds when it is first written to, as other threads' processors have to learn of it.
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
        file = table.memory.file
        if file is None:
            written = _written(table, part)
            shape, checksums = list(written.shape), PageChecksums.of_writing(folder / f"{table.name}.bin", written)
        else:
            shape, checksums = _finished(table, file)
        rows, crc32s = int(table.part_rows[part]), checksums.encode()
        entries[table.name] = {"dtype": table.dtype.str, "shape": shape, "rows": rows, "crc32s": crc32s}
    description = {"format": IMAGE_FORMAT, "epoch": epoch, "page_bytes": PAGE_BYTES, "tables": entries}
    write_json(folder / "image.json", description)


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
    stored = {
        table.name: {
            p: _Stored.of(table, folders[p], one) for p, one in manifests.items() if table.name in one["tables"]
        }
        for table in tables
    }
    in_use = sum(_in_use(table, stored[table.name]) for table in tables)
    of_job = _bytes_beside(folders.values()) if in_use >= _MAPPED_BYTES or tables.pager is not None else 0
    if tables.pager is not None:
        tables.pager.expect(of_job)
    is_large = tables.pager is None and in_use >= _MAPPED_BYTES and of_job >= _MAPPED_JOB_BYTES
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
    if sorted({name for one in stored for name in tables.replaced.get(one, (one,))}) == here:
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

    def check(self, file: int, into: np.ndarray | None = None, between: Callable[[], None] = lambda: None) -> None:
        """Check all of the open file, and read it into an array if there is one; `between`: see `PageChecksums.of`.

        Raises: DamagedFileError naming the first page that is not what was written.
        """
        found = PageChecksums.of(file, self.nbytes, self.checksums.page_bytes, into, between)
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
        with one.path.open("rb", buffering=0) as file:
            if table.parts == 1:
                one.check(file.fileno(), table.room_for(one.shape[0], one.rows), table.memory.make_room)
                continue
            values = np.empty(one.shape, table.dtype)
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
