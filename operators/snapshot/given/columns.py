"""Columns of a table of vertices or edges, checked and in the types that a snapshot has.

`where` begins each message: the table and the column, as they are called where they come from.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.arrow.arrays import advice_on, is_list, is_number, is_text
from freshet.operators.snapshot.reader import SnapshotError
from freshet.partitioner.ids import NO_KEY


def refuse(text: str, option: str | None = None) -> NoReturn:
    """Refuse what was given; `option`: the parameter that is at fault.

    Raises: SnapshotError, always.
    """
    error = SnapshotError(text)
    error.named = option
    raise error


def ids_of(array: pa.Array, where: str, *, nulls: bool = False) -> pa.Array:
    """Return ids as int64 or strings; whole floats are integers.

    Raises: SnapshotError for nulls, unless there may be some, and for other types.
    """
    kind = array.type
    if not nulls:
        _refuse_nulls(array, where)
    if pa.types.is_null(kind):
        return array.cast(pa.int64())
    if is_text(kind):
        return _short(array.cast(pa.string()), where)
    if not is_number(kind):
        refuse(f"{where}: expected integers of 64 bits or strings, got {kind}{advice_on(kind)}")
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        row = _first(~_are_whole(array))
        refuse(f"{where}: row {row}: expected an integer of 64 bits, got {array[row].as_py()}")


def keys_of(array: pa.Array, where: str) -> pa.Array:
    """Return keys of edges, null where an edge has none.

    Raises: SnapshotError as `ids_of`, and for what means no key.
    """
    keys = ids_of(array, where, nulls=True)
    none = pa.scalar(NO_KEY if keys.type == pa.int64() else "", keys.type)
    if (wrong := pc.equal(keys, none).fill_null(False).to_numpy(zero_copy_only=False)).any():
        refuse(f"{where}: row {_first(wrong)}: expected a key, got {none.as_py()!r}; null means no key")
    return keys


def names_of(array: pa.Array, where: str) -> pa.Array:
    """Return names of kinds or types as strings; integers are written out.

    Raises: SnapshotError for nulls, empty names and other types.
    """
    _refuse_nulls(array, where)
    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not is_text(array.type):
        refuse(f"{where}: expected strings, got {array.type}{advice_on(array.type)}")
    names = _short(array.cast(pa.string()), where)
    if (empty := pc.equal(names, "").to_numpy(zero_copy_only=False)).any():
        refuse(f"{where}: row {_first(empty)}: expected a name, got an empty string")
    return names


def times_of(array: pa.Array, where: str) -> pa.Array:
    """Return times, null where a row has none: integers, or timestamps in milliseconds.

    Raises: SnapshotError for other types.
    """
    if pa.types.is_timestamp(array.type):
        return pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())
    if not pa.types.is_integer(array.type):
        refuse(f"{where}: expected integers or timestamps, got {array.type}")
    return ids_of(array, where, nulls=True)


def labels_of(array: pa.Array, where: str) -> pa.Array:
    """Return labels as int64, null where a vertex has none.

    Raises: SnapshotError for other types.
    """
    if not (is_number(array.type) or pa.types.is_boolean(array.type) or pa.types.is_null(array.type)):
        refuse(f"{where}: expected integers, the numbers of classes, got {array.type}")
    return ids_of(array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array, where, nulls=True)


def numbers_of(array: pa.Array, where: str) -> np.ndarray:
    """Return a column of numbers, (n,) float32; False and True are 0 and 1.

    Raises: SnapshotError for nulls, other types, and what is not finite in float32.
    """
    _refuse_nulls(array, where)
    kind = array.type
    if pa.types.is_null(kind):
        return np.empty(0, np.float32)
    if not (is_number(kind) or pa.types.is_boolean(kind)):
        refuse(f"{where}: expected numbers, got {kind}{advice_on(kind)}")
    array = array.cast(pa.float64()) if pa.types.is_decimal(kind) else array
    return narrowed(array.to_numpy(zero_copy_only=False), where)


def matrix_of(array: pa.Array, where: str) -> np.ndarray:
    """Return a column of lists of numbers, (n, width) float32.

    Raises: SnapshotError for nulls, other types, lists of several lengths, and what is not finite in float32.
    """
    values, lengths = lists_of(array, where)
    if len(lengths) and (differ := lengths != lengths[0]).any():
        row = _first(differ)
        refuse(f"{where}: row {row}: expected {lengths[0]} numbers, as in row 0, got {lengths[row]}")
    return values.reshape(len(lengths), -1 if len(values) else 0)


def lists_of(array: pa.Array, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of all lists one after the other, float32, and the lengths of the lists, (n,) int64.

    Raises: SnapshotError as `matrix_of`, but for lengths.
    """
    _refuse_nulls(array, where)
    kind = array.type
    if pa.types.is_null(kind):
        return np.empty(0, np.float32), np.empty(0, np.int64)
    if not is_list(kind) or not (is_number(kind.value_type) or pa.types.is_boolean(kind.value_type)):
        if not (is_list(kind) and pa.types.is_null(kind.value_type) and not len(array.flatten())):
            refuse(f"{where}: expected lists of numbers, got {str(kind)[:80]}{advice_on(kind)}")
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    inside = array.flatten()
    if inside.null_count:
        refuse(f"{where}: row {_row_of(_first(pc.is_null(inside)), lengths)}: expected numbers, got null")
    wide = inside.cast(pa.float64()) if pa.types.is_decimal(inside.type) or pa.types.is_null(inside.type) else inside
    given = wide.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        values = given.astype(np.float32)
    if not (finite := np.isfinite(values)).all():
        at = _first(~finite)
        refuse(f"{where}: row {_row_of(at, lengths)}: expected finite numbers in float32, got {given[at]}")
    return values, lengths


