"""Arrow columns to numpy, with a mask of the rows that are good; no Python per row.

A mask only has to be right where it says good: the other rows are judged one by one (operators/parser/rules.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.rules import INT64_MAX, INT64_MIN, READ_FIELDS
from freshet.partitioner.events import DEFAULT_TYPE, INT, OP_NAMES, STRING, Ids

_OP_SET = pa.array(OP_NAMES)
NO_OP = 255
WHOLE_MAX = 2**53  # a float of this size or less is the integer that was meant: none was rounded to it


class Column(NamedTuple):
    """Values, where they are present, and where they are good (absent counts as good)."""

    values: np.ndarray
    given: np.ndarray
    good: np.ndarray


def known_columns(table: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
    """The fields of events that are read, each as one array; columns without any value are left out."""
    columns: dict[str, pa.Array] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if name not in READ_FIELDS or name in columns:
            continue
        array = usual_array(one_array(column))
        if array.null_count < len(array):
            columns[name] = array
    return columns


def all_columns(table: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of a table, each as one array; of equal names the last."""
    return {
        name: usual_array(one_array(column)) for name, column in zip(table.schema.names, table.columns, strict=True)
    }


def usual_array(array: pa.Array) -> pa.Array:
    """The same values without what Arrow can't compute with: extensions, views, float16, dictionaries of numbers."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == pa.string_view():  # polars writes them
        try:
            return pa.array(array.to_pylist(), pa.large_string())
        except UnicodeDecodeError:
            return array
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, usual_array(array.dictionary))
        array = array.dictionary_decode() if is_number(array.type.value_type) else array
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a batch or of a table as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def valid(array: pa.Array) -> np.ndarray:
    """Where an array is not null."""
    if not array.null_count:
        return np.ones(len(array), bool)
    return array.is_valid().to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    """Strings, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    """Integers, floats and decimals."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def op_codes(array: pa.Array | None, n: int) -> np.ndarray:
    """(n,) uint8 operation codes, NO_OP where there is none."""
    if array is None or not is_text(array.type):
        return np.full(n, NO_OP, np.uint8)
    if not pa.types.is_dictionary(array.type):
        return _op_index(array)
    codes = np.append(_op_index(array.dictionary), np.uint8(NO_OP))
    return codes[_indices(array)]


def _op_index(array: pa.Array) -> np.ndarray:
    found = pc.index_in(array, value_set=_OP_SET.cast(array.type))
    return found.fill_null(NO_OP).to_numpy(zero_copy_only=False).astype(np.uint8)


def _indices(array: pa.DictionaryArray) -> np.ndarray:
    """(n,) int64 dictionary indices, -1 where null."""
    indices = array.indices
    return (indices.cast(pa.int64()).fill_null(-1) if indices.null_count else indices).to_numpy().astype(np.int64)


def int_ids(array: pa.Array | None, n: int) -> Column:
    """Integer ids, also those in a column of floats or decimals; good where present, integral and within int64."""
    if array is None or not is_number(array.type):
        return Column(np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool))
    given = good = valid(array)
    if not pa.types.is_integer(array.type):
        return Column(*_whole(array, given))
    values = (array.fill_null(0) if array.null_count else array).to_numpy()
    if values.dtype == np.uint64:
        good = good & (values <= np.uint64(INT64_MAX))
    return Column(values.astype(np.int64, copy=False), given, good)


def _whole(array: pa.Array, given: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The integers in a column of floats or decimals, as the parts of a `Column`."""
    if pa.types.is_decimal(array.type):
        exact = array.to_pylist()
        good = np.array([one is not None and one == int(one) and INT64_MIN <= one <= INT64_MAX for one in exact], bool)
        values = [int(one) if fits else 0 for one, fits in zip(exact, good.tolist(), strict=True)]
        return np.array(values, np.int64), given, good
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    good = given & (np.abs(numbers) <= WHOLE_MAX) & (np.trunc(numbers) == numbers)
    return np.where(good, numbers, 0).astype(np.int64), given, good


