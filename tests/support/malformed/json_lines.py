"""Lines of JSON drawn from a seed, good and damaged, and a comparison of the two ways to parse them."""

from __future__ import annotations

import random
from typing import Any

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.messages import RawMessage
from freshet.operators.parser.rejects import LETTERS_MAX
from freshet.schema import Features

WIDTH = 3
_OPS = [b'"add_vertex"', b'"del_vertex"', b'"set_features"', b'"add_edge"', b'"del_edge"', b'"fly"', b"null", b"5"]
_TIMES = [b"17", b"0", b"-1", b"null", b"1700000000000", b"9223372036854775807", b"-9223372036854775807"] * 3
_TIMES += [b"1.5", b"7.0", b"-0", b"1e3", b"true", b'"now"', b"{}", b"[[{}]]", b"9223372036854775808"]
_TIMES += [b"-9223372036854775808", b"18446744073709551616", b"-9223372036854775809", b"1e30"]
# Keys of edges, most of which a job takes.
_EDGE_KEYS = {
    "int": [b"0", b"7", b"8", b"-3", b"9223372036854775807"],
    "string": [b'"a"', b'"7"', b'"\\u00e9"', b'"\xc3\xa9"'],
}
_ODD_KEYS = [b"null", b'"*"', b'""', b"7.0", b"1.5", b"1e3", b"true", b"[7]", b"{}", b"-0", b"9223372036854775808"]
_ODD_KEYS += [
    b"-9223372036854775808",
    b"-9223372036854775807",
    b"1e30",
    b'"' + b"k" * 1025 + b'"',
    b'"\\ud800"',
    b'"\\u002a"',
]
_KEYS = [
    b"key",
    b"pay",
    b"op",
    b"id",
    b"src",
    b"dst",
    b"x",
    b"weight",
    b"type",
    b"attr",
    b"ts",
    b"junk",
    b"n\\u006f",
    b"\\u006fp",
]
_NUMBERS = b"""1 1.0 -0 -0.0 0 9007199254740993 9223372036854775807 -9223372036854775808 9223372036854775808 -5
18446744073709551615 18446744073709551616 123456789012345678901234567890 1e3 1E+2 1e400 -1e400 1e-400 4e38 0.1
3.4028235677973366e38 3.4028235e38 0.30000001192092896 NaN Infinity -Infinity Inf 01 1. .5 +1 - -1e+400 1e-0400
1.7976931348623159e308 1.7976931348623157e308 17.976931348623159E+0307""".split()
# Numbers past float64 by their digits, some of which an exponent brings back.
_NUMBERS += [
    b"9" * 309,
    b"-" + b"9" * 400 + b".5",
    b"9" * 300 + b"e99",
    b"9" * 400 + b"e-99",
    b"0." + b"0" * 400 + b"1e401",
]
_NUMBERS += [b"9" * 120 + b"." + b"9" * 120 + b"e250", b'"' + b"9" * 400 + b'"', b'"9e400"', b'"a,9e400"']
_TEXTS = b"""null true false "" "a" "NaN" "x:NaN" "\\u0061" "\\ud83d\\ude00" "\\ud800" "\\udc00" "\\n" "a\\"b" "\\x"
"user-0" "a,-0" """.split()
_NESTED = b"""[] [1] [1,2,3] [1,-0,3] [1,-0.0,0.1] [1,null,3] [1,true,3] [1e39,1,1] ["1",2,3] [[1,2,3]] {}
[0.1,18446744073709551617,16777217] [NaN,1,2] {"op":"add_edge"}""".split()
_BYTES = [b'"\xc3\xa9"', b'"\xff"', b'"\x01"', b'"' + b"z" * 300 + b'"', b'"' + "ü".encode() * 200 + b'"']
VALUES = [*_NUMBERS, *_TEXTS, *_NESTED, *_BYTES]
_SPLICES = [b"\n", b"\0", b" ", b"\r", b"{", b"}", b"[", b"\xff", b'"', b"\\", b"}{", b"}\n{", b"\xef\xbb\xbf", b"\t"]
# More levels than orjson reads.
DEEP = b'{"op":"del_vertex","id":1,"junk":' + b"[" * 1100 + b"]" * 1100 + b"}"
_MIXED = b'{"op":"del_vertex","id":1,"junk":' + b'{"a":' * 600 + b"[" * 600 + b"]" * 600 + b"}" * 601
_MAPS: list[dict[str, str] | list[dict[str, str]]] = [
    {"op": "op", "src": "src", "dst": "dst", "id": "id", "x": "x", "weight": "weight"},
    {"op": "`add_edge`", "src": "src", "dst": "dst", "weight": "`0.5`"},
    {"op": "op", "id": "id", "src": "id", "dst": "id", "x": "x"},
    {"op": "`set_features`", "id": "id", "x": "x"},
    {"op": "op", "src": "src", "dst": "dst", "type": "`a`", "weight": "junk", "attr": "`null`"},
    {"op": "op", "id": "id", "x": "attr"},
    {"op": "op", "id": "junk.id", "src": "src", "dst": "dst"},
    {"op": "op", "id": "id", "src": "src", "dst": "dst", "key": "key"},
    {"op": "`add_edge`", "src": "src", "dst": "dst", "key": "pay"},
    [
        {"when": "src", "op": "`add_edge`", "src": "src", "dst": "dst", "key": "key"},
        {"when": "src", "op": "`add_edge`", "src": "dst", "dst": "src", "key": "weight"},
    ],
    [
        {"when": "src", "op": "`add_edge`", "src": "src", "dst": "dst"},
        {"op": "op", "id": "id", "src": "src", "dst": "dst"},
    ],
]


