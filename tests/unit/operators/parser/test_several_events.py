"""Several events of a record (`events-map` as a list): what the Parser makes of it, and `freshet check`."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pytest

from freshet.job.results.plain_reader import message_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import reason_of
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.events import OP_NAMES, Events
from freshet.schema import Features
from tests.support.kafka.debezium import MAPS, changes, envelope, row

ORIGIN = Origin(0, "topic", 0)


class Key(NamedTuple):
    """A message without a value."""

    key: bytes | None


def rows_of(events: Events) -> list[tuple[Any, ...]]:
    a, b = events.a.to_list(), events.b.to_list()
    return [
        (OP_NAMES[op], src, dst, position)
        for op, src, dst, position in zip(events.op.tolist(), a, b, events.position.tolist(), strict=True)
    ]


def parse(*records: Any, id_kind: str | None = None, maps: Any = MAPS) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The events and the errors of messages, which `freshet check` must judge in the same way."""
    keys = [one.key if isinstance(one, Key) else None for one in records]
    values = [None if one is None or isinstance(one, Key) else orjson.dumps(one) for one in records]
    messages = [RawMessage(k, value, keys[k]) for k, value in enumerate(values)]
    events, letters = Parser(Features(2), id_kind, None, maps).parse_messages(messages, ORIGIN)
    judged = list(message_records(messages, PlainRules(Features(2), id_kind, None, maps)))
    plain = [one for one in judged if not one.is_skipped]
    assert events.tombstones == len(judged) - len(plain)
    none = "" if events.a.kind == "string" else 0
    taken = [(one.event.op, one.event.a, one.event.b or none, one.position) for one in plain if one.event is not None]
    assert taken == rows_of(events)
    assert [one.position - 1 for one in plain if one.event is None] == [letter.offset for letter in letters]
    for letter in letters if not any(keys) else ():
        assert orjson.loads(letter.raw) == records[letter.offset]
    return rows_of(events), [letter.error for letter in letters]


def test_the_changes_of_a_table() -> None:
    found, errors = parse(
        envelope("r", None, row(1, 2)),
        envelope("u", row(1, 2), row(1, 3)),
        envelope("d", row(1, 3), None, has_schema=True),
        None,
        {"op": "m"},
        envelope("c", None, row(5, 6)),
    )
    assert found == [
        ("add_edge", 1, 2, 1),
        ("del_edge", 1, 2, 2),
        ("add_edge", 1, 3, 2),
        ("del_edge", 1, 3, 3),
        ("add_edge", 5, 6, 6),
    ]
    assert not errors


@pytest.mark.parametrize("has_schema", [False, True])
def test_many_changes_are_judged_alike(has_schema: bool) -> None:
    records = changes(1, 500, has_schema)
    found, errors = parse(*records)
    assert len(found) > sum(record is not None for record in records)
    assert not errors


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (envelope("u", row(1, 2), row(1, "b")), "dst: expected an integer like"),
        (envelope("u", row(1, 2), row(1, None)), "dst: missing: events_map `(payload || @).after.merchant` gives null"),
        (envelope("u", row(1, 2), row(1, 2, float("1e300"))), "weight: "),
        (envelope("t"), "no map of events_map has a condition that holds"),
        ({}, "no map of events_map has a condition that holds"),
        ([1], "no map of events_map has a condition that holds"),
    ],
)
def test_a_record_is_rejected_as_a_whole(record: Any, why: str) -> None:
    found, (error,) = parse(record, envelope("c", None, row(5, 6)), id_kind="int")
    assert found == [("add_edge", 5, 6, 2)]
    assert error.startswith(why)


def test_a_rejected_record_does_not_decide_the_kind_of_ids() -> None:
    found, errors = parse(envelope("u", row("a", "b"), row("a", 7)), envelope("u", row(1, 2), row(1, 3)))
    assert [one[:3] for one in found] == [("del_edge", 1, 2), ("add_edge", 1, 3)]
    assert len(errors) == 1
    found, errors = parse(envelope("u", row("a", "b"), row("a", "c")))
    assert [one[:3] for one in found] == [("del_edge", "a", "b"), ("add_edge", "a", "c")]


