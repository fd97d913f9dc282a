"""Markers and sweeps: how tables become durable pages, and how they come back.

After a marker epoch E_k every page that is dirty is owed to marker k, and is written as of E_k, a few per epoch, tagged
k; all are written before E_k+1 is passed. Cut k is, for each page, the newest tag <= k. A restore finds the last marker
k that was passed, loads cut k-1 (whose pages are all there) and the caller replays the epochs after E_k-1.

An operator's parts may share tables (state/table.py), and then pass their markers together. Each has a state of its
own, which is the same as if it were alone.

Keys of the entries: `table/page@tag` for pages, `meta@tag` for what goes with a cut (JSON: epoch and rows per table),
`format`, and `image` (the hash of the base image, where there is one).
Invariant: everything an operator holds after a restore and replay is bit-equal to what it held without a failure.
Source: RIPPLE++ and D3-GNN have no durable state; the scheme is Freshet's own, held by tests/simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from freshet.errors import InputError
from freshet.files.json_file import DamagedFileError
from freshet.state.codec import UnknownFormatError
from freshet.state.copy_ahead import CopyAhead
from freshet.state.entries import Entries, mapping_of
from freshet.state.image import GO_ON, image_id, load_images, refusal_of
from freshet.state.table import Table, TableSet

STATE_FORMAT = 2
_META, _FORMAT, _IMAGE = "meta", "format", "image"


@dataclass(slots=True)
class Mutations:
    """Pending changes of keyed state, in order: puts, then deletes."""

    puts: list[tuple[str, bytes]] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)

    def extend(self, other: Mutations) -> None:
        """Add another's."""
        self.puts += other.puts
        self.deletes += other.deletes


class UnevenPartsError(InputError):
    """Parts that are to work on as one were saved at different epochs."""


