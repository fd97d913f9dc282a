"""Arrow columns in the Parser's form (operators/parser/columns.py), with masks of valid rows; no Python per row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.arrow.arrays import is_list, is_number, is_text, valid
from freshet.operators.parser.columns import NO_OP, Fields, KeyColumn, ListColumn, Numbers, Times, TypeNames
from freshet.operators.parser.rules import INT64_MAX, INT64_MIN, KIND_FIELDS, WHOLE_MAX, Rules
from freshet.partitioner.events import ALL_KEYS, NO_TS, OP_ADD_EDGE, OP_DEL_EDGE, OP_NAMES
from freshet.partitioner.ids import INT, NO_KEY, STRING, Ids, no_keys
from freshet.partitioner.times.units import TsUnit, all_to_ms

_OP_SET = pa.array(OP_NAMES)
_NO_TYPE = "\n"  # no type is named so


def read_fields(columns: Mapping[str, pa.Array], n: int, rules: Rules) -> Fields:
    """Return the fields of n rows; ids are of the job's kind (integers while it is open), up to a maximum length."""
    op = op_codes(columns.get("op"), n)
    edge = (op >= OP_ADD_EDGE) & (op != NO_OP)
    ids = _string_ids(edge, columns, rules) if rules.id_kind == STRING else _int_ids(edge, columns)
    weight, attr, x = (columns.get(name) for name in ("weight", "attr", "x"))
    return Fields(
        op,
        edge,
        *ids,
        weight=None if weight is None else _numbers(weight),
        types=_type_names(_named(columns.get("type"), rules), n),
        attr=None if attr is None else _lists(attr),
        x=None if x is None else _lists(x),
        ts=None if (ts := columns.get("ts")) is None else _times(ts, rules.ts_unit),
        kinds={name: _type_names(columns[name], n) for name in KIND_FIELDS if name in columns},
        keys=None if (keys := columns.get(rules.keys.field)) is None else _keys(keys, op, edge, rules),
    )


def are_exact(columns: Mapping[str, pa.Array]) -> bool:
    """Return whether the masks of these columns are exact for invalid rows, too; otherwise the rules decide."""
    return all(
        _is_exact(array.type) or (name == "ts" and pa.types.is_timestamp(array.type)) for name, array in columns.items()
    )


def _is_exact(kind: pa.DataType) -> bool:
    if is_list(kind):
        return is_number(kind.value_type)
    return is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


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


def _integers(array: pa.Array | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) int64 integers, also those in a column of floats or decimals; good where given, whole and within int64."""
    if array is None or not is_number(array.type):
        return np.zeros(n, np.int64), np.zeros(n, bool)
    good = valid(array)
    if not pa.types.is_integer(array.type):
        return _whole(array, good)
    values = (array.fill_null(0) if array.null_count else array).to_numpy()
    if values.dtype == np.uint64:
        good = good & (values <= np.uint64(INT64_MAX))
    return values.astype(np.int64, copy=False), good


def _times(array: pa.Array, unit: TsUnit) -> Times:
    """A column of `ts`; what is no number or timestamp looks bad, and so does the one integer that means none."""
    if pa.types.is_timestamp(array.type):
        unit, array = array.type.unit, array.cast(pa.int64())
    values, given = _integers(array, len(array))
    values, fit = all_to_ms(values, unit)
    good = given & fit & (values != NO_TS)
    return Times(np.where(good, values, NO_TS), good | ~valid(array))


def _whole(array: pa.Array, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integers in a column of floats or decimals, and where they are good."""
    if pa.types.is_decimal(array.type):
        exact = array.to_pylist()
        good = np.array([one is not None and one == int(one) and INT64_MIN <= one <= INT64_MAX for one in exact], bool)
        values = [int(one) if fits else 0 for one, fits in zip(exact, good.tolist(), strict=True)]
        return np.array(values, np.int64), good
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    good = given & (np.abs(numbers) <= WHOLE_MAX) & (np.trunc(numbers) == numbers)
    return np.where(good, numbers, 0).astype(np.int64), good


def _int_ids(edge: np.ndarray, columns: Mapping[str, pa.Array]) -> tuple[Ids, Ids, np.ndarray]:
    """Columns a and b of integer ids, and where both are good."""
    n = len(edge)
    (vertex, good), (src, src_good), (dst, dst_good) = (
        _integers(columns.get(name), n) for name in ("id", "src", "dst")
    )
    ends_good = src_good & dst_good
    return Ids(INT, np.where(edge, src, vertex)), Ids(INT, np.where(edge, dst, 0)), np.where(edge, ends_good, good)


