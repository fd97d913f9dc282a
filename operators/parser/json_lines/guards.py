"""Lines that orjson reads and Arrow's JSON reader does not, or the other way round, or each in its own way.

Both read what RFC 8259 allows. Arrow's reader also takes several values on a line, values that span lines, NaN and
infinity, numbers past float64, text that is not UTF-8, and any depth; it passes over a byte order mark, and it reads
the integer -0 as -0.0.
Such lines are found here before, in the whole text at once. A good line may be called odd, never the other way round.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.parser.json_lines.text import Text

_OPEN, _CLOSE, _RETURN, _SPACE, _E, _PLUS, _MINUS, _POINT, _ZERO, _N, _I = np.frombuffer(b"{}\r e+-.0NI", np.uint8)
_TEN, _FALSE, _TRUE = np.array([10, 0, 1], np.uint8)
_BEFORE_NUMBER = np.frombuffer(b"[:, \t\r", np.uint8)
# A number that is none, where a value may begin.
_NO_NUMBER = re.compile(rb"[\[:,\s]-?(?:NaN|Inf)")
_MINUS_ZERO = re.compile(rb"[\[:,\s]-0(?![0-9.eE])")
# orjson reads 1,024 levels. A line of less than twice as many bytes has fewer.
_LEVELS = 1000
# A number of fewer than twice as many digits, and an exponent of two, is within float64.
_DIGITS = 64
_AHEAD = 4  # bytes behind a block that are looked at with it
_LONG, _LARGE = 1, 2  # marks of a block: digits alone; the e of an exponent of three digits


def warm_up() -> None:
    """Compile the kernel of the Parsers, or load it."""
    with np.errstate(over="ignore"):  # where kernels are plain Python
        odd_lines(Text.of_lines(b"{}", 0)[0])


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
    marks = _marks_of(data)
    found = _first_odd_byte(text.data, marks)
    if found is not None:
        return np.array([text.line_at(found)])
    if marks.blocks.any() and len(large := _large_numbers(data, marks.blocks)):
        return np.unique(np.searchsorted(text.begin, large, "right") - 1)
    return _deep_lines(text, marks.opening)


class _Marks(NamedTuple):
    """Findings of one pass over a text."""

    blocks: np.ndarray  # (b,) uint8, of each 64 bytes
    is_ascii: bool
    letters: bool  # whether there is an N or an I
    opening: int  # brackets and braces


def _marks_of(data: np.ndarray) -> _Marks:
    whole = max(0, len(data) - _AHEAD) // _DIGITS
    blocks = np.zeros(whole + 2, np.uint8)
    rest = np.zeros(2 * _DIGITS + _AHEAD, np.uint8)  # with bytes behind it that mean nothing
    rest[: len(data) - whole * _DIGITS] = data[whole * _DIGITS :]
    found = _mark(data, blocks[:whole]), _mark(rest, blocks[whole:])
    high, letters, opening = (sum(both) for both in zip(*found, strict=True))
    return _Marks(blocks, not high, bool(letters), opening)


@kernel
def _mark(data: np.ndarray, blocks: np.ndarray) -> tuple[int, int, int]:
    """Mark blocks of 64 bytes; return whether some byte is no ASCII, whether there is an N or I, and what opens."""
    high = letters = opening = 0
    for block in range(len(blocks)):
        begin = block * _DIGITS
        every, large, bits, either, opens = _TRUE, _FALSE, _FALSE, _FALSE, _FALSE
        for k in range(_DIGITS):  # of single bytes alone: made of vector instructions
            byte = data[begin + k]
            first = np.uint8(np.uint8(data[begin + k + 1] - _ZERO) < _TEN)
            second = np.uint8(np.uint8(data[begin + k + 2] - _ZERO) < _TEN)
            third = np.uint8(np.uint8(data[begin + k + 3] - _ZERO) < _TEN)
            fourth = np.uint8(np.uint8(data[begin + k + 4] - _ZERO) < _TEN)
            signed = np.uint8(np.uint8(data[begin + k + 1] == _PLUS) & fourth)
            exponent = np.uint8(np.uint8(second & third) & np.uint8(first | signed))
            every = np.uint8(every & np.uint8(np.uint8(byte - _ZERO) < _TEN))
            large = np.uint8(large | np.uint8(np.uint8(np.uint8(byte | _SPACE) == _E) & exponent))
            bits = np.uint8(bits | byte)
            either = np.uint8(either | np.uint8(np.uint8(byte == _N) | np.uint8(byte == _I)))
            opens = np.uint8(opens + np.uint8(np.uint8(byte | _SPACE) == _OPEN))
        blocks[block] = every * _LONG + large * _LARGE
        high |= bits >> 7
        letters |= either
        opening += opens
    return high, letters, opening


def _first_odd_byte(data: bytes, marks: _Marks) -> int | None:
    if not marks.is_ascii:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return error.start
    # single letters first, which are found by vector instructions
    if marks.letters and (b"NaN" in data or b"Inf" in data):
        found = _NO_NUMBER.search(data)
        return None if found is None else found.end() - 1
    return None


def _large_numbers(data: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return a place in each number that may be past float64: one of many digits, or of three in its exponent."""
    long = np.flatnonzero(blocks & _LONG) * _DIGITS
    large = np.flatnonzero(blocks & _LARGE) * _DIGITS
    return np.concatenate([long, _large_at((large[:, None] + np.arange(_DIGITS)).ravel(), data)])


def _large_at(places: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return those of some places that are the e of a number with an exponent of three digits."""
    at = places[places < len(data) - _AHEAD]  # a text ends with "}", so there is a byte behind digits
    at = at[((data[at] | _SPACE) == _E) & _are_digits(data[at + 2]) & _are_digits(data[at + 3])]
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
    return at[odd]


def _are_digits(data: np.ndarray) -> np.ndarray:
    return (data - _ZERO) < 10


def _deep_lines(text: Text, opening: int) -> np.ndarray:
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