def narrowed(given: np.ndarray, where: str) -> np.ndarray:
    """Return numbers by rows as float32.

    Raises: SnapshotError for other types, and what is not finite in float32.
    """
    if given.dtype.kind not in "iufb":
        refuse(f"{where}: expected numbers, got {given.dtype}")
    with np.errstate(over="ignore"):
        values = given.astype(np.float32)
    if not (finite := np.isfinite(values)).all():
        at = np.argwhere(~finite)[0].tolist()
        refuse(f"{where}: row {at[0]}: expected finite numbers in float32, got {given[tuple(at)]}")
    return values


def vectors(values: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Return rows of numbers as lists of float32."""
    offsets = np.append(0, np.cumsum(lengths))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.float32()))


def _short(texts: pa.Array, where: str) -> pa.Array:
    long = pc.greater(pc.binary_length(texts), ID_BYTES_MAX).fill_null(False).to_numpy(zero_copy_only=False)
    if long.any():
        row = _first(long)
        size = len(texts[row].as_py().encode())
        refuse(f"{where}: row {row}: expected at most {ID_BYTES_MAX} bytes, got {size}")
    return texts


def _refuse_nulls(array: pa.Array, where: str) -> None:
    if array.null_count:
        refuse(f"{where}: row {_first(pc.is_null(array))}: missing (null or NaN); fill it, or drop the row")


def _are_whole(array: pa.Array) -> np.ndarray:
    """Return where numbers are integers of 64 bits."""
    wide = array.cast(pa.float64(), safe=False) if not pa.types.is_integer(array.type) else array
    given = wide.fill_null(0).to_numpy(zero_copy_only=False)
    if given.dtype.kind in "iu":
        return given <= np.iinfo(np.int64).max
    with np.errstate(invalid="ignore"):
        return (given == np.floor(given)) & (np.abs(given) < 2.0**63)


def _first(where: np.ndarray | pa.Array) -> int:
    if not isinstance(where, np.ndarray):
        where = where.to_numpy(zero_copy_only=False)
    return int(np.argmax(where))


def _row_of(number: int, lengths: np.ndarray) -> int:
    """Return the row of a number of all lists."""
    return int(np.searchsorted(np.cumsum(lengths), number, "right"))
