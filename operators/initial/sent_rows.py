"""Rows that a part's masters send to the next layer, in files: rows by slot, and those of split vertices."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from freshet.operators.embed.files import full_disk
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.row_kernels import gather
from freshet.operators.graph.sources import SourceRows
from freshet.operators.initial.column_files import ColumnWriter, read_columns, remove_columns
from freshet.state.checksums.files import checksum_of
from freshet.state.codec import Block
from freshet.state.memory.mapped_file import MappedFile, mapped

_ROWS = np.dtype(np.float32)


def in_chunks(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield the values in chunks."""
    for first in range(0, len(values), size):
        yield values[first : first + size]


class SlotRows:
    """A file of rows by slot that is being written. Slots without a row hold zeros."""

    def __init__(self, path: Path, slots: int, width: int) -> None:
        """Raises: EmbedError when the disk has too little room."""
        self._path = path
        self._file = MappedFile(path)
        try:
            self._rows = self._file.array((slots, width), _ROWS)
        except OSError as error:
            raise full_disk(path, error) from None

    def put(self, slots: np.ndarray | slice, rows: np.ndarray) -> None:
        """Write the rows of these slots; the process holds none of them afterwards."""
        self._rows[slots] = rows
        self._file.let_go()

    def finish(self) -> int:
        """Have all rows in the file; its checksum."""
        nbytes, self._rows = self._rows.nbytes, self._rows[:0]
        self._file.finish(nbytes)
        return checksum_of(self._path, zlib.crc32)


def rows_path(work: Path, layer: int, part: int, kind: int | None = None) -> Path:
    """Return the path of the rows that a part's whole vertices, perhaps of one kind, send to the next layer."""
    return work / _name("sent", layer, part, kind)


def split_folder(work: Path, layer: int, part: int, kind: int | None = None) -> Path:
    """Return the folder of the rows that its split vertices send there."""
    return work / _name("split", layer, part, kind)


def _name(rows: str, layer: int, part: int, kind: int | None) -> str:
    return f"{rows}-{layer}-{part}" + ("" if kind is None else f"-{kind}")


class SplitRows:
    """Rows of split vertices that are being written, in the order of their slots."""

    def __init__(self, work: Path, layer: int, part: int, kind: int | None = None) -> None:
        self._out = ColumnWriter(split_folder(work, layer, part, kind))

    def put(self, slots: np.ndarray, rows: np.ndarray) -> None:
        """Add rows of the next slots."""
        self._out.add("slot", slots)
        self._out.add("row", rows)

    def finish(self) -> None:
        """Have all rows in the files."""
        self._out.close()


class Sent:
    """Rows that all masters of a part send, mapped.

    Shapes: whole (slots, message_width + self_width) float32, read-only
    """

    def __init__(self, work: Path, layer: int, part: int, width: int, kind: int | None = None) -> None:
        self.whole = mapped(rows_path(work, layer, part, kind), _ROWS, width)
        folder = split_folder(work, layer, part, kind)
        columns = read_columns(folder) if folder.is_dir() else {}
        self._slots = columns.get("slot", np.empty(0, np.int32))
        self._rows = columns.get("row", self.whole[:0])

    def gather(self, slots: np.ndarray, width: int | None = None) -> np.ndarray:
        """The rows of these slots, or their first `width` columns."""
        rows = gather(self.whole, slots, width)
        if len(self._slots):
            at = np.searchsorted(self._slots, slots)
            at[at == len(self._slots)] = 0
            found = np.flatnonzero(self._slots[at] == slots)
            rows[found] = gather(self._rows, frozen(at[found].astype(np.int32)), rows.shape[1])
        return rows


def incoming(section: Block, sent: Sequence[Sent], part: int, to: tuple[Path, slice], size: int) -> SourceRows:
    """Return what masters and replicas of a part send in these columns, in a file where they are to be moved.

    `sent` are the rows of all parts; `size` of them are moved at a time.
    """
    masters, (path, columns) = section.get("m_slot"), to
    if len(sent) == 1 and columns.start == 0:
        return SourceRows(masters, masters, sent[0].whole, [])
    slots, width = np.concatenate([masters, section.get("r_slot")]), columns.stop - columns.start
    rows = SlotRows(path, len(slots), width)
    places = np.arange(len(slots), dtype=np.int32)
    for some, at in zip(in_chunks(masters, size), in_chunks(places[: len(masters)], size), strict=True):
        rows.put(at, sent[part].gather(some, columns.stop)[:, columns.start :])
    places = places[len(masters) :]
    for of, there in enumerate(sent):
        mine = np.flatnonzero(section.get("r_part") == of)
        for some in in_chunks(mine, size):
            rows.put(places[some], there.gather(section.get("r_home")[some], columns.stop)[:, columns.start :])
    rows.finish()
    order = np.argsort(slots, kind="stable").astype(np.int32)
    return SourceRows(frozen(slots[order]), frozen(order), mapped(path, _ROWS, width), [])


def remove_sent(work: Path, layer: int, parts: range, kind: int | None = None) -> None:
    """Remove what was sent to the layer after this one."""
    for part in parts:
        rows_path(work, layer, part, kind).unlink(missing_ok=True)
        remove_columns(split_folder(work, layer, part, kind))