class Lines:
    """Draws lines; `kind` is that of the ids of good ones, `damage` the share that is damaged."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.kind = self.draw.choice(["int", "string"])
        self.damage = self.draw.choice([0, 0.002, 0.01, 0.05, 0.3])
        self.key_field, self.key_kind = self.draw.choice(["key", "key", "pay"]), self.draw.choice(["int", "string"])
        self._keyed = self.draw.choice([0, 0.3, 0.9])
        self._minus_zero = self.draw.choice([b"0.0", b"0.0", b"-0.0"])

    def _id(self) -> bytes:
        number = self.draw.randrange(40)
        forms = [b'"v%d"', b'"v%d"', b'"v-%d"', b'"\\u00e9%d"', b'"\xc3\xa9%d"']
        return (b"%d" if self.kind == "int" else self.draw.choice(forms)) % number

    def _number(self) -> bytes:
        draw = self.draw
        forms = [f"{draw.random()!r}", f"{draw.randrange(1, 9)}", f"{draw.gauss(0, 1):.3e}", f"{draw.gauss(0, 9):.7g}"]
        return draw.choice([*(form.encode() for form in forms), self._minus_zero])

    def _fields(self) -> list[tuple[bytes, bytes]]:
        draw, op = self.draw, self.draw.choice(_OPS[:5])
        fields = [(b"op", op)]
        if op in _OPS[:3]:
            fields.append((b"id", self._id()))
            if op == _OPS[2] or (op == _OPS[0] and draw.random() < 0.5):
                fields.append((b"x", b"[" + b",".join(self._number() for _ in range(WIDTH)) + b"]"))
        else:
            fields += [(b"src", self._id()), (b"dst", self._id())]
            if draw.random() < 0.5:
                fields.append((b"weight", draw.choice([self._number(), b"null"])))
            if draw.random() < 0.3:
                fields.append((b"type", draw.choice([b'"a"', b'"b"', b'"c"', b"null"])))
            if draw.random() < 0.1:
                fields.append((b"attr", draw.choice([b"[1,2]", b"[]", b"[0.5]"])))
            if draw.random() < self._keyed:
                odd = draw.random() < self.damage
                fields.append((self.key_field.encode(), draw.choice(_ODD_KEYS if odd else _EDGE_KEYS[self.key_kind])))
            if op == _OPS[4] and draw.random() < self._keyed / 3:
                fields.append((self.key_field.encode(), b'"*"'))
        if draw.random() < 0.2:
            fields.append((b"ts", draw.choice(_TIMES)))
        if draw.random() < 0.05:
            draw.shuffle(fields)
        return fields

    def _whole(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        space = self.draw.choice([b"", b"", b"", b" "])
        return b"{" + (b"," + space).join(b'"' + key + b'":' + space + value for key, value in fields) + b"}"

    def line(self) -> bytes:
        """Return a line, a good one or one that was damaged."""
        fields, draw = self._fields(), self.draw
        if draw.random() >= self.damage:
            return self._whole(fields)
        if draw.random() < 0.5:
            self._damage_fields(fields)
            return self._whole(fields)
        return self._damaged(self._whole(fields))

    def _damage_fields(self, fields: list[tuple[bytes, bytes]]) -> None:
        draw, row = self.draw, self.draw.randrange(len(fields))
        match draw.randrange(6):
            case 0:
                fields[row] = draw.choice(_KEYS), draw.choice(VALUES)
            case 1:
                fields.append((draw.choice(_KEYS), draw.choice(VALUES)))
            case 2:
                fields.pop(row)
            case 3:
                fields.append(draw.choice(fields))
            case 4:
                fields[row] = fields[row][0], draw.choice(VALUES)
            case _:
                fields[0] = b"op", draw.choice(_OPS)

    def _damaged(self, line: bytes) -> bytes:
        draw, at = self.draw, self.draw.randrange(len(line))
        match draw.randrange(6):
            case 0:
                return line[:at] + bytes([draw.randrange(256)]) + line[at + 1 :]
            case 1:
                return line[:at] + draw.choice(_SPLICES) + line[at:]
            case 2:
                return line[:at] + line[at + draw.choice([1, len(line)]) :]
            case 3:
                return line.replace(b"1", draw.choice(VALUES), 1)
            case 4:
                return line.replace(b":", b" :\t ", 1)
            case _:
                return draw.choice(around(line))


def around(line: bytes) -> list[bytes]:
    """Return what lines may be that hold a good one, or none."""
    ends = [line + line, line + b" " + line, line + b"\0" + line, line + b"\0}", line + b",", line + b"\r", line + b" "]
    begins = [b" " + line, b"\xef\xbb\xbf" + line, b"[" + line + b"]", b"//" + line, b"{" + line, line[1:], line[:-1]]
    split = [line.replace(b":", b":\n", 1), line[:-1] + b"\n}", b"{\n" + line[1:], line + b"\n" + line + line]
    # as many values as lines, but not one on each
    split += [b'{"junk":\n' + line + b"}\n" + line + line, b'{"junk":{}\n,' + line[1:] + b"\n" + line + line]
    others = [b"", b" ", b"\r", b"nonsense", b"5", b"[]", b"null", b"{}", b"}{", DEEP, _MIXED]
    return [*ends, *begins, *split, *others]


def outcome(parser: Parser, lines: bytes | list[RawMessage]) -> tuple[Any, ...]:
    """Return all that comes of a file's lines, or of messages: bytes of events, letters, the kinds of ids and keys."""
    if isinstance(lines, bytes):
        events, letters = parser.parse_jsonl(lines, Origin(), 7)
    else:
        events, letters = parser.parse_messages(lines, Origin(1, "topic", 2))
    return events.encode(), letters, parser.id_kind, parser.keys.kind


