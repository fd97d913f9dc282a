"""A chunk of rows of text: its fields as columns of text, its rows as they came, and those that are none."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from freshet.operators.parser.formats import BOM
from freshet.operators.parser.text_tables.scan import RowScanner

_NUMBERED = r"([_.]?)\[?([0-9]{1,6})\]?"  # x_0, x.0, x0, x[0]


def numbered(field: str, names: Sequence[str]) -> list[str]:
    """Return the columns that together are a field of numbers, in the order of theirs, which count from 0 or 1.

    Empty where the field has a column of its own, or a number is missing.
    """
    found = {int(at[2]): name for name in names if (at := re.fullmatch(re.escape(field) + _NUMBERED, name))}
    first = min(found, default=2)
    whole = field not in names and first <= 1 and sorted(found) == list(range(first, first + len(found)))
    return [found[number] for number in sorted(found)] if whole else []


class TextRows:
    """Rows of a file, in order.

    Args:
        names: those of the columns; of one without a name, nothing is read.
        data: the bytes of whole rows.
        constants: columns of all rows; None is null.
    """

    def __init__(
        self, names: tuple[str, ...], delimiter: str, data: bytes, constants: Mapping[str, str | None]
    ) -> None:
        self.names, self._delimiter, self._data, self.constants = names, delimiter, data, constants
        scanner = RowScanner(delimiter)
        ends, fields = scanner.add(data)
        if scanner.is_open:
            ends, fields = np.append(ends, len(data)), np.append(fields, scanner.fields)
        self.ends, self._wrong = ends, fields != len(names)
        self.errors = {
            int(row): f"expected {len(names)} fields as in the header, got {fields[row]}"
            for row in np.flatnonzero(self._wrong)
        }

    def __len__(self) -> int:
        return len(self.ends)

    def raw(self, row: int) -> bytes:
        """A row as it came, without the end of its line."""
        return self._bytes_of(row).strip(b"\r\n")

    def _bytes_of(self, row: int) -> bytes:
        return self._data[self.ends[row - 1] if row else 0 : self.ends[row]]

    def columns(self, wanted: Collection[str] | None = None) -> dict[str, pa.Array]:
        """Columns of text, null where a field is empty or its row is none; those wanted, None for every one.

        A field of numbers that is wanted may be in several columns (`numbered`). Text may be other than UTF-8.
        """
        parts = {field: of for field in wanted or () if (of := numbered(field, self.names))}
        needed = None if wanted is None else {*wanted, *(name for of in parts.values() for name in of)}
        every = {str(number): name for number, name in enumerate(self.names) if name}
        found = self._read({number: name for number, name in every.items() if needed is None or name in needed})
        for field, of in parts.items():
            found[field] = _joined([found.pop(name) for name in of])
        for name, value in self.constants.items():
            if wanted is None or name in wanted:
                found[name] = pa.array([value] * len(self), pa.string())
        return found

    def _read(self, read: Mapping[str, str]) -> dict[str, pa.Array]:
        if not read:
            return {}
        good = np.flatnonzero(~self._wrong)
        data = self._data if not self.errors else b"".join(self._bytes_of(row) for row in good.tolist())
        if not len(good):
            return {name: pa.nulls(len(self), pa.string()) for name in read.values()}
        data = b"\n" + data if data.startswith(BOM) else data  # of a field: Arrow takes no notice of it at the start
        table = pa.csv.read_csv(
            pa.py_buffer(data),
            pa.csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=[str(k) for k in range(len(self.names))]
            ),
            pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            pa.csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(read, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                include_columns=list(read),
            ),
        ).combine_chunks()
        assert table.num_rows == len(good), "Arrow's reader sees the same rows"
        places = np.cumsum(~self._wrong) - 1
        taken = pa.array(places, mask=self._wrong) if self.errors else None
        columns = (column.chunk(0) if column.num_chunks else pa.nulls(0, pa.string()) for column in table.columns)
        return {
            name: column if taken is None else column.take(taken)
            for name, column in zip(read.values(), columns, strict=True)
        }


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Return lists of the texts of several columns; null where all of them are."""
    width, rows = len(columns), len(columns[0])
    order = np.arange(width * rows).reshape(width, rows).T.ravel()
    values = pa.concat_arrays(columns).take(pa.array(order))
    given = np.logical_or.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    offsets = pa.array(np.arange(0, width * rows + 1, width), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~given))