def test_a_condition_that_does_not_apply() -> None:
    maps = [{"op": "`add_edge`", "src": "a", "dst": "b"}, {"when": "length(c) > `1`", "op": "`del_vertex`", "id": "a"}]
    found, (error,) = parse({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": "xy"}, {"a": 1, "b": 2, "c": ""}, maps=maps)
    assert error.startswith("when: events_map does not apply: ")
    assert found == [("add_edge", 1, 2, 2), ("del_vertex", 1, 0, 2), ("add_edge", 1, 2, 3)]


def test_what_is_true_is_judged_alike() -> None:
    maps = [{"when": "a", "op": "`del_vertex`", "id": "b"}]
    values = [None, False, True, 0, 0.0, "", "x", [], [0], {}, {"a": None}]
    found, errors = parse(*({"a": value, "b": k} for k, value in enumerate(values)), maps=maps, id_kind="int")
    assert [one[1] for one in found] == [2, 3, 4, 6, 8, 10]
    assert len(errors) == 5


def test_rows_of_tables() -> None:
    """Whole floats are ids there, as in a single map."""
    maps = [{"op": "`del_edge`", "src": "a", "dst": "b"}, {"op": "`add_edge`", "src": "a", "dst": "c"}]
    table = pa.table({"a": [1.0, 2.0], "b": [5.0, 6.5], "c": [7, 8]})
    events, letters = Parser(Features(2), "int", None, maps).parse_table(table, ORIGIN)
    assert rows_of(events) == [("del_edge", 1, 5, 1), ("add_edge", 1, 7, 1)]
    assert [(letter.offset, letter.error[:13]) for letter in letters] == [(1, "dst: expected")]


@pytest.mark.parametrize(
    ("maps", "why"),
    [
        (["x"], "1: got str, expected a mapping"),
        ([MAPS[0], {}], "2: op: missing"),
        ([MAPS[0], {"when": "a"}, {"when": "a["}], r"3: when: 'a\[' is no JMESPath"),
        ([{"when": 5}], "1: when: 5 is no JMESPath expression: expected text"),
        ([{"when": "a", "op": "add_edge"}], "1: op: 'add_edge' is the field"),
        ([{"when": "a", "colour": "x"}], "1: expected fields among op"),
    ],
)
def test_maps_that_are_none(maps: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Parser(Features(2), events_map=maps)


def test_json_in_a_string_is_read_by_a_function_and_named_without_it() -> None:
    """As Debezium writes MongoDB's documents: `before` and `after` are strings."""
    maps = [
        {"when": "after", "op": "`add_edge`", "src": "after.customer", "dst": "after.merchants[0]"},
        {"when": "source.deleted", "op": "`del_vertex`", "id": "after"},
    ]
    text = orjson.dumps({"customer": 1, "merchants": [10, 11]}).decode()
    said = "src: missing: after is a string of JSON, so write from_json(after): events_map `after.customer` gives null"
    nothing_holds = "no map of events_map has a condition that holds"
    found, errors = parse(
        {"after": text}, {"after": ""}, {"after": None, "source": '{"deleted": true}'}, [1], maps=maps
    )
    assert not found
    assert errors == [
        said,
        nothing_holds,
        f"{nothing_holds}: source is a string of JSON, so write from_json(source)",
        f"{nothing_holds}: the record is a list, of which [0] is an element",
    ]
    read = [{name: one.replace("after.", "from_json(after).") for name, one in maps[0].items()}]
    found, errors = parse({"after": text}, {"after": "{"}, {"after": {"customer": 1}}, maps=read)
    assert found == [("add_edge", 1, 10, 1)]
    assert all(error.startswith("src: events_map does not apply: ") for error in errors)


def test_a_list_for_a_single_value_names_its_expression() -> None:
    maps = {"op": "`add_edge`", "src": "order", "dst": "items[].sku"}
    said = "got a list: events_map `items[].sku`: a map makes one event; take an element, as by [0]"
    assert parse({"order": 1, "items": [{"sku": 5}]}, maps=maps)[1] == [f"dst: expected an integer, {said}"]
    assert parse({"order": 1, "items": [{"sku": 5}]}, maps=maps | {"dst": "items[0].sku"})[0] == [("add_edge", 1, 5, 1)]


FLAGGED = [
    {"when": "__deleted", "op": "`del_edge`", "src": "customer", "dst": "merchant"},
    {"when": "!__deleted", "op": "`add_edge`", "src": "customer", "dst": "merchant"},
]


def test_the_text_false_is_false_in_what_decides() -> None:
    """Debezium's flattened records say `__deleted: "false"`, which JMESPath takes as true."""
    flags = ["false", "true", "False", False, True, None]
    records = [{"customer": k, "merchant": 9, "__deleted": flag} for k, flag in enumerate(flags, 1)]
    found, errors = parse(*records, maps=FLAGGED)
    ops = ["add_edge", "del_edge", "add_edge", "add_edge", "del_edge", "add_edge"]
    assert ([op for op, *_ in found], errors) == (ops, [])
    whole = {"op": "__deleted && 'del_edge' || 'add_edge'", "src": "customer", "dst": "merchant"}
    assert parse(*records, maps=whole) == (found, errors)


PLAIN = [
    {"when": "before", "op": "`del_edge`", "src": "before.customer", "dst": "before.merchant"},
    {"when": "after", "op": "`add_edge`", "src": "after.customer", "dst": "after.merchant"},
]
FULL = row(1, 10) | {"id": 5}
NIL = "00000000-0000-0000-0000-000000000000"
UNSENT = "before: null, but the map needs the old row: set REPLICA IDENTITY FULL"
ALONE = "before: a key, but the map needs the old row: set REPLICA IDENTITY FULL"


@pytest.mark.parametrize("maps", [PLAIN, MAPS])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("record", "why"),
    [
        (envelope("u", None, FULL), UNSENT),
        (envelope("d", None, None), UNSENT),
        (envelope("d", {"id": 5, "customer": None, "merchant": None, "amount": None}), ALONE),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0, "amount": 0.0}), ALONE),
        (envelope("d", {"id": 5, "customer": "", "merchant": "", "amount": 0}), ALONE),
        (envelope("d", {"id": 5, "bank": "x", "customer": 0, "merchant": 0, "amount": 0.0}), ALONE),
        (envelope("d", {"id": 5}), ALONE),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0, "amount": "0.00"}), ALONE),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0, "amount": "AA==", "paid": False}), ALONE),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0, "at": "1970-01-01T00:00:00Z"}), ALONE),
        (envelope("d", {"id": "a-7", "customer": NIL, "merchant": NIL, "amount": 0}), ALONE),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0}), ALONE),
        (envelope("u", {"id": 4, "customer": 0, "merchant": 0, "amount": 0.0}, FULL), ALONE),
        (envelope("d", {"customer": 7, "merchant": None, "amount": 0.0}), ALONE),
    ],
)
def test_an_old_row_that_was_not_sent_is_a_dead_letter(maps: Any, nested: bool, record: Any, why: str) -> None:
    if nested and maps is PLAIN:
        maps = [{name: one.replace("before", "payload.before") for name, one in PLAIN[0].items()}, *PLAIN[1:]]
    record = {"payload": record} if nested else record
    found, errors = parse(record, maps=maps)
    assert (found, [error[: len(why)] for error in errors]) == ([], [why])
    assert reason_of(errors[0]).startswith(why), "in the counts by reason, too"


