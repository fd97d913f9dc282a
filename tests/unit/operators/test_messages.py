"""Kafka messages to events: one event or many to a message, as JSON or Arrow, and what is wrong with the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.events import Events
from freshet.schema import Features

ORIGIN = Origin(2, "kafka://localhost:9092/events", 3)


def json_lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(map(orjson.dumps, rows))


def arrow(rows: Sequence[dict[str, Any]], batches: int = 1) -> bytes:
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=-(-len(rows) // batches))
    return sink.getvalue().to_pybytes()


def edge(src: int) -> dict[str, Any]:
    return {"op": "add_edge", "src": src, "dst": src + 1}


def parse(messages: Sequence[tuple[int, bytes | None]], parser: Parser | None = None) -> tuple[Events, list[Any]]:
    return (parser or Parser(Features(2))).parse_messages([RawMessage(*one) for one in messages], ORIGIN, 5.0)


def test_one_event_and_several_lines_and_an_arrow_stream() -> None:
    messages = [
        (10, json_lines(edge(1))),
        (11, json_lines(edge(2), edge(3)) + b"\n"),
        (14, arrow([edge(4), edge(5), edge(6)], batches=2)),
        (15, json_lines(edge(7))),
    ]
    events, letters = parse(messages)
    assert not letters
    assert events.a.to_list() == [1, 2, 3, 4, 5, 6, 7]
    assert events.position.tolist() == [11, 12, 12, 15, 15, 15, 16], "a message's events have its position"
    assert set(events.source.tolist()) == {2}
    assert set(events.partition.tolist()) == {3}
    assert (events.end_position, events.end_source, events.end_partition, events.arrival_ms) == (16, 2, 3, 5.0)


def test_features_of_several_formats_in_one_block() -> None:
    rows = [{"op": "add_vertex", "id": k, "x": [float(k), 0.5]} for k in range(5)]
    events, letters = parse([(0, json_lines(*rows[:2])), (1, arrow(rows[2:4])), (2, json_lines(rows[4]))])
    assert not letters
    assert events.x.matrix[events.x_row].tolist() == [row["x"] for row in rows]
    assert Events.decode(events.encode()).position.tolist() == events.position.tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "no value: a tombstone is no event"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\xff\xff\xff\xff", "not an Arrow IPC stream"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00garbage" * 40, "not an Arrow IPC stream"),
        (arrow([edge(1)])[:-60], "not an Arrow IPC stream"),
        (b'{"op":"add_edge"', "not JSON"),
        (b'{"op":"add_edge","src":1,"dst":NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"op":"' + b"x" * 3_000_000 + b'"}', "op: expected one of"),
        (b'[{"op":"del_vertex","id":1}]', "expected a JSON object, got a list"),
        (arrow([{"op": "nonsense", "id": 4}]), "op: expected one of"),
    ],
)
def test_bad_messages_are_set_aside(value: bytes | None, error: str) -> None:
    events, letters = parse([(7, json_lines(edge(1))), (8, value), (9, json_lines(edge(2)))])
    assert events.a.to_list() == [1, 2]
    assert events.position.tolist() == [8, 10]
    assert events.rejected == 1
    (letter,) = letters
    assert letter.error.startswith(error)
    assert (letter.source, letter.partition, letter.offset) == (ORIGIN.name, 3, 8)
    if value is not None and not value.startswith(b"\xff\xff\xff\xff\xff"):
        assert letter.raw == value or letter.error.startswith("op:")


def test_a_bad_line_leaves_the_message_s_other_lines() -> None:
    events, letters = parse([(900, json_lines(edge(1), {"op": "?"}, edge(2)) + b"\n\n  \nnonsense")])
    assert events.a.to_list() == [1, 2]
    assert events.position.tolist() == [901, 901]
    assert [letter.offset for letter in letters] == [900, 900]
    assert [letter.raw for letter in letters] == [b'{"op":"?"}', b"nonsense"]
    assert events.end_position == 901


def test_messages_without_an_event() -> None:
    events, letters = parse([(4, b""), (5, b"\n \n"), (9, b"nonsense")])
    assert len(events) == 0
    assert len(letters) == events.rejected == 1
    assert events.end_position == 10


def test_the_first_accepted_event_decides_the_kind_of_ids() -> None:
    parser = Parser(Features(2))
    strings = [{"op": "del_vertex", "id": "a"}, {"op": "del_vertex", "id": "b"}]
    messages = [(0, b"nonsense"), (1, arrow(strings[:1])), (2, json_lines(edge(1))), (3, json_lines(strings[1]))]
    events, letters = parse(messages, parser)
    assert parser.id_kind == "string"
    assert events.a.to_list() == ["a", "b"]
    assert [letter.offset for letter in letters] == [0, 2]


def test_events_map_takes_foreign_messages() -> None:
    parser = Parser(
        Features(2), events_map={"op": "`add_edge`", "src": "user.id", "dst": "merchant", "weight": "amount"}
    )
    rows = [{"user": {"id": k}, "merchant": 10 * k, "amount": 0.5} for k in range(4)]
    messages = [(0, json_lines(*rows[:2])), (1, arrow(rows[2:3])), (2, b"[1]"), (3, json_lines(rows[3]))]
    events, letters = parse(messages, parser)
    assert (events.a.to_list(), events.b.to_list()) == ([0, 1, 2, 3], [0, 10, 20, 30])
    assert events.values.weight.tolist() == [0.5] * 4
    assert [letter.offset for letter in letters] == [2]


def test_how_messages_are_put_together_changes_nothing() -> None:
    """One call or many, cut anywhere between messages: the same events at the same positions."""
    rng = random.Random(3)
    messages: list[tuple[int, bytes | None]] = []
    for offset in range(60):
        rows = [edge(rng.randrange(100)) for _ in range(rng.randint(1, 4))]
        odd = rng.choice([None, b"", b"nonsense", b"\xff\xff\xff\xff1"])
        messages.append((3 * offset, rng.choice([json_lines(*rows), json_lines(*rows), arrow(rows), odd])))
    whole, letters = parse(messages)
    assert letters
    pieces, begin = [], 0
    while begin < len(messages):
        end = begin + rng.randint(1, 9)
        pieces.append(parse(messages[begin:end]))
        begin = end
    together = Events.concatenate([events for events, _ in pieces])
    assert together.encode() == whole.encode()
    assert [letter for _, more in pieces for letter in more] == letters