def pick_int_ids(edge: np.ndarray, columns: Mapping[str, pa.Array], _: int) -> tuple[Ids, Ids, np.ndarray]:
    """Columns a and b of integer ids, and where both are good."""
    n = len(edge)
    vertex, src, dst = (int_ids(columns.get(name), n) for name in ("id", "src", "dst"))
    a = np.where(edge, src.values, vertex.values)
    b = np.where(edge, dst.values, 0)
    return Ids(INT, a), Ids(INT, b), np.where(edge, src.good & dst.good, vertex.good)


def pick_string_ids(edge: np.ndarray, columns: Mapping[str, pa.Array], most: int) -> tuple[Ids, Ids, np.ndarray]:
    """Columns a and b of string ids, and where both are good: present, and of at most `most` bytes."""
    n = len(edge)
    texts = {}
    for name in ("id", "src", "dst"):
        array = columns.get(name)
        if array is None or not is_text(array.type):
            array = pa.nulls(n, pa.large_string())
        elif pa.types.is_dictionary(array.type):
            array = pa.DictionaryArray.from_arrays(array.indices, _short(array.dictionary, most)).dictionary_decode()
        texts[name] = _short(array.cast(pa.large_string()), most)
    mask = pa.array(edge)
    a, good_a = _utf8(pc.if_else(mask, texts["src"], texts["id"]))
    b, good_b = _utf8(pc.if_else(mask, texts["dst"], pa.scalar("", pa.large_string())))
    return a, b, good_a & good_b


def _short(texts: pa.Array, most: int) -> pa.Array:
    """The texts, with null for those that are longer than `most` bytes."""
    fits = pc.less_equal(pc.binary_length(texts), most)
    return texts if pc.all(fits).as_py() is not False else pc.if_else(fits, texts, pa.scalar(None, texts.type))


def _utf8(array: pa.Array) -> tuple[Ids, np.ndarray]:
    """Strings as ids, and where they are present and UTF-8 (Parquet promises it, but nobody checks)."""
    good = valid(array)
    filled = array.fill_null("") if array.null_count else array
    _, offset_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    ids = Ids(STRING, offsets=offsets, data=data).compact()
    if len(ids.data) and ids.data.max() >= 0x80 and not _all_utf8(ids):
        bounds, text = ids.offsets.tolist(), ids.data.tobytes()
        good = good & np.array([_decodes(text[bounds[k] : bounds[k + 1]]) for k in range(len(array))])
    return ids, good


def _all_utf8(ids: Ids) -> bool:
    starts = ids.offsets[:-1][ids.offsets[:-1] < len(ids.data)]
    # text that decodes as a whole and is cut at first bytes of characters only decodes piece by piece
    return bool(((ids.data[starts] & 0xC0) != 0x80).all()) and _decodes(ids.data.tobytes())


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def float32(array: pa.Array | None, n: int, default: float) -> Column:
    """Numbers narrowed to float32, the default where null; good where null or finite."""
    if array is None:
        return Column(np.full(n, default, np.float32), np.zeros(n, bool), np.ones(n, bool))
    given = valid(array)
    if not is_number(array.type):
        return Column(np.full(n, default, np.float32), given, ~given)
    array = _without_decimals(array)
    values = _narrow((array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False))
    values = np.where(given, values, np.float32(default))
    return Column(values, given, np.isfinite(values))


def _without_decimals(array: pa.Array) -> pa.Array:
    """Decimals as float64, each rounded once, as Python and JSON would; by way of text, for Arrow's own cast is not."""
    return array.cast(pa.string()).cast(pa.float64()) if pa.types.is_decimal(array.type) else array


def _narrow(values: np.ndarray) -> np.ndarray:
    """Numbers as float32, integers by way of float64 as in JSON."""
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64, copy=False).astype(np.float32)


class Lists(NamedTuple):
    """A list column: row i is values[begin[i]:end[i]] (in a null row too, which need not be empty)."""

    values: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    given: np.ndarray


