"""Rows of several widths in one array: the features of vertices of several kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class KindRows:
    """n rows, each of a kind, and as wide as rows of that kind are.

    Shapes: values (numbers of all rows,) float32, one row after the other; kind (n,) uint8; widths by kind
    """

    values: np.ndarray
    kind: np.ndarray
    widths: tuple[int, ...]

    @staticmethod
    def none(widths: Sequence[int]) -> KindRows:
        """Return no rows of such kinds."""
        return KindRows(np.empty(0, np.float32), np.empty(0, np.uint8), tuple(widths))

    @staticmethod
    def of_kinds(kind: np.ndarray, by_kind: Sequence[np.ndarray], widths: Sequence[int]) -> KindRows:
        """Return the rows of each kind, (k, width) float32 each, in the order of `kind`."""
        made = KindRows(np.empty(0, np.float32), kind.astype(np.uint8), tuple(widths))
        begins, total = made._begins()
        values = np.empty(total, np.float32)
        for code, rows in enumerate(by_kind):
            values[begins[kind == code][:, None] + np.arange(rows.shape[1])] = rows
        return KindRows(values, made.kind, made.widths)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, rows: np.ndarray | slice) -> KindRows:
        begins, total = self._begins()
        kind = self.kind[rows]
        if isinstance(rows, slice):
            first, last, _ = rows.indices(len(self))
            begin, end = np.append(begins, total)[[first, max(first, last)]].tolist()
            return KindRows(self.values[begin:end], kind, self.widths)
        sizes = np.array(self.widths, np.int64)[kind]
        at = np.arange(sizes.sum()) + np.repeat(begins[rows] - np.cumsum(sizes) + sizes, sizes)
        return KindRows(self.values[at], kind, self.widths)

    def of_kind(self, kind: int, rows: np.ndarray) -> np.ndarray:
        """Return these rows, which are of one kind, (rows, width) float32; zeros for negative ones."""
        width, (begins, _), found = self.widths[kind], self._begins(), rows >= 0
        matrix = np.zeros((rows.size, width), np.float32)
        matrix[found] = self.values[begins[rows[found]][:, None] + np.arange(width)]
        return matrix

    @staticmethod
    def concatenate(parts: Sequence[KindRows]) -> KindRows:
        """Return the rows of all parts, in order."""
        kind = np.concatenate([part.kind for part in parts])
        return KindRows(np.concatenate([part.values for part in parts]), kind, parts[0].widths)

    def columns(self, name: str) -> dict[str, np.ndarray]:
        """Return the columns that the rows travel as; the widths are there without rows, too."""
        return {name: self.values, f"{name}_kind": self.kind, f"{name}_widths": np.array(self.widths, np.int32)}

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], name: str) -> KindRows | None:
        """The inverse of `columns`; None where all rows are of one kind."""
        widths = columns.get(f"{name}_widths")
        if widths is None:
            return None
        none = KindRows.none(widths.tolist())
        return KindRows(columns.get(name, none.values), columns.get(f"{name}_kind", none.kind), none.widths)

    def _begins(self) -> tuple[np.ndarray, int]:
        """Return the place where each row begins, and the count of all numbers."""
        sizes = np.array(self.widths, np.int64)[self.kind]
        ends = np.cumsum(sizes)
        return ends - sizes, int(ends[-1]) if ends.size else 0