@pytest.mark.parametrize(
    ("record", "ops"),
    [
        (envelope("d", {"id": 5, "customer": 0, "merchant": 10, "amount": 0.0}), ["del_edge"]),
        (envelope("d", {"id": 5, "customer": 1, "merchant": 0, "amount": 0.0}), ["del_edge"]),
        (envelope("d", {"id": 5, "customer": 0, "merchant": 0, "amount": 2.0}), ["del_edge"]),
        (envelope("d", {"customer": 0, "merchant": 0}), ["del_edge"]),
        (envelope("u", FULL, row(1, 11)), ["del_edge", "add_edge"]),
        (envelope("c", None, row(0, 0, 0.0)), ["add_edge"]),
        (envelope("d", row(0, 0, 0) | {"id": 5}) | {"source": {"connector": "mysql"}}, ["del_edge"]),
    ],
)
def test_an_old_row_that_was_sent_is_believed(record: Any, ops: list[str]) -> None:
    found, errors = parse(record, maps=PLAIN)
    assert ([op for op, *_ in found], errors) == (ops, [])


def test_old_rows_are_found_in_text_and_in_alternatives() -> None:
    texts = [
        {name: text.replace(side, f"from_json({side})") if name != "when" else text for name, text in one.items()}
        for one, side in zip(PLAIN, ("before", "after"), strict=True)
    ]
    new = orjson.dumps(FULL).decode()
    found, errors = parse(envelope("c", None, new), envelope("u", None, new), envelope("d"), maps=texts)
    assert ([one[:3] for one in found], len(errors)) == ([("add_edge", 1, 10)], 2)
    assert all(error.startswith(UNSENT) for error in errors)
    one_map = {"op": "op == 'd' && 'del_edge' || 'add_edge'", "src": "(after || before).customer"}
    one_map["dst"] = "(after || before).merchant"
    zeros = {"id": 5, "customer": 0, "merchant": 0, "amount": 0.0}
    found, errors = parse(envelope("u", None, FULL), envelope("d", zeros), envelope("d", FULL), maps=one_map)
    assert [one[:3] for one in found] == [("add_edge", 1, 10), ("del_edge", 1, 10)]
    assert [error.startswith(ALONE) for error in errors] == [True]


