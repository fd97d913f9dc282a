"""Every rule of the interface's event section, as JSON Lines; tables are test_parser_tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.operators.parser.core import Parser
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.events import DEFAULT_TYPE, OP_NAMES, largest_ts
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN, REJECTED, as_rows, jsonl, table, the_same_as_jsonl

ACCEPTED: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 7, "x": [0.5, 1]},
    {"op": "add_vertex", "id": 8},
    {"op": "add_vertex", "id": 8, "x": None},
    {"op": "del_vertex", "id": -(2**63)},
    {"op": "set_features", "id": 2**63 - 1, "x": [3.4028234e38, -1e-46]},
    {"op": "add_edge", "src": 7, "dst": 9, "weight": 0.5, "type": "cites", "attr": [1, 2.5]},
    {"op": "add_edge", "src": 7, "dst": 7, "weight": 3},
    {"op": "add_edge", "src": 9, "dst": 7, "weight": None, "type": None, "attr": None, "ts": None},
    {"op": "add_edge", "src": 9, "dst": 7, "type": None, "ts": 1_700_000_000_000},
    {"op": "add_edge", "src": 9, "dst": 7, "type": "writes", "weight": -0.0},
    {"op": "del_edge", "src": 7, "dst": 9, "type": "cites"},
    {"op": "del_edge", "src": 7, "dst": 9, "unknown": 1},
    # fields that an event has no use for are ignored, whatever they hold
    {"op": "del_vertex", "id": 7, "x": [1, 2, 3], "weight": "heavy"},
    {"op": "del_edge", "src": 7, "dst": 9, "weight": "heavy", "attr": "none", "id": True},
    {"op": "set_features", "id": 1, "x": [1, 2], "src": 1.5, "type": 5},
    {"op": "del_vertex", "id": 7, "ts": -5},
    {"op": "add_edge", "src": 7, "dst": 9, "ts": 2**63 - 1},
    {"op": "set_features", "id": 7, "x": [1, 2], "ts": 1 - 2**63},
    {"op": "add_vertex", "id": 7, "ts": 0},
]
NOT_JSON = [
    (b"{", "not JSON"),
    (b"nonsense", "not JSON"),
    (b'{"op":"del_vertex","id":1} x', "not JSON"),
    (b'{"op":"del_vertex","id":1}{"op":"del_vertex","id":1}', "not JSON"),
    (b'{"op":"add_vertex","id":1,"x":[NaN,1]}', "not JSON"),
    (b'{"op":"add_vertex","id":1,"x":[1,Infinity]}', "not JSON"),
    (b'{"op":"add_edge","src":1,"dst":2,"weight":1e400}', "not JSON: number is infinity"),
    (b'{"op":"del_vertex","id":' + b"9" * 400 + b"}", "not JSON: number is infinity"),
    (b'{"op":"del_vertex","id":"\xff"}', "not UTF-8: invalid start byte at byte 25"),
    (b'{"op":"del_vertex","id":"\\ud800"}', "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'{"op":' + b"[" * 900 + b"]" * 900 + b"}", "op: expected a string, got a list"),
    (b"[]", "expected a JSON object, got a list"),
    (b"7", "expected a JSON object, got the integer 7"),
    (b'"op"', "expected a JSON object, got the string 'op'"),
    (b"null", "expected a JSON object, got null"),
    (b"true", "expected a JSON object, got the boolean true"),
]


def test_accepted_events() -> None:
    events, letters = Parser(Features(2)).parse_jsonl(jsonl(ACCEPTED), ORIGIN, first_line=10, arrival_ms=5.0)
    assert letters == []
    rows = as_rows(events)
    assert [row[6] for row in rows] == list(range(11, 11 + len(ACCEPTED)))
    assert rows[0][:6] == ("add_vertex", 7, 0, 1.0, DEFAULT_TYPE, [0.5, 1.0])
    assert [row[5] for row in rows[1:4]] == [None, None, None]
    assert rows[4][5] == [np.float32(3.4028234e38), 0.0]
    assert rows[5][:6] == ("add_edge", 7, 9, 0.5, "cites", None)
    assert [(row[3], row[4]) for row in rows[6:10]] == [(3, ""), (1, ""), (1, ""), (0, "writes")]
    assert rows[10][:5] == ("del_edge", 7, 9, 1.0, "cites")
    assert all(row[3] == 1 for row in rows[10:])
    assert [row[7] for row in rows[7:10]] == [None, 1_700_000_000_000, None]
    assert [row[7] for row in rows[-4:]] == [-5, 2**63 - 1, 1 - 2**63, 0]
    assert events.ts is not None
    assert largest_ts(events.ts, []) == 2**63 - 1
    assert (set(events.source.tolist()), set(events.partition.tolist())) == ({3}, {2})
    assert (events.end_source, events.end_partition, events.end_position) == (3, 2, 10 + len(ACCEPTED))
    assert (events.arrival_ms, events.types) == (5.0, (DEFAULT_TYPE, "cites", "writes"))


@pytest.mark.parametrize(("record", "reason"), REJECTED)
def test_a_rejected_record_is_set_aside_with_its_reason(record: dict[str, Any], reason: str) -> None:
    line = orjson.dumps(record)
    good = b'{"op":"del_vertex","id":1}'
    events, letters = Parser(Features(2), "int").parse_jsonl(b"\n".join([good, line, good]), ORIGIN, 40)
    assert len(letters) == 1
    assert reason in letters[0].error
    assert letters[0][1:5] == ("stream.jsonl", 2, 41, line)
    assert events.position.tolist() == [41, 43]
    assert events.reject_rows.tolist() == [1]


@pytest.mark.parametrize(("line", "reason"), NOT_JSON)
def test_what_is_no_json_object(line: bytes, reason: str) -> None:
    events, letters = Parser(Features(2)).parse_jsonl(line + b"\n", ORIGIN)
    assert len(events) == 0
    assert [(letter.offset, letter.raw) for letter in letters] == [(0, line)]
    assert reason in letters[0].error
    assert len(letters[0].error) < 200


def test_blank_lines_are_skipped_and_counted_as_lines() -> None:
    data = b'\n  \t\r\n{"op":"del_vertex","id":1}\r\n\n \n{"op":"del_vertex","id":2}\n\n'
    events, letters = Parser(Features(2)).parse_jsonl(data, ORIGIN)
    assert letters == []
    assert events.position.tolist() == [3, 6]
    assert events.end_position == 7


def test_duplicate_keys_are_fine() -> None:
    events, letters = Parser(Features(2)).parse_jsonl(b'{"op":"del_vertex","id":1,"id":2}', ORIGIN)
    assert (events.a.to_list(), letters) == ([2], [])


@pytest.mark.parametrize("first", [5, "five"])
def test_the_first_accepted_event_decides_the_kind_of_ids(first: int | str) -> None:
    other: int | str = "a" if first == 5 else 7
    rows = [
        {"op": "set_features", "id": other, "x": [1]},  # rejected for its width, so it decides nothing
        {"op": "add_edge", "src": first, "dst": other},
        {"op": "del_vertex", "id": first},
        {"op": "del_vertex", "id": other},
    ]
    parser = Parser(Features(2))
    assert parser.id_kind is None
    events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
    assert parser.id_kind == ("int" if first == 5 else "string")
    assert events.a.to_list() == [first]
    assert [letter.offset for letter in letters] == [0, 1, 3]
    assert "like the job's other ids" in letters[1].error


def test_types_of_a_typed_model_are_its_relation_index() -> None:
    rows = [
        {"op": "add_edge", "src": 1, "dst": 2, "type": "writes"},
        {"op": "add_edge", "src": 1, "dst": 2},
        {"op": "add_edge", "src": 1, "dst": 2, "type": "likes"},
        {"op": "del_edge", "src": 1, "dst": 2, "type": "cites"},
    ]
    events, letters = Parser(Features(2), edge_types=["cites", "writes"]).parse_jsonl(jsonl(rows), ORIGIN)
    assert events.etype.tolist() == [1, 0, 0]
    assert events.types == ("cites", "writes")
    assert [letter.error for letter in letters] == [
        "type: expected one of the model's edge types cites, writes, got the string 'likes'"
    ]
    the_same_as_jsonl(rows, table(rows), edge_types=["cites", "writes"])


def test_foreign_records_by_jmespath() -> None:
    mapping = {"op": "kind && 'add_edge'", "src": "user.id", "dst": "merchant", "weight": "to_number(amount)"}
    rows = [
        {"kind": 1, "user": {"id": 5}, "merchant": 6, "amount": "2.5", "type": 7, "op": "nonsense"},
        {"user": {"id": 5}},
        {"kind": 1, "user": "?", "merchant": 6},
    ]
    parser = Parser(Features(2), events_map=mapping)
    events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
    assert [row[:5] for row in as_rows(events)] == [("add_edge", 5, 6, 2.5, DEFAULT_TYPE)]
    assert [letter.error for letter in letters] == [
        "op: missing: events_map `kind && 'add_edge'` gives null",
        "src: missing: events_map `user.id` gives null",
    ]
    batch = pa.table({"kind": [1], "user": [{"id": 5}], "merchant": [6], "amount": ["2.5"]})
    events, letters = Parser(Features(2), events_map=mapping).parse_table(batch, ORIGIN)
    assert [row[:5] for row in as_rows(events)] == [("add_edge", 5, 6, 2.5, DEFAULT_TYPE)]


def test_an_expression_that_fails_rejects_the_record() -> None:
    parser = Parser(Features(2), events_map={"op": "`add_edge`", "src": "length(a)", "dst": "a"})
    events, letters = parser.parse_jsonl(jsonl([{"a": 5}, {"a": "b"}]), ORIGIN)
    assert len(events) == 0
    assert letters[0].error.startswith("src: events_map does not apply: ")
    assert "dst: expected" in letters[1].error


@pytest.mark.parametrize(
    ("mapping", "error"),
    [
        ({"source": "a"}, "got source"),
        ({"src": "a["}, "src: 'a\\['"),
        ({"src": 5}, "src: 5 is no JMESPath"),
        (
            {"op": "add_edge", "src": "a"},
            "'add_edge' is the field add_edge of a record; .* backquotes: \"`add_edge`",
        ),
        ({"op": '"del_edge"', "src": "a"}, "is the field del_edge of a record"),
        ({"op": "'fly'", "src": "a"}, "is always 'fly', expected one of add_vertex"),
        ({"src": "a", "dst": "b"}, "op: missing; give a field"),
    ],
)
def test_a_bad_map_is_refused(mapping: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Parser(Features(2), events_map=mapping)


def test_an_unknown_id_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'uuid'"):
        Parser(Features(2), "uuid")


def test_nothing_is_fine() -> None:
    for events, letters in [
        Parser(Features(2)).parse_jsonl(b"", ORIGIN, 4),
        Parser(Features(2)).parse_table(pa.table({}), ORIGIN, 4),
    ]:
        assert (len(events), letters, events.end_position, events.features) == (0, [], 4, Features(2))


FRAGMENTS = st.sampled_from(
    [
        *(b'{"op":"add_edge","src":1,"dst":2}', b'{"op":"add_vertex","id":1,"x":[1,2]}', b'"', b"{", b"}", b"[1,"),
        *(
            b'"op":',
            b'"add_edge"',
            b",",
            b"\\u",
            b"1e999",
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\r",
            b" ",
            b"\xed\xa0\x80",
        ),
    ]
)


@settings(max_examples=180, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.lists(FRAGMENTS, max_size=6).map(b"".join)), max_size=12))
def test_no_bytes_stop_the_parser(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    expected = data.split(b"\n")
    events, letters = Parser(Features(2)).parse_jsonl(data, ORIGIN, 50)
    taken = sorted([*(position - 1 for position in events.position.tolist()), *(letter.offset for letter in letters)])
    assert taken == [50 + k for k, line in enumerate(expected) if line.removeprefix(b"\xef\xbb\xbf").strip()]
    for letter in letters:
        assert letter.raw == expected[letter.offset - 50]
        assert letter.error
        assert orjson.loads(letter.to_json())["offset"] == letter.offset
    assert events.rejected == len(letters)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) - 1, 2**64) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


FIELD = st.sampled_from(["op", "id", "src", "dst", "x", "weight", "type", "attr", "ts", "other"])


@settings(max_examples=180, deadline=None)
@given(st.lists(st.dictionaries(FIELD, JSON | st.sampled_from(OP_NAMES), max_size=8), max_size=8))
def test_any_json_is_accepted_or_set_aside(rows: list[dict[str, Any]]) -> None:
    data = "\n".join(json.dumps(row) for row in rows).encode()
    events, letters = Parser(Features(2)).parse_jsonl(data, ORIGIN)
    assert len(events) + len(letters) == len(rows)
    assert np.isfinite(events.values.weight).all()
    assert np.isfinite(events.x.matrix).all()
    events.encode()


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (2**63, "int", "id: expected an integer within int64, got 9223372036854775808"),
        (2**64, "int", "id: expected an integer within int64, got 1.8446744073709552e+19"),
        (-(2**63) - 1, "int", "id: expected an integer within int64, got -9.223372036854776e+18"),
        (2**64, None, "id: expected an integer within int64, got 1.8446744073709552e+19"),
        (2**63, "string", "id: expected a string like the job's other ids, got the integer 9223372036854775808"),
        (2**64, "string", "id: expected a string, got the number 1.8446744073709552e+19"),
    ],
)
def test_integers_that_are_too_large_for_an_id_are_told_so(number: int, kind: str | None, reason: str) -> None:
    _, letters = Parser(Features(2), kind).parse_jsonl(b'{"op":"del_vertex","id":%d}' % number, ORIGIN)
    assert [letter.error for letter in letters] == [reason]


# -- ids and names have a length ---------------------------------------------------------------------------------------

LONG = [("x" * 1025, 1025), ("é" * 513, 1026), ("x" * 300_000, 300_000), ("😀" * 257, 1028)]


@pytest.mark.parametrize(("text", "size"), LONG)
def test_an_id_that_is_too_long_is_rejected(text: str, size: int) -> None:
    rows = [
        {"op": "add_vertex", "id": text},
        {"op": "del_vertex", "id": text},
        {"op": "add_edge", "src": text, "dst": "a"},
        {"op": "del_edge", "src": "a", "dst": text},
        {"op": "add_edge", "src": "a", "dst": "b", "type": text},
    ]
    for kind in (None, "string"):
        parser = Parser(Features(2), kind)
        events, letters = parser.parse_jsonl(jsonl(rows), ORIGIN)
        error = f"expected at most 1024 bytes, got {size}"
        fields = ["id", "id", "src", "dst", "type"]
        assert [letter.error for letter in letters] == [f"{field}: {error}" for field in fields]
        assert (len(events), events.rejected, parser.id_kind) == (0, 5, kind), "it decides nothing"


@pytest.mark.parametrize("text", ["x" * 1024, "é" * 512, "😀" * 256, ""])
def test_an_id_may_be_as_long_as_the_job_says(text: str) -> None:
    row = {"op": "add_edge", "src": text, "dst": text, "type": text or None}
    assert len(Parser(Features(2)).parse_jsonl(jsonl([row]), ORIGIN)[0]) == 1
    assert len(Parser(Features(2), id_bytes_max=1023).parse_jsonl(jsonl([row]), ORIGIN)[0]) == (not text)


def test_an_empty_type_is_no_type() -> None:
    rows = [{"op": op, "src": 1, "dst": 2, "type": ""} for op in ("add_edge", "del_edge")]
    _, letters = Parser(Features(2)).parse_jsonl(jsonl(rows), ORIGIN)
    assert [letter.error for letter in letters] == ["type: expected a name, got an empty string"] * 2
    _, letters = Parser(Features(2), edge_types=["a"]).parse_jsonl(jsonl(rows), ORIGIN)
    assert all("expected one of the model's edge types a, got" in letter.error for letter in letters)


def test_the_width_of_attr_goes_with_the_event() -> None:
    rows = [{"op": "add_edge", "src": 1, "dst": 2}, {"op": "add_edge", "src": 1, "dst": 2, "attr": [1, 2.5]}]
    rows += [{"op": "del_edge", "src": 1, "dst": 2, "attr": [1]}, {"op": "add_vertex", "id": 1, "attr": [1]}]
    events, letters = Parser(Features(2)).parse_jsonl(jsonl(rows), ORIGIN)
    assert not letters and events.values.attr_sizes is not None
    assert events.values.attr_sizes.tolist() == [-1, 2, -1, -1]
    assert Parser(Features(2)).parse_jsonl(jsonl(rows[:1]), ORIGIN)[0].values.attr_sizes is None


def test_a_message_of_bad_lines_has_a_thousand_letters_and_one_for_the_rest() -> None:
    good = b'{"op":"add_vertex","id":1}'
    messages = [RawMessage(7, b"\n".join([good, *[b"x"] * 5_000, good])), RawMessage(8, b"\n".join([b"y"] * 1_000))]
    events, letters = Parser(Features(2)).parse_messages(messages, ORIGIN)
    assert (len(events), events.rejected, len(letters)) == (2, 6_000, 2_001)
    rest = letters[1_000]
    assert (rest.offset, rest.records, rest.raw) == (7, 4_000, b"")
    assert rest.error == "the rest of a message with more than 1,000 bad records, got 4000"
    assert sum(letter.records for letter in letters) == 6_000
    _, letters = Parser(Features(2)).parse_jsonl(messages[0].value or b"", ORIGIN)
    assert len(letters) == 5_000, "each line of a file has its own place"
