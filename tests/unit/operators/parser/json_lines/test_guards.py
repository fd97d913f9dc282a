"""Odd lines are found wherever in a text they stand: the text is looked at in blocks of 64 bytes."""

import pytest

from freshet.operators.parser.json_lines.guards import odd_lines
from freshet.operators.parser.json_lines.text import Text

DEEP = b"[" * 1100 + b"]" * 1100
ODD = [b"1e400", b"1E+400", b"-0.25e400", b"9" * 400, DEEP, b"NaN", b"-Inf", b'"\xff"', b'"\xc3"']
EVEN = [b"1e40", b"1e-400", b"-12.5E+40", b"9" * 60, b'"NaN"', b'"Infinity"', '"\u00e4\u20ac"'.encode(), b'"x1e400"']


def odd_in(value: bytes, before: int) -> list[int]:
    """Return the odd lines of a text of three, where this many bytes stand before the value in the second."""
    line = b'{"p":"' + b"p" * before + b'","v":' + value + b"}"
    text, _ = Text.of_lines(b'{"a":1}\n' + line + b'\n{"a":2}', 0)
    return odd_lines(text).tolist()


@pytest.mark.parametrize("value", ODD)
def test_what_is_odd_is_found_at_every_place(value: bytes) -> None:
    assert all(odd_in(value, before) == [1] for before in range(140))


@pytest.mark.parametrize("value", EVEN)
def test_what_both_readers_take_alike_is_not_odd(value: bytes) -> None:
    assert not any(odd_in(value, before) for before in range(140))


@pytest.mark.parametrize("value", [b"1e400", b"-1E+999", b"9" * 400])
def test_a_number_at_the_very_end_of_a_text_is_found(value: bytes) -> None:
    for before in range(140):
        text, _ = Text.of_lines(b'{"p":"' + b"p" * before + b'","v":' + value + b"}", 0)
        assert odd_lines(text).tolist() == [0]
