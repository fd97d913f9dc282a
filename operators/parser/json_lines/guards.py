"""Lines that orjson reads and Arrow's JSON reader does not, or the other way round, or each in its own way.

Both read what RFC 8259 allows. Arrow's reader also takes several values on a line, values that span lines, NaN and
infinity, numbers past float64, text that is not UTF-8, and any depth; it passes over a byte order mark, and it reads
the integer -0 as -0.0.
Such lines are found here before, in the whole text at once. A good line may be called odd, never the other way round.
"""

from __future__ import annotations

import re

import numpy as np

from freshet.operators.parser.json_lines.text import Text

_OPEN, _CLOSE, _RETURN, _SPACE, _E, _PLUS, _MINUS, _POINT, _ZERO = np.frombuffer(b"{}\r e+-.0", np.uint8)
_BEFORE_NUMBER = np.frombuffer(b"[:, \t\r", np.uint8)
# A number that is none, where a value may begin.
_NO_NUMBER = re.compile(rb"[\[:,\s]-?(?:NaN|Inf)")
_MINUS_ZERO = re.compile(rb"[\[:,\s]-0(?![0-9.eE])")
# orjson reads 1,024 levels. A line of less than twice as many bytes has fewer.
_LEVELS = 1000
# A number of fewer than twice as many digits, and an exponent of two, is within float64.
_DIGITS = 64
_WINDOW = 1 << 16  # bytes of a text that are looked at together; whole numbers of _DIGITS
_EIGHT_TRUE = np.frombuffer(b"\1" * 8, np.uint64)[0]


def odd_lines(text: Text) -> np.ndarray:
    """Return the numbers of odd lines, ascending; where there are several reasons, perhaps only those of one."""
    data = np.frombuffer(text.data, np.uint8)
    last = data[text.end - 1]
    if (last == _RETURN).any():
        last = np.where(last == _RETURN, data[np.maximum(text.end - 2, text.begin)], last)
    # A line that begins and ends so holds whole values, for none goes on with "{" after a "}" and white space.
    odd = np.flatnonzero((data[text.begin] != _OPEN) | (last != _CLOSE))
    if len(odd):
        return odd
    found = _first_odd_byte(text.data)
    if found is not None:
        return np.array([text.line_at(found)])
    large = _large_numbers(data)
    return np.unique(np.searchsorted(text.begin, large, "right") - 1) if len(large) else _deep_lines(text, data)


def _first_odd_byte(data: bytes) -> int | None:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return error.start
    # single letters first, which are found by vector instructions
    if (b"N" in data and b"NaN" in data) or (b"I" in data and b"Inf" in data):
        found = _NO_NUMBER.search(data)
        return None if found is None else found.end() - 1
    return None


def _large_numbers(data: np.ndarray) -> np.ndarray:
    """Return a place in each number that may be past float64: one of many digits, or of three in its exponent."""
    found = [place for first in range(0, len(data), _WINDOW) for place in _large_from(data, first)]
    return np.concatenate(found)


def _large_from(data: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places in a window of the text: in numbers of many digits, and at the e of large exponents."""
    window = data[first : first + _WINDOW + 4]
    digit = _are_digits(window)
    whole = digit[: len(digit) // _DIGITS * _DIGITS].view(np.uint64) == _EIGHT_TRUE
    long = np.flatnonzero(whole.reshape(-1, _DIGITS // 8).all(axis=1)) * _DIGITS + first
    # e123 or e+123; a text ends with "}", so there is a byte behind digits
    at = np.flatnonzero(((window[:-3] | _SPACE) == _E) & digit[2:-1] & digit[3:]) + first
    at = at[_are_digits(data[at - 1])]
    sign = data[at + 1]
    at = at[_are_digits(sign) | ((sign == _PLUS) & _are_digits(data[at + 4]))]
    begin, left = at - 1, np.arange(len(at))
    for _ in range(2 * _DIGITS):  # back to where the number begins, or what looks like one in a string
        if not len(left):
            break
        begin[left] -= 1
        here = data[begin[left]]
        left = left[_are_digits(here) | (here == _POINT)]
    begin -= data[begin] == _MINUS
    odd = np.isin(data[begin], _BEFORE_NUMBER)
    odd[left] = True
    return long, at[odd]


def _are_digits(data: np.ndarray) -> np.ndarray:
    return (data - _ZERO) < 10


def _deep_lines(text: Text, data: np.ndarray) -> np.ndarray:
    opening = np.count_nonzero((data | _SPACE) == _OPEN)  # "[" and "{" differ in the bit of a space
    if opening - len(text) < _LEVELS:  # each line has one at least
        return np.empty(0, np.int64)
    count = text.data.count
    long = np.flatnonzero(text.end - text.begin >= 2 * _LEVELS)
    deep = [
        row
        for row, begin, end in zip(long.tolist(), text.begin[long].tolist(), text.end[long].tolist(), strict=True)
        if count(b"[", begin, end) + count(b"{", begin, end) > _LEVELS
    ]
    return np.array(deep, np.int64)


def minus_zero_line(text: Text) -> int | None:
    """Return the number of the first line that seems to have the integer -0."""
    found = _MINUS_ZERO.search(text.data)
    return None if found is None else text.line_at(found.end() - 1)