def _named(array: pa.Array | None, rules: Rules) -> pa.Array | None:
    """A column of types with names for integers, if any of the model's types is a number."""
    if array is None or not is_number(array.type) or not any(map(str.isdecimal, rules.type_names)):
        return array
    texts, odd = _written(array), pa.scalar(_NO_TYPE, pa.large_string())
    return pc.if_else(pc.and_(texts.is_null(), array.is_valid()), odd, texts)


def _written(array: pa.Array) -> pa.Array:
    """A column of numbers as text; null where one is no whole number."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.large_string())
    values, good = _whole(array, valid(array))
    return pa.array(values, mask=~good).cast(pa.large_string())


def _string_ids(edge: np.ndarray, columns: Mapping[str, pa.Array], rules: Rules) -> tuple[Ids, Ids, np.ndarray]:
    """Columns a and b of string ids, and where both are good: present, and not too long."""
    n, most = len(edge), rules.id_bytes_max
    texts = {}
    for name in ("id", "src", "dst"):
        array = columns.get(name)
        if array is not None and rules.cast_ids and is_number(array.type):
            array = _written(array)
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
    if pc.all(fits).as_py() is not False:
        return texts
    # not with a null scalar: of a slice, pyarrow 16 then gives other texts than those that are meant
    return pc.if_else(fits, texts, pa.nulls(len(texts), texts.type))


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


def _keys(array: pa.Array, op: np.ndarray, edge: np.ndarray, rules: Rules) -> KeyColumn:
    """A column of keys of edges; where their kind is open, or edges have none, all of them look bad."""
    n, kind, given = len(edge), rules.keys.kind, valid(array) & edge
    none, stars = np.zeros(n, bool), np.zeros(n, bool)
    if is_text(array.type):
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        array = array.cast(pa.large_string())
        stars = pc.equal(array, ALL_KEYS).fill_null(False).to_numpy(zero_copy_only=False) & edge
    every = stars & (op == OP_DEL_EDGE) if kind else none
    if not kind or rules.keys.by_offset:
        return KeyColumn(no_keys(kind or INT, n), every, ~given | every)
    if kind == INT:
        values, good = _integers(array, n)
        good = good & given & (values != NO_KEY)
        return KeyColumn(Ids(INT, np.where(good, values, NO_KEY)), every, ~given | every | good)
    if not is_text(array.type):
        return KeyColumn(no_keys(kind, n), every, ~given | every)
    texts = pc.if_else(pa.array(given & ~stars), _short(array, rules.id_bytes_max), pa.scalar("", pa.large_string()))
    keys, good = _utf8(texts)
    return KeyColumn(keys, every, ~given | every | (good & (np.diff(keys.offsets) > 0)))


def _numbers(array: pa.Array) -> Numbers:
    """A column of numbers; of any other column, NaN."""
    given = valid(array)
    if not is_number(array.type):
        return Numbers(np.full(len(array), np.nan, np.float32), given)
    array = _without_decimals(array)
    return Numbers((array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False), given)


def _without_decimals(array: pa.Array) -> pa.Array:
    """Decimals as float64, each rounded once, as Python and JSON would; by way of text, for Arrow's own cast is not."""
    return array.cast(pa.string()).cast(pa.float64()) if pa.types.is_decimal(array.type) else array


def _lists(array: pa.Array) -> ListColumn:
    """A column of lists of numbers, a null number as NaN; of any other column, odd ones."""
    kind = array.type
    if not is_list(kind) or not is_number(kind.value_type):
        nowhere = np.zeros(len(array), np.int64)
        return ListColumn(np.empty(0, np.float32), nowhere, nowhere - 1, valid(array), is_odd=True)
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
    return ListColumn(child.to_numpy(zero_copy_only=False), begin - first, end - first, valid(array))


def _type_names(array: pa.Array | None, n: int) -> TypeNames:
    """The edge types of a column of text, or other names; of any other column, none."""
    if array is None or not is_text(array.type):
        mistyped = np.zeros(n, bool) if array is None else valid(array)
        return TypeNames(np.full(n, -1, np.int64), mistyped, [], np.ones(1, bool))
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    texts = array.dictionary.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
    names = [text.decode() if text is not None and _decodes(text) else None for text in texts]
    null = np.array([*(text is None for text in texts), True])
    return TypeNames(_indices(array), np.zeros(n, bool), names, null)
