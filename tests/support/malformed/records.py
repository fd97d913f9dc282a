"""Records that are no events: a table of ways to be wrong, each with the words that a true reason contains.

A way is a small function that draws one such record; the words are what we know of it by construction, whatever the
Parser makes of it. The bytes of lines are here, the fields of events in `malformed_fields`, Arrow in `malformed_arrow`;
`all_ways` has them all.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH

Kind = Literal["line", "message", "row", "flood", "refused"]
LINE: Kind = "line"  # a line of JSON Lines, by itself or among others in a message
MESSAGE: Kind = "message"  # a whole message: None (a tombstone) or an Arrow stream that is no good as a whole
ROW: Kind = "row"  # a record that becomes a row of an Arrow table among good ones
FLOOD: Kind = "flood"  # a message of very many bad records, with their number
REFUSED: Kind = "refused"  # a line that only the events before it make wrong: the Partitioner tells
VERTICES = 3_000
MEGABYTE = 1 << 20

Make = Callable[[random.Random], Any]


@dataclass(frozen=True)
class Way:
    """A way to be wrong: `make` draws bytes (of a message: or None; of a row: a record).

    `words`: all of them stand in a true reason; `heavy`: some megabytes, so that there should be few of it;
    `known_raw`: the dead letter holds the record as it was, not as Arrow shows it.
    """

    name: str
    make: Make
    words: tuple[str, ...]
    kind: Kind = LINE
    heavy: bool = False
    known_raw: bool = True


class Table:
    """Ways in the order in which they are defined; `way` is the decorator that adds one."""

    def __init__(self) -> None:
        self.ways: list[Way] = []

    def way(self, *words: str, **options: Any) -> Callable[[Make], Make]:
        """Add the function below by its name."""

        def add(make: Make) -> Make:
            assert words, make.__name__
            self.ways.append(Way(make.__name__.replace("_", " "), make, words, **options))
            return make

        return add


BYTES = Table()
way = BYTES.way


def all_ways() -> list[Way]:
    """All ways, lines first; their names are unique."""
    from tests.support.malformed.arrow import ARROW
    from tests.support.malformed.fields import FIELDS

    ways = [*BYTES.ways, *FIELDS.ways, *ARROW.ways]
    assert len({one.name for one in ways}) == len(ways)
    return ways


def vertex(rng: random.Random) -> int:
    """An id as good events have it."""
    return rng.randrange(VERTICES) * 7 - 5


def features(rng: random.Random) -> list[Any]:
    """Features as good events have them."""
    return [round(rng.gauss(0, 1), 3) for _ in range(IN_WIDTH)]


def attributes(rng: random.Random) -> list[Any]:
    """Attributes as good events have them."""
    return [round(rng.gauss(0, 1), 3) for _ in range(EDGE_WIDTH)]


def edge_event(rng: random.Random, **fields: Any) -> dict[str, Any]:
    """A good event with some fields changed."""
    return {"op": "add_edge", "src": vertex(rng), "dst": vertex(rng), "weight": round(rng.random(), 2), **fields}


def vertex_event(rng: random.Random, **fields: Any) -> dict[str, Any]:
    """A good event with some fields changed."""
    return {"op": "set_features", "id": vertex(rng), "x": features(rng), **fields}


def good_line(rng: random.Random) -> bytes:
    """A good event as a line."""
    return orjson.dumps(rng.choice([edge_event, vertex_event])(rng))


def replaced(rng: random.Random, line: bytes, by: int) -> bytes:
    """The line with one byte, anywhere, replaced."""
    at = rng.randrange(len(line))
    return line[:at] + bytes([by]) + line[at + 1 :]


# -- bytes that are no text ------------------------------------------------------------------------------------------


@way("not UTF-8", "invalid start byte at byte 0")
def random_bytes(rng: random.Random) -> bytes:
    return b"\xfe" + rng.randbytes(rng.randrange(300)).replace(b"\n", b"\r")


@way("not UTF-8", "invalid start byte")
def event_with_a_byte_of_no_text(rng: random.Random) -> bytes:
    return replaced(rng, good_line(rng), rng.choice([0x80, 0xBF, 0xF8, 0xFF]))


@way("not UTF-8", "at byte 25")
def latin_1(rng: random.Random) -> bytes:
    return '{"op":"del_vertex","id":"é"}'.encode("latin-1")


@way("not UTF-8", "at byte 0")
def utf_16(rng: random.Random) -> bytes:
    return good_line(rng).decode().encode("utf-16")


@way("not UTF-8", "at byte 1")
def compressed_event(rng: random.Random) -> bytes:
    return gzip.compress(good_line(rng), mtime=0).replace(b"\n", b"\r")


@way("not UTF-8", "invalid start byte at byte 7")
def overlong_character(rng: random.Random) -> bytes:
    return b'{"op":"\xc0\xaf"}'


@way("not UTF-8", "at byte 7")
def encoded_surrogate(rng: random.Random) -> bytes:
    return b'{"op":"\xed\xa0\x80"}'


@way("not UTF-8", "unexpected end of data")
def half_a_character(rng: random.Random) -> bytes:
    return good_line(rng)[: rng.randrange(8, 20)] + "€".encode()[: rng.choice([1, 2])]


# -- text that is no JSON --------------------------------------------------------------------------------------------


@way("not JSON", "byte order mark")
def two_byte_order_marks(rng: random.Random) -> bytes:
    return b"\xef\xbb\xbf" * 2 + good_line(rng)


@way("not JSON")
def nul_bytes(rng: random.Random) -> bytes:
    return b"\0" * rng.randint(1, 200)


@way("not JSON")
def control_character(rng: random.Random) -> bytes:
    return replaced(rng, good_line(rng), rng.randrange(1, 9))


@way("not JSON")
def cut_short(rng: random.Random) -> bytes:
    line = good_line(rng)
    return line[: rng.randrange(1, len(line))]


@way("not JSON")
def plain_words(rng: random.Random) -> bytes:
    return rng.choice([b"nonsense", b"DELETE FROM vertices", b"<event/>", "çok güzel".encode()])


@way("not JSON")
def comma_separated_values(rng: random.Random) -> bytes:
    return b"add_edge,%d,%d" % (vertex(rng), vertex(rng))


@way("not JSON")
def single_quotes(rng: random.Random) -> bytes:
    return str(edge_event(rng)).encode()


@way("not JSON")
def comment(rng: random.Random) -> bytes:
    return b"// " + good_line(rng)


@way("not JSON", "trailing comma")
def trailing_comma(rng: random.Random) -> bytes:
    return good_line(rng)[:-1] + b",}"


@way("not JSON", "after document")
def two_objects_on_a_line(rng: random.Random) -> bytes:
    return good_line(rng) + good_line(rng)


@way("not JSON", "leading zero")
def leading_zero(rng: random.Random) -> bytes:
    return b'{"op":"del_vertex","id":0%d}' % rng.randrange(1000)


@way("not JSON", "surrogate")
def lone_surrogate(rng: random.Random) -> bytes:
    return b'{"op":"del_vertex","id":"\\ud8%02x"}' % rng.randrange(256)


@way("not JSON", "char 42")
def weight_nan(rng: random.Random) -> bytes:
    return b'{"op":"add_edge","src":1,"dst":2,"weight":NaN}'


@way("not JSON")
def features_infinite(rng: random.Random) -> bytes:
    sign = rng.choice([b"", b"-"])
    return b'{"op":"set_features","id":%d,"x":[1,2,3,4,5,%sInfinity]}' % (vertex(rng), sign)


@way("not JSON", "infinity")
def number_past_double(rng: random.Random) -> bytes:
    return b'{"op":"add_edge","src":1,"dst":2,"weight":%de400}' % rng.randint(1, 9)


@way("not JSON", "infinity", heavy=True)
def number_of_many_digits(rng: random.Random) -> bytes:
    return b'{"op":"del_vertex","id":%s}' % (b"7" * rng.randint(100_000, MEGABYTE))


@way("not JSON", "depth limit", heavy=True)
def nested_without_an_end(rng: random.Random) -> bytes:
    return b"[" * rng.randint(100_000, MEGABYTE)


@way("not JSON", "depth limit", heavy=True)
def deeply_nested_objects(rng: random.Random) -> bytes:
    depth = rng.randint(50_000, 200_000)
    return b'{"op":' * depth + b"1" + b"}" * depth


@way("not JSON", heavy=True)
def long_line(rng: random.Random) -> bytes:
    return b"x" * rng.randint(MEGABYTE, 3 * MEGABYTE)


@way("not JSON", heavy=True)
def very_long_line(rng: random.Random) -> bytes:
    return b'{"op":"add_edge","src":"' + b"y" * (10 * MEGABYTE)


@way("not UTF-8", "invalid start byte at byte 1048576", heavy=True)
def long_text_that_ends_badly(rng: random.Random) -> bytes:
    return b'"' + b"z" * (MEGABYTE - 1) + b"\xff"


# -- JSON that is no object ------------------------------------------------------------------------------------------


@way("expected a JSON object", "a list")
def list_of_events(rng: random.Random) -> bytes:
    return b"[" + good_line(rng) + b"]"


@way("expected a JSON object", "the string")
def bare_string(rng: random.Random) -> bytes:
    return orjson.dumps(good_line(rng).decode())


@way("expected a JSON object", "the integer")
def bare_number(rng: random.Random) -> bytes:
    return b"%d" % rng.randrange(10_000)


@way("expected a JSON object", "null")
def bare_null(rng: random.Random) -> bytes:
    return b"null"


@way("expected a JSON object", "the boolean")
def bare_boolean(rng: random.Random) -> bytes:
    return rng.choice([b"true", b"false"])


@way("expected a JSON object", "a list")
def deep_but_not_too_deep(rng: random.Random) -> bytes:
    depth = rng.randint(100, 1000)
    return b"[" * depth + b"]" * depth
