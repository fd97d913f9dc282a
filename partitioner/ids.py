"""Columns of ids of vertices and of keys of edges: integers or strings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from freshet.state.codec import Block

INT, STRING = "int", "string"
NO_KEY = -(2**63)  # in columns of integer keys: the edge without a key; of strings it has the empty one


def _ints(values: Sequence[int] = ()) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True, slots=True)
class Ids:
    """A column of vertex ids of one kind, int64 or UTF-8 strings.

    Shapes:
        ints: (n,) int64, for kind "int"
        offsets, data: (n + 1,) int64 and (bytes,) uint8, for kind "string"

    Invariant: the text of row i is data[offsets[i]:offsets[i + 1]]; offsets[0] is not 0 in a slice.
    """

    kind: str
    ints: np.ndarray = field(default_factory=_ints)
    offsets: np.ndarray = field(default_factory=lambda: _ints([0]))
    data: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    @staticmethod
    def of_ints(values: Sequence[int] | np.ndarray) -> Ids:
        """Ids from integers."""
        return Ids(INT, np.asarray(values, np.int64))

    @staticmethod
    def of_strings(values: Sequence[str]) -> Ids:
        """Ids from strings."""
        texts = [value.encode() for value in values]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
        return Ids(STRING, offsets=offsets, data=np.frombuffer(b"".join(texts), np.uint8))

    @staticmethod
    def of(kind: str, values: Sequence[int] | Sequence[str]) -> Ids:
        """Ids of the kind from a list."""
        return Ids.of_ints(values) if kind == INT else Ids.of_strings(values)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.ints) if self.kind == INT else len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> Ids:
        """Rows start to stop, as views."""
        if self.kind == INT:
            return Ids(INT, self.ints[start:stop])
        return Ids(STRING, offsets=self.offsets[start : stop + 1], data=self.data)

    def take(self, rows: np.ndarray) -> Ids:
        """The given rows, copied."""
        if self.kind == INT:
            return Ids(INT, self.ints[rows])
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return Ids(STRING, offsets=offsets, data=self.data[at])

    def to_list(self) -> list[int] | list[str]:
        """The ids as Python objects."""
        if self.kind == INT:
            return self.ints.tolist()
        text = self.data.tobytes()
        bounds = self.offsets.tolist()
        return [text[begin:end].decode() for begin, end in itertools.pairwise(bounds)]

    def to_one(self) -> int | str:
        """The only id as a Python object."""
        (found,) = self.compact().to_list()
        return found

    def compact(self) -> Ids:
        """The same ids, without the bytes outside a slice."""
        if self.kind == INT or (self.offsets[0] == 0 and self.offsets[-1] == len(self.data)):
            return self
        begin, end = self.offsets[0], self.offsets[-1]
        return Ids(STRING, offsets=self.offsets - begin, data=self.data[begin:end])

    @staticmethod
    def concatenate(parts: Sequence[Ids]) -> Ids:
        """All rows of the parts, which have one kind (one without rows has any)."""
        parts = [part for part in parts if len(part)] or parts[:1]
        if len({part.kind for part in parts}) != 1:
            msg = f"expected ids of one kind, got {[part.kind for part in parts]}"
            raise ValueError(msg)
        if parts[0].kind == INT:
            return Ids(INT, np.concatenate([part.ints for part in parts]))
        packed = [part.compact() for part in parts]
        bases = np.cumsum([0] + [len(part.data) for part in packed])
        offsets = [part.offsets[:-1] + base for part, base in zip(packed, bases, strict=False)]
        return Ids(
            STRING,
            offsets=np.concatenate([*offsets, bases[-1:]]).astype(np.int64),
            data=np.concatenate([part.data for part in packed]),
        )

    def columns(self, name: str) -> dict[str, np.ndarray]:
        """The columns that these ids travel as."""
        if self.kind == INT:
            return {name: self.ints}
        packed = self.compact()
        return {f"{name}_off": packed.offsets, f"{name}_utf8": packed.data}

    @staticmethod
    def from_columns(block: Block, name: str) -> Ids:
        """The inverse of `columns`."""
        if f"{name}_off" in block.columns:
            return Ids(STRING, offsets=block.columns[f"{name}_off"], data=block.get(f"{name}_utf8"))
        return Ids(INT, block.get(name))


def no_keys(kind: str, edges: int) -> Ids:
    """Return the keys of edges that have none."""
    if kind == INT:
        return Ids(INT, np.full(edges, NO_KEY, np.int64))
    return Ids(STRING, offsets=np.zeros(edges + 1, np.int64))


class KeyNumbers:
    """Numbers for the keys of edges, the same for equal ones; those that are integers are their own."""

    def __init__(self) -> None:
        self._texts: dict[int | str, int] = {}

    def of(self, keys: Ids | None, edges: int) -> np.ndarray:
        """Return the numbers of these keys, (edges,) int64; None: the edges have none."""
        if keys is None:
            return np.full(edges, NO_KEY, np.int64)
        if keys.kind == INT:
            return keys.ints
        texts = self._texts
        return np.array([texts.setdefault(key, len(texts)) for key in keys.to_list()], np.int64)