def compare(seed: int) -> int:
    """Parse drawn lines by columns and one by one, in two texts; returns how many lines.

    Raises: AssertionError when anything differs.
    """
    drawn = Lines(seed)
    draw = drawn.draw
    options: dict[str, Any] = {
        "edge_types": draw.choice([None, None, ["a", "b"], ["a", "b", "c"]]),
        "id_bytes_max": draw.choice([1024, 100, 8]),
        "events_map": draw.choice([None, None, None, draw.choice(_MAPS)]),
        "id_kind": draw.choice([None, drawn.kind, drawn.kind, "int"]),
    }
    field = draw.choice(["", "key", "offset", "pay"] if options["events_map"] is None else ["", "key", "offset"])
    kind = "int" if field == "offset" else draw.choice(["", drawn.key_kind, drawn.key_kind, None])

    def keys() -> KeyRules:
        return KeyRules(field, kind, options["id_bytes_max"], sources=2)

    features = Features(WIDTH, random.Random(f"attributes {seed}").choice([0, 1, 2]))
    by_columns = Parser(features, lines_min=draw.choice([1, 8, 64]), keys=keys(), **options)
    one_by_one = Parser(features, lines_min=1 << 60, keys=keys(), **options)
    count = 0
    for _ in range(2):
        lines = [drawn.line() for _ in range(draw.choice([70, 130, 400, LETTERS_MAX + 500]))]
        count += len(lines)
        if draw.random() < 0.5:
            text: bytes | list[RawMessage] = b"\n".join(lines) + draw.choice([b"", b"\n"])
        else:
            text = _messages(lines, draw)
        assert outcome(by_columns, text) == outcome(one_by_one, text), (
            f"seed {seed}, {features}, {options}, {field} {kind}"
        )
    return count


def _messages(lines: list[bytes], draw: random.Random) -> list[RawMessage]:
    messages, first = list[RawMessage](), 0
    while first < len(lines):
        last = first + draw.choice([1, 1, 1, 5, 200, LETTERS_MAX + 400])
        value = b"\n".join(lines[first:last]) + draw.choice([b"", b"", b"\n", b"\n\n"])
        messages.append(RawMessage(5 + 2 * len(messages), None if draw.random() < 0.005 else value))
        first = last
    return messages
