"""Columns of text as columns of the types that fields of events have, all rows at once.

A value that can't be read looks bad here (null for an id, NaN, the time that means none); the rules decide with the
text (`values.py`), and give the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.arrow.arrays import is_list, is_text, valid
from freshet.operators.parser.rules import ID_FIELDS, WHOLE_MAX, FieldKind, Rules
from freshet.operators.parser.text_tables import values
from freshet.partitioner.events import NO_TS
from freshet.partitioner.ids import INT, NO_KEY, STRING

_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
_POINT = r"^(0|-?[1-9][0-9]{0,18})\.0+$"
_SPACE = r"[ \t\n\v\f\r]"
_BRACKETS = rf"(?s)^{_SPACE}*\[{_SPACE}*(.*?){_SPACE}*\]{_SPACE}*$"
_BETWEEN = rf"{_SPACE}*[,;]{_SPACE}*|{_SPACE}+"
_DAY = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
# Forms of times, each with the type whose reader takes it.
_INSTANTS = (
    (rf"{_DAY}({_CLOCK})?$", pa.timestamp("us")),
    (rf"{_DAY}{_CLOCK}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})$", pa.timestamp("us", "UTC")),
)


def typed_columns(columns: Mapping[str, pa.Array], rules: Rules) -> dict[str, pa.Array]:
    """Return the fields of events in columns of text; those without any value are left out."""
    found = {}
    for name, texts in columns.items():
        if name in rules.fields and texts.null_count < len(texts):
            found[name] = _typed(name, texts, rules)
    return found


def _typed(name: str, texts: pa.Array, rules: Rules) -> pa.Array:
    kind = rules.fields[name]
    if not (is_text(texts.type) or is_list(texts.type)):  # a constant of a map
        return texts
    if name in ID_FIELDS:
        return texts if rules.id_kind == STRING else _integers(texts, None)
    if kind is FieldKind.KEY:
        return _integers(texts, NO_KEY) if rules.keys.kind == INT else texts
    if kind is FieldKind.NUMBER:
        return _numbers(texts)
    if kind is FieldKind.TIME:
        return _times(texts)
    return _lists(texts) if kind in (FieldKind.FEATURES, FieldKind.NUMBERS) else texts


def _integers(texts: pa.Array, bad: int | None) -> pa.Array:
    """Integers, null where there is no text, and `bad` where it says none."""
    good = pc.match_substring_regex(texts, _WHOLE).fill_null(False)
    limited = np.zeros(len(texts), bool)
    if good.true_count < len(texts) - texts.null_count:
        points = pc.match_substring_regex(texts, _POINT).fill_null(False)
        texts = pc.replace_substring_regex(texts, _POINT, r"\1")
        good, limited = pc.or_(good, points), points.to_numpy(zero_copy_only=False)
    is_good = good.to_numpy(zero_copy_only=False).copy()
    digits = pc.if_else(good, texts, pa.scalar("0", texts.type))
    try:
        read = digits.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # past int64
        found = [int(one) for one in digits.to_pylist()]
        is_good &= np.array([-(2**63) <= one < 2**63 for one in found], bool)
        read = np.array([one if fits else 0 for one, fits in zip(found, is_good.tolist(), strict=True)], np.int64)
    is_good &= ~limited | (np.abs(read) <= WHOLE_MAX)
    if bad is None:
        return pa.array(read, mask=~is_good)
    return pa.array(np.where(is_good, read, bad), mask=~valid(texts))


def _numbers(texts: pa.Array) -> pa.Array:
    """Numbers, null where there is no text, and NaN where it says none."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return pa.array([_number(text) for text in _to_python(texts)], pa.float64())


def _to_python(texts: pa.Array) -> list[str | None]:
    binary = texts.cast(pa.binary()).to_pylist()
    return [None if text is None else text.decode(errors="replace") for text in binary]


def _number(text: str | None) -> float | None:
    found = None if text is None else values.number(text)
    return float("nan") if isinstance(found, str) else found


def _times(texts: pa.Array) -> pa.Array:
    """Integers or times, null where there is no text, and the integer that means none where it says none."""
    found = _integers(texts, NO_TS)
    if (found.to_numpy(zero_copy_only=False) != NO_TS).all():
        return found
    for form, kind in _INSTANTS:
        if pc.all(pc.match_substring_regex(texts, form)).as_py():
            try:
                return texts.cast(kind)
            except pa.ArrowInvalid:  # the 30th of February
                break
    return found


def _lists(texts: pa.Array) -> pa.Array:
    """Lists of numbers, null where there is no text; NaN where one is none, or is missing."""
    if is_list(texts.type):  # of several columns
        inner = _numbers(texts.values).to_numpy(zero_copy_only=False)
        return pa.ListArray.from_arrays(texts.offsets, pa.array(inner), mask=pa.array(~valid(texts)))
    for split in _quick_split, _split:
        lists = split(texts)
        try:
            found = lists.values.cast(pa.float64())
        except pa.ArrowInvalid:
            continue
        return pa.ListArray.from_arrays(lists.offsets, found, mask=pa.array(~valid(texts)))
    return _slow_lists(texts)


def _quick_split(texts: pa.Array) -> pa.ListArray:
    """Split texts as most are written: all at commas or all at spaces, in brackets or not."""
    trimmed = pc.ascii_trim_whitespace(texts)
    opening, closing = (pc.count_substring(trimmed, one) for one in "[]")
    inside = pc.and_(pc.starts_with(trimmed, "["), pc.ends_with(trimmed, "]"))
    whole = pc.and_(pc.equal(opening, closing), pc.equal(opening, pc.cast(inside, pa.int32())))
    inner = pc.ascii_trim(pc.if_else(whole, trimmed, pa.scalar("x", texts.type)), "[] \t\n\v\f\r")
    if not pc.any(pc.match_substring(inner, ",")).as_py():
        return pc.ascii_split_whitespace(inner)
    split = pc.split_pattern(inner, ",")
    return pa.ListArray.from_arrays(split.offsets, pc.ascii_trim_whitespace(split.values))


def _split(texts: pa.Array) -> pa.ListArray:
    """Split texts at commas, semicolons and spaces, however they are mixed."""
    inner = pc.replace_substring_regex(texts, _BRACKETS, r"\1")
    return pc.split_pattern(pc.replace_substring_regex(inner, _BETWEEN, ","), ",")


def _slow_lists(texts: pa.Array) -> pa.Array:
    found = []
    for text in _to_python(texts):
        read = None if text is None else values.numbers(text)
        is_good = isinstance(read, list) and all(isinstance(one, float) for one in read)
        found.append(read if is_good or read is None else [float("nan")])
    return pa.array(found, pa.list_(pa.float64()))
