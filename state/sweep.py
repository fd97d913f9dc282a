"""Markers and sweeps: how tables become durable pages, and how they come back.

After a marker epoch E_k every page that is dirty is owed to marker k, and is written as of E_k, a few per epoch, tagged
k; all are written before E_k+1 is passed. Cut k is, for each page, the newest tag <= k. A restore finds the last marker
k that was passed, loads cut k-1 (whose pages are all there) and the caller replays the epochs after E_k-1.

Keys of the entries: `table/page@tag` for pages, `meta@tag` for what goes with a cut (JSON: epoch and rows per table),
`format`, and `image` (the hash of the base image, where there is one).
Invariant: everything an operator holds after a restore and replay is bit-equal to what it held without a failure.
Source: RIPPLE++ and D3-GNN have no durable state; the scheme is Freshet's own, held by tests/simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from state.codec import UnknownFormatError
from state.image import DamagedImageError, image_id, load_image
from state.table import TableSet

STATE_FORMAT = 2
_META, _FORMAT, _IMAGE = "meta", "format", "image"


@dataclass(slots=True)
class Mutations:
    """What must become part of keyed state, in order: puts, then deletes."""

    puts: list[tuple[str, bytes]] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)

    def extend(self, other: Mutations) -> None:
        """Add another's."""
        self.puts += other.puts
        self.deletes += other.deletes


class Sweeper:
    """Writes the changed pages of a core's tables behind its markers, and restores them.

    A sweep is spread so that it ends after about `spread_epochs` epochs. `epoch` is what the tables stand at where
    nothing is restored.
    """

    def __init__(self, tables: TableSet, image: Path | None = None, spread_epochs: int = 200, epoch: int = 0) -> None:
        self.tables = tables
        self.image = image
        self.marker, self.epoch = 0, epoch
        self._spread = spread_epochs
        self._pace = 1
        self._tags: dict[str, list[int]] = {}
        self._superseded: list[str] = []
        self._stamped = self._loaded = False
        self._waits = False  # whether the last marker waits for pages

    def preload(self) -> None:
        """Load the base image ahead of `restore`, which then only adds what changed since."""
        if self.image is not None and not self._loaded:
            self.epoch = load_image(self.tables, self.image)
            self._loaded = True

    def restore(self, items: Iterable[tuple[str, bytes]]) -> int:
        """Load the newest complete cut; returns the epoch that the tables stand at.

        Raises:
            UnknownFormatError: the state was written in a format that this version does not read.
            DamagedImageError: the base image is not the one that the state builds on.
        """
        entries = dict(items)
        if entries:
            _check_format(entries.get(_FORMAT))
            _check_image(entries.get(_IMAGE), self.image)
            self._stamped = True
        metas = sorted(int(key.split("@")[1]) for key in entries if key.startswith(f"{_META}@"))
        self.marker = max(metas[-1] - 1, 0) if metas else 0
        self.preload()
        if self.marker:
            self._load_cut(entries)
        return self.epoch

    def _load_cut(self, entries: dict[str, bytes]) -> None:
        meta = orjson.loads(entries[f"{_META}@{self.marker}"])
        newest: dict[str, int] = {}
        for key in entries:
            page, _, number = key.rpartition("@")
            if "/" in page:
                self._tags.setdefault(page, []).append(int(number))
        for page, tags in self._tags.items():
            tags.sort()
            usable = [tag for tag in tags if tag <= self.marker]
            if usable:
                newest[page] = usable[-1]
                self._superseded += [f"{page}@{tag}" for tag in usable[:-1]]
        for page, tag in newest.items():
            name, _, number = page.rpartition("/")
            self.tables[name].load_page(int(number), entries[f"{page}@{tag}"])
        for name, rows in meta["rows"].items():
            self.tables[name].set_rows(rows)
        self.epoch = meta["epoch"]

    def mark(self, epoch: int) -> Mutations:
        """`epoch` was a marker and has been applied: what the tables hold now is cut `marker + 1`."""
        out = self._write(None)
        out.deletes += self._superseded
        if self.marker >= 2:
            out.deletes.append(f"{_META}@{self.marker - 1}")
        self._superseded = []
        self.marker += 1
        self.epoch = epoch
        owed = sum(table.freeze() for table in self.tables)
        self._waits = owed > 0
        self._pace = max(1, -(-owed // self._spread))
        meta = {"epoch": epoch, "rows": {table.name: int(table.part_rows[0]) for table in self.tables}}
        out.puts.append((f"{_META}@{self.marker}", orjson.dumps(meta)))
        out.extend(self.stamp())
        return out

    def step(self) -> Mutations:
        """A few of the pages that the last marker still waits for."""
        out = self._write(self._pace) if self._waits else Mutations()
        out.extend(self.stamp())
        return out

    def stamp(self) -> Mutations:
        """Format and base image, once: they go with the first entries that anybody puts, so no state is without."""
        if self._stamped:
            return Mutations()
        self._stamped = True
        out = Mutations([(_FORMAT, str(STATE_FORMAT).encode())])
        if self.image is not None:
            out.puts.append((_IMAGE, image_id(self.image)))
        return out

    def _write(self, limit: int | None) -> Mutations:
        out = Mutations()
        left = limit
        for table in self.tables:
            if not table.owed:
                continue
            for number, image in table.take_owed(table.owed if left is None else left):
                page = f"{table.name}/{number}"
                tags = self._tags.setdefault(page, [])
                if self.marker not in tags:
                    tags.append(self.marker)
                    tags.sort()
                older = [tag for tag in tags if tag < self.marker]
                self._superseded += [f"{page}@{tag}" for tag in older]
                self._tags[page] = [tag for tag in tags if tag >= self.marker]
                out.puts.append((f"{page}@{self.marker}", image))
                if left is not None:
                    left -= 1
            if left == 0:
                return out
        self._waits = False
        return out

    @property
    def owed(self) -> int:
        """Pages that the last marker still waits for."""
        return sum(table.owed for table in self.tables)


def _check_format(stored: bytes | None) -> None:
    if stored is None or stored != str(STATE_FORMAT).encode():
        message = (
            f"state format {_text(stored)} is not known to this Freshet (it reads {STATE_FORMAT}): "
            "restore it with the version that wrote it, or start afresh from a snapshot"
        )
        raise UnknownFormatError(message)


def _check_image(stored: bytes | None, image: Path | None) -> None:
    found = None if image is None else image_id(image)
    if stored != found:
        message = f"the state builds on base image {_text(stored)}, but {image or 'no folder'} holds {_text(found)}"
        raise DamagedImageError(message)


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode(errors="replace")