def number_lists(array: pa.Array) -> Lists | None:
    """A column of lists of numbers, a null number as NaN; None for any other column."""
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    if not is_number(kind.value_type):
        return None
    if pa.types.is_fixed_size_list(kind):
        begin = (array.offset + np.arange(len(array), dtype=np.int64)) * kind.list_size
        end = begin + kind.list_size
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        begin, end = offsets[:-1], offsets[1:]
    first, last = (int(begin[0]), int(end[-1])) if len(array) else (0, 0)
    child = _without_decimals(array.values.slice(first, last - first))
    if child.null_count:
        child = child.cast(pa.float64(), safe=False).fill_null(float("nan"))
    return Lists(child.to_numpy(zero_copy_only=False), begin - first, end - first, valid(array))


def features(lists: Lists, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The (k, width) float32 features of those of the rows that are good, and which are.

    Returns:
        (x, good): x has a row for each True of good, which is aligned with `rows`.
    """
    begin = lists.begin[rows]
    good = lists.end[rows] - begin == width
    starts = begin if good.all() else begin[good]
    if len(starts) and (np.diff(starts) == width).all():
        x = lists.values[starts[0] : starts[0] + len(starts) * width].reshape(-1, width)
    else:
        x = lists.values[starts[:, None] + np.arange(width)]
    x = _narrow(x)
    if not np.isfinite(x).all():
        finite = np.isfinite(x).all(axis=1)
        good[good] = finite
        x = x[finite]
    return x, good


def finite_lists(array: pa.Array | None, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Where a column is null or a list of finite numbers, and (n,) int32 how many they are, -1 where null."""
    if array is None:
        return np.ones(n, bool), None
    lists = number_lists(array)
    if lists is None:
        return ~valid(array), None
    bad = np.flatnonzero(~np.isfinite(_narrow(lists.values)))
    good = ~lists.given | (np.searchsorted(bad, lists.begin) == np.searchsorted(bad, lists.end))
    return good, np.where(lists.given, lists.end - lists.begin, -1).astype(np.int32)


def are_exact(columns: Mapping[str, pa.Array]) -> bool:
    """Whether the masks of these columns are right where they say bad, too; of other columns the rules decide."""
    return all(_is_exact(array.type) for array in columns.values())


def _is_exact(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return is_number(kind.value_type)
    return is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


class TypeColumn:
    """The edge types of a batch as codes of its own dictionary; `resolve` gives the codes of a block's table."""

    def __init__(self, array: pa.Array | None, n: int) -> None:
        self.names: list[str | None] = []
        if array is None or not is_text(array.type):
            self.codes = np.full(n, -1, np.int64)
            self.mistyped = np.zeros(n, bool) if array is None else valid(array)
            return
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        self.codes = _indices(array)
        self.mistyped = np.zeros(n, bool)
        texts = array.dictionary.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        self.names = [text.decode() if text is not None and _decodes(text) else None for text in texts]
        self._null = np.array([*(text is None for text in texts), True])

    def good(self, known: Sequence[str] | None, most: int) -> np.ndarray:
        """Where the type is absent or a name: one of those `known`, or without any one of at most `most` bytes."""
        if not self.names:
            return ~self.mistyped
        if known is not None:
            named = [name in known for name in self.names]
        else:
            named = [0 < len((name or "").encode()) <= most for name in self.names]
        return np.array([*named, True])[self.codes] | self._null[self.codes]

    def resolve(self, rows: np.ndarray, known: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
        """Etypes of the rows (an index array) and the table: the model's, or the names by their first row."""
        table = {name: code for code, name in enumerate(known or (DEFAULT_TYPE,))}
        etype = np.zeros(len(self.codes), np.int64)
        if self.names:
            used, first = np.unique(self.codes[rows], return_index=True)
            rename = np.zeros(len(self.names) + 1, np.int64)
            for code in used[np.argsort(first)].tolist():
                name = self.names[code] if code >= 0 else None
                rename[code] = 0 if name is None else table.setdefault(name, len(table))
            etype[rows] = rename[self.codes[rows]]
        return etype, tuple(table)