def test_null_in_a_row_that_is_sent_whole_is_no_key_alone() -> None:
    empty = envelope("u", FULL | {"merchant": None}, FULL) | {"source": {"connector": "mysql"}}
    assert parse(empty, maps=PLAIN) == ([], ["dst: missing: events_map `before.merchant` gives null"])


def test_what_needs_no_old_row_goes_without() -> None:
    vertices = [
        {"when": "before && !after", "op": "`del_vertex`", "id": "before.id"},
        {"when": "after", "op": "`add_vertex`", "id": "after.id"},
        {"when": "before && before.id != after.id && after", "op": "`del_vertex`", "id": "before.id"},
    ]
    edges = [PLAIN[0] | {"when": "op == 'd'"}, PLAIN[1]]
    assert parse(envelope("u", None, {"id": 7, "name": "x"}), maps=vertices)[1] == []
    assert parse(envelope("d", {"id": 0, "name": ""}), maps=vertices)[0] == [("del_vertex", 0, 0, 1)]
    assert parse(envelope("d", {"id": 0, "name": "bob", "age": 0}), maps=vertices)[1] == []
    assert parse(envelope("u", None, FULL), maps=edges)[0] == [("add_edge", 1, 10, 1)]
    moved = [PLAIN[0] | {"when": "before && before.customer != after.customer"}, PLAIN[1]]
    assert parse(envelope("u", None, FULL), maps=moved)[1][0].startswith(UNSENT)


@pytest.mark.parametrize("mark", [{"__deleted": "true"}, {"__op": "d"}])
def test_flattened_rows_of_a_key_alone_are_known(mark: dict[str, str]) -> None:
    maps = [FLAGGED[0] | {"when": "__deleted || __op == 'd'"}, FLAGGED[1] | {"when": "!__deleted && __op != 'd'"}]
    zeros = {"id": 5, "customer": 0, "merchant": 0, "amount": 0.0} | mark
    found, errors = parse(zeros, zeros | {"customer": 3}, zeros | {"customer": None}, maps=maps)
    assert ([row[:3] for row in found], len(errors)) == ([("del_edge", 3, 0)], 2)
    assert all(error.startswith(ALONE) for error in errors)


KEYED = [*FLAGGED, {"when": "__key", "op": "`del_vertex`", "id": "__key.id || __key"}]


def test_a_key_without_a_value_is_what_a_map_says() -> None:
    add = {"customer": 1, "merchant": 9}
    found, errors = parse(add, Key(b'{"id": 5}'), None, Key(b"7"), Key(b"null"), Key(b"\xff\x00"), add, maps=KEYED)
    assert [row[:2] for row in found] == [("add_edge", 1), ("del_vertex", 5), ("del_vertex", 7), ("add_edge", 1)]
    assert [error.partition(":")[0] for error in errors] == ["not UTF-8"]
    edges = [*FLAGGED, {"when": "__key", "op": "`del_edge`", "src": "__key.a", "dst": "__key.b"}]
    assert parse(Key(b'{\n"a": 1,\n"b": 2}'), maps=edges)[0] == [("del_edge", 1, 2, 1)]
    assert parse({"customer": "a", "merchant": "b"}, Key(b"user-7"), maps=KEYED)[0][1][:2] == ("del_vertex", "user-7")
    alone = {"op": "__key && 'del_vertex' || 'add_vertex'", "id": "__key || id"}
    assert [row[:2] for row in parse({"id": 3}, Key(b"4"), maps=alone)[0]] == [("add_vertex", 3), ("del_vertex", 4)]
    assert parse(Key(b"7"), Key(None), maps=alone)[1] == ["no value: a tombstone is no event"]


def test_tombstones_are_skipped_where_no_map_names_their_keys() -> None:
    assert parse(Key(b"7"), None, Key(b"8"), maps=FLAGGED) == ([], [])
    assert parse(Key(b"7"), {"op": "add_vertex", "id": 1}, maps=None) == (
        [("add_vertex", 1, 0, 2)],
        ["no value: a tombstone is no event"],
    )
