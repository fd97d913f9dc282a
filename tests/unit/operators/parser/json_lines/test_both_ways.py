"""Lines of JSON give the same events and letters by columns as one by one, whatever is odd about one of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from freshet.operators.parser.columns import NO_OP
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.json_lines import parse, reader
from freshet.operators.parser.json_lines.guards import odd_lines
from freshet.operators.parser.json_lines.text import Text
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.malformed.json_lines import DEEP, VALUES, WIDTH, around, compare, outcome

GOOD = b'{"op":"add_edge","src":1,"dst":2,"weight":0.5}'
VERTEX = b'{"op":"set_features","id":7,"x":[0.1,-0.0,1e-3]}'
FIELDS = (b'{"op":"add_edge","src":%s,"dst":2}', b'{"op":"add_edge","src":1,"dst":2,"weight":%s}')
FIELDS += (b'{"op":"set_features","id":3,"x":%s}', b'{"op":"set_features","id":3,"x":[1,%s,2]}')
FIELDS += (b'{"op":"add_edge","src":1,"dst":2,"junk":%s}', b'{"op":"add_edge","src":1,"dst":2,"type":%s}')
FIELDS += (
    b'{"op":%s,"id":4}',
    b'{"op":"add_edge","src":1,"dst":2,"attr":%s}',
    b'{"op":"del_edge","src":1,"dst":2,"x":%s}',
)
ODD = [*(field % value for field in FIELDS for value in VALUES), *around(GOOD), *around(VERTEX)]


@pytest.mark.parametrize("first", range(0, len(ODD), 50))
def test_an_odd_line_among_good_ones_is_judged_as_if_it_were_alone(first: int) -> None:
    by_columns, one_by_one = (Parser(Features(WIDTH), "int", lines_min=few) for few in (1, 1 << 60))
    for odd in ODD[first : first + 50]:
        lines = [GOOD, VERTEX, GOOD, odd, VERTEX]
        for text in (b"\n".join(lines), b"\n".join(lines[:4])):
            assert outcome(by_columns, text) == outcome(one_by_one, text), odd
        messages = [RawMessage(3 * k, line) for k, line in enumerate(lines)]
        assert outcome(by_columns, messages) == outcome(one_by_one, messages), odd


@pytest.mark.parametrize("seed", range(40))
def test_drawn_lines(seed: int) -> None:
    assert compare(seed)


def test_good_lines_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    append = parse.append_lines
    monkeypatch.setattr(parse, "append_lines", lambda lines, *rest: (looked.append(len(lines)), append(lines, *rest)))
    good = [GOOD, VERTEX, b'{"op":"del_vertex","id":5,"ts":17,"tag":"NaN","note":{"x":[null,"\\u00e9"]}}'] * 100
    parser = Parser(Features(WIDTH), "int")
    events, letters = parser.parse_jsonl(b"\r\n".join(good) + b"\n", Origin())
    assert (len(events), letters, looked) == (300, [], [])
    messages = [RawMessage(k, line + b"\n") for k, line in enumerate(good)]
    assert len(parser.parse_messages(messages, Origin())[0]) == 300
    assert looked == []
    bad = b'{"op":"add_edge","src":1,"dst":2,"weight":"heavy"}'
    events, letters = parser.parse_jsonl(b"\n".join([*good[:100], bad, *good, b"nonsense"]), Origin())
    assert (len(events), [letter.offset for letter in letters]) == (400, [100, 401])
    assert looked == [1, 1]


def test_texts_that_are_odd_throughout_are_not_read_by_columns_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    read = reader.read_json
    monkeypatch.setattr(reader, "read_json", lambda text, schema: (tried.append(len(text)), read(text, schema))[1])
    floats = b"\n".join(b'{"op":"del_vertex","id":%d.0}' % k for k in range(1000))
    parser = Parser(Features(WIDTH), "int")
    for _ in range(5):
        assert len(parser.parse_jsonl(floats, Origin())[1]) == 1000
    assert len(tried) <= 8 + 4, "the first text says how the others are"
    tried.clear()
    for _ in range(5):
        parser.parse_jsonl(b"\n".join([GOOD] * 500), Origin())
    assert tried == [500] * 5


def test_the_kind_of_ids_is_decided_by_the_first_line_that_is_accepted() -> None:
    lines = [b"nonsense"] * 5 + [b'{"op":"del_vertex","id":1.5}'] * 90 + [b'{"op":"del_vertex","id":"a"}'] * 200
    parser = Parser(Features(WIDTH))
    events, letters = parser.parse_jsonl(b"\n".join([*lines, GOOD]), Origin())
    assert (len(events), len(letters), parser.id_kind) == (200, 96, "string")


def test_a_guard_names_the_line() -> None:
    large = [GOOD[:-1] + b',"junk":%s}' % number for number in (b"9" * 400, b"[-1.5E+400]", b"12e3456")]
    for line in (DEEP, GOOD[:-1] + b',"junk":NaN}', GOOD[:-1] + b',"junk":"\xff"}', b"5", *large):
        text, end = Text.of_lines(b"\n".join([GOOD, b"", VERTEX, line, GOOD]), 0)
        assert (len(text), end) == (4, 5)
        np.testing.assert_array_equal(odd_lines(text), [2])
    good = GOOD + b"\n" + VERTEX + b'\n{"a":["0e123","3e1456-e123","-12e345"],"b":1e-123,"c":2.5e+12,"d":3e99}'
    assert not len(odd_lines(Text.of_lines(good, 0)[0]))


def test_the_rules_have_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is known to look bad where a line is good; if one did, the lines would be judged one by one."""
    take = parse.take
    monkeypatch.setattr(parse, "take", lambda fields, *rest: take(fields._replace(op=fields.op | NO_OP), *rest))
    lines = b"\n".join([GOOD, VERTEX, b'{"op":"fly"}', GOOD])
    by_columns, one_by_one = (Parser(Features(WIDTH), "int", lines_min=few) for few in (1, 1 << 60))
    assert outcome(by_columns, lines) == outcome(one_by_one, lines)


def test_messages_that_are_refused_stand_among_the_others_and_are_no_blocks_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pa.table({"op": ["del_vertex"] * 2, "id": [8, 9]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    arrow, values = (
        sink.getvalue().to_pybytes(),
        [None, GOOD, b"\xff\xff\xff\xffno", b"nonsense\n" + VERTEX, None, None],
    )
    values = [*values, b"", arrow, None, GOOD + b"\n" + GOOD, None, b"nonsense", arrow, None]
    messages = [RawMessage(3 * k, value) for k, value in enumerate(values)]
    alone = [Parser(Features(WIDTH), "int").parse_messages([one], Origin(1, "topic", 2)) for one in messages]
    events, letters = Parser(Features(WIDTH), "int", lines_min=1).parse_messages(messages, Origin(1, "topic", 2))
    assert events.encode() == Events.concatenate([one for one, _ in alone]).encode()
    assert letters == [letter for _, some in alone for letter in some]
    parsed: list[int] = []
    parse_text = parse.LineParser.parse
    monkeypatch.setattr(
        parse.LineParser,
        "parse",
        lambda self, text, *place: (parsed.append(len(text)), parse_text(self, text, *place))[1],
    )
    Parser(Features(WIDTH), "int").parse_messages(
        [RawMessage(k, GOOD if k % 2 else None) for k in range(999)], Origin()
    )
    assert parsed == [499]