class _Part:
    """Durable pages of one part of the tables, and the pages that the last marker still waits for."""

    def __init__(self, tables: TableSet, part: int, image: Path | None) -> None:
        self.tables, self.part, self.image = tables, part, image
        self.marker = 0
        self.stamped = False
        self.entries: Mapping[str, bytes] = {}  # of a restore, until they are loaded
        self._pace = 1
        self._owing: list[Table] = []  # the next one is the last
        self._tags: dict[str, list[int]] = {}
        self._superseded: list[str] = []
        # entries of tables of earlier versions, and the marker at which they go
        self._replaced: tuple[int, list[str]] = 0, []

    def read(self, items: Entries) -> str:
        """Take the entries of a restore; what they are, in words."""
        entries = self.entries = mapping_of(items)
        if entries:
            _check_format(entries.get(_FORMAT))
            _check_image(entries.get(_IMAGE), self.image)
            self.stamped = True
        metas = sorted(int(key.split("@")[1]) for key in entries if key.startswith(f"{_META}@"))
        self.marker = max(metas[-1] - 1, 0) if metas else 0
        left_out = self.tables.replaced
        self._replaced = self.marker + 2, [key for key in entries if key.rpartition("/")[0] in left_out]
        if not metas:
            return "a state before its first marker" if entries else "no state"
        before = f", after one at epoch {self.meta['epoch']}" if self.marker else ""
        return f"a state with marker {metas[-1]} at epoch {self._meta(metas[-1])['epoch']}{before}"

    def _meta(self, marker: int) -> dict[str, Any]:
        return dict(orjson.loads(self.entries[f"{_META}@{marker}"]))

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of the cut that is being restored."""
        return self._meta(self.marker)

    def load_cut(self) -> None:
        """Load the pages of the cut."""
        entries, newest = self.entries, dict[str, int]()
        left_out = self.tables.replaced
        for key in entries:
            page, _, number = key.rpartition("@")
            if "/" in page and page.rpartition("/")[0] not in left_out:
                self._tags.setdefault(page, []).append(int(number))
        for page, tags in self._tags.items():
            tags.sort()
            usable = [tag for tag in tags if tag <= self.marker]
            if usable:
                newest[page] = usable[-1]
                self._superseded += [f"{page}@{tag}" for tag in usable[:-1]]
        for page, tag in newest.items():
            name, _, number = page.rpartition("/")
            self.tables[name].load_page(int(number), entries[f"{page}@{tag}"], self.part)
        for name, rows in self.meta["rows"].items():
            if name not in left_out:
                self.tables[name].set_rows(rows, self.part)

    def pass_marker(self, epoch: int, spread: int) -> Mutations:
        """Pass a marker, after all pages of the marker before were written, and the tables are frozen."""
        out = Mutations(deletes=self._superseded)
        if self.marker >= 2:
            out.deletes.append(f"{_META}@{self.marker - 1}")
        self._superseded = []
        self.marker += 1
        if self._replaced[1] and self.marker >= self._replaced[0]:  # no cut that can be restored has them
            out.deletes += self._replaced[1]
            self._replaced = 0, []
        self._find_owing()
        self._pace = max(1, -(-self.owed // spread))
        rows = {table.name: int(table.part_rows[self.part]) for table in self.tables}
        out.puts.append((f"{_META}@{self.marker}", orjson.dumps({"epoch": epoch, "rows": rows})))
        return out

    def stamp(self) -> Mutations:
        """Format and base image, where no entry has gone before."""
        if self.stamped:
            return Mutations()
        self.stamped = True
        out = Mutations([(_FORMAT, str(STATE_FORMAT).encode())])
        if self.image is not None:
            out.puts.append((_IMAGE, image_id(self.image)))
        return out

    def step(self) -> Mutations:
        """Return the pages that are due in an epoch."""
        return self.write(self._pace)

    def _find_owing(self) -> None:
        self._owing = [table for table in self.tables if table.owed_by(self.part)][::-1]

    def write_rest(self) -> Mutations:
        """All that the tables owe, be it to a marker of another sweeper."""
        self._find_owing()
        return self.write(self.owed)

    def write(self, limit: int) -> Mutations:
        """Return at most `limit` of the pages that the last marker waits for."""
        out = Mutations()
        while self._owing and len(out.puts) < limit:
            table = self._owing[-1]
            for number, image in table.take_owed(limit - len(out.puts), self.part):
                page = f"{table.name}/{number}"
                tags = self._tags.setdefault(page, [])
                if self.marker not in tags:
                    tags.append(self.marker)
                    tags.sort()
                older = [tag for tag in tags if tag < self.marker]
                self._superseded += [f"{page}@{tag}" for tag in older]
                self._tags[page] = [tag for tag in tags if tag >= self.marker]
                out.puts.append((f"{page}@{self.marker}", image))
            if not table.owed_by(self.part):
                self._owing.pop()
        return out

    @property
    def owed(self) -> int:
        """Pages that the last marker still waits for."""
        return sum(table.owed_by(self.part) for table in self._owing)

    @property
    def waits(self) -> bool:
        """True if the last marker still waits for pages."""
        return bool(self._owing)


class Sweeper:
    """Writes the changed pages of a core's tables behind its markers, and restores them, each part for itself.

    A sweep is spread so that it ends after about `spread_epochs` epochs. `images` has the base image of each part, or
    is the only part's. `epoch` is what the tables stand at where nothing is restored.
    """

    def __init__(
        self,
        tables: TableSet,
        images: Path | Sequence[Path | None] | None = None,
        spread_epochs: int = 200,
        epoch: int = 0,
    ) -> None:
        self.tables = tables
        self.epoch = epoch
        by_part = [None] * tables.parts if images is None else [images] if isinstance(images, Path) else images
        self._parts = [_Part(tables, part, image) for part, image in zip(range(tables.parts), by_part, strict=True)]
        self._spread = spread_epochs
        self._loaded = False
        self._waiting = list[_Part]()  # those whose last marker waits for pages
        self._stamped = False
        self.copies: CopyAhead | None = None  # until all pages are copied

    @property
    def marker(self) -> int:
        """The number of the last marker that was passed."""
        return self._parts[0].marker

    def preload(self) -> None:
        """Load the base images ahead of `restore`, which then only adds what changed since.

        Raises:
            DamagedFileError: files that do not fit their manifest.
            UnevenPartsError: the images are of different epochs.
        """
        if self._loaded:
            return
        images = {one.part: one.image for one in self._parts if one.image is not None}
        epochs = load_images(self.tables, images)
        _check_even([f"a base image of epoch {epoch}" for epoch in epochs])
        self.epoch = epochs[0] if epochs else self.epoch
        self._loaded = True
        self.copies = CopyAhead(self.tables, ", ".join(map(str, images.values())))

    def restore(self, *items: Entries) -> int:
        """Load the newest complete cut, given each part's entries; returns the epoch that the tables stand at.

        Raises:
            UnknownFormatError: the state was written in a format, or of tables, that this version does not read.
            DamagedFileError: a base image is not the one that the state builds on.
            UnevenPartsError: the parts' states are of different epochs, or of different jobs.
        """
        _check_even([one.read(entries) for one, entries in zip(self._parts, items, strict=True)])
        self._stamped = self._parts[0].stamped
        self.preload()
        if self.marker:
            metas = [one.meta for one in self._parts]
            if refusal := refusal_of(metas[0]["rows"], self.tables):
                msg = f"state of epoch {metas[0]['epoch']}: {refusal}"
                raise UnknownFormatError(msg)
            for table in self.tables:  # for all parts at once: room that grows page by page is copied again and again
                table.reserve(np.array([meta["rows"].get(table.name, 0) for meta in metas], np.int64))
            self.epoch = metas[0]["epoch"]
            for one in self._parts:
                one.load_cut()
        for one in self._parts:
            one.entries = {}
        return self.epoch

    def mark(self, epoch: int) -> dict[int, Mutations]:
        """`epoch` was a marker and has been applied: what the tables hold now is cut `marker + 1` of every part."""
        self._settle()
        out = {one.part: one.write_rest() for one in self._parts}
        for table in self.tables:
            table.freeze()
        for one in self._parts:
            out[one.part].extend(one.pass_marker(epoch, self._spread))
        self.epoch = epoch
        self._note_waiting()
        return _merged(out, self.stamp())

    def step(self) -> dict[int, Mutations]:
        """A few of the pages that the last marker still waits for, by part."""
        self._settle()
        if not self._waiting and self._stamped:
            return {}
        out = {one.part: one.step() for one in self._waiting}
        self._note_waiting()
        return _merged(out, self.stamp())

    def _note_waiting(self) -> None:
        self._waiting = [one for one in self._parts if one.waits]
        if self.tables.pager is not None:
            self.tables.pager.sweeping[self] = bool(self._waiting)

    def _settle(self) -> None:
        """Have tables where they belong, now that nobody writes to them: in memory, or in files if that is short."""
        self.tables.settle()
        if self.copies is not None and not self.copies.settle():
            self.copies = None

    def close(self) -> None:
        """Do nothing more in the background."""
        if self.copies is not None:
            self.copies.close()

    def stamp(self) -> dict[int, Mutations]:
        """Format and base image, once: they go with the first entries that anybody puts, so no state is without."""
        if self._stamped:
            return {}
        self._stamped = True
        return {one.part: one.stamp() for one in self._parts if not one.stamped}

    @property
    def owed(self) -> int:
        """Pages that the last marker still waits for."""
        return sum(table.owed for table in self.tables)


class Sweepers:
    """Sweepers for parts that each have tables of their own; they pass their markers together."""

    def __init__(self, tables: Sequence[TableSet], images: Sequence[Path | None] | None = None, epoch: int = 0) -> None:
        by_part = images or [None] * len(tables)
        self._all = [Sweeper(one, image, epoch=epoch) for one, image in zip(tables, by_part, strict=True)]

    @property
    def marker(self) -> int:
        """The number of the last marker that was passed."""
        return self._all[0].marker

    def preload(self) -> None:
        """Load the base images ahead of `restore`; see Sweeper."""
        for one in self._all:
            one.preload()

    def restore(self, *items: Entries) -> int:
        """Load the newest complete cut, given each part's entries; see Sweeper."""
        epochs = [one.restore(entries) for one, entries in zip(self._all, items, strict=True)]
        _check_even([f"a state of epoch {epoch}" for epoch in epochs])
        return epochs[0]

    def mark(self, epoch: int) -> dict[int, Mutations]:
        """`epoch` was a marker and has been applied by every part; see Sweeper."""
        return {part: changes for part, one in enumerate(self._all) for changes in one.mark(epoch).values()}

    def step(self) -> dict[int, Mutations]:
        """A few of the pages that the last marker still waits for, by part."""
        return {part: changes for part, one in enumerate(self._all) for changes in one.step().values()}

    def close(self) -> None:
        """Do nothing more in the background."""
        for one in self._all:
            one.close()


def _check_even(stands: list[str]) -> None:
    for part, stand in enumerate(stands):
        if stand != stands[0]:
            msg = (
                f"parts of an operator do not fit together: number {part} of a subtask has {stand}, number 0 has "
                f"{stands[0]}; restore all of them from one checkpoint or savepoint"
            )
            raise UnevenPartsError(msg)


def _merged(first: dict[int, Mutations], second: dict[int, Mutations]) -> dict[int, Mutations]:
    for part, mutations in second.items():
        first.setdefault(part, Mutations()).extend(mutations)
    return first


def _check_format(stored: bytes | None) -> None:
    if stored is None or stored != str(STATE_FORMAT).encode():
        msg = f"state format {_text(stored)} is not known to this Freshet (it reads {STATE_FORMAT}). {GO_ON}"
        raise UnknownFormatError(msg)


def _check_image(stored: bytes | None, image: Path | None) -> None:
    found = None if image is None else image_id(image)
    if stored != found:
        holds = (
            "there is none" if image is None else f"{image}/image.json is of {_text(found)}; put it back from a copy"
        )
        msg = f"the state builds on base image {_text(stored)}, but {holds}"
        raise DamagedFileError(msg)


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode(errors="replace")
