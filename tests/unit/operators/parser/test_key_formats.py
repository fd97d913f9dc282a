"""Keys of edges in changes of tables, Avro and Protobuf: which are taken, in the Parser and in `freshet check`."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.messages import RawMessage
from freshet.schema import Features
from tests.support.kafka.debezium import KEYED_MAPS, envelope, row
from tests.support.kafka.registry import RegistryServer, avro_message, framed, registry_server
from tests.support.stages.decoded import keyed

UUID_1 = UUID(int=1)
INT_WORDS, STRING_WORDS = "pay: expected an integer", "pay: expected a string"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


def raw(values: list[Any]) -> list[RawMessage]:
    return [RawMessage(k, None if one is None else orjson.dumps(one)) for k, one in enumerate(values)]


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_primary_key_is_the_key_of_the_edge(kind: str) -> None:
    """Rows that come, change, move and go, several for one pair: the edges that are left are the rows."""
    draw, rows, sent = random.Random(3), dict[Any, dict[str, Any]](), list[Any]()
    for _ in range(400):
        key: Any = draw.randrange(30) if kind == "int" else f"p{draw.randrange(30)}"
        before = rows.get(key)
        if before is not None and draw.random() < 0.3:
            del rows[key]
            sent += [envelope("d", before), None]
        else:
            rows[key] = {"id": key, **row(draw.randrange(3), 10 + draw.randrange(2), float(draw.randrange(9)))}
            sent.append(envelope("u" if before else "c", before, rows[key], has_schema=draw.random() < 0.5))
    found, errors = keyed("json", raw(sent), KeyRules("", kind), KEYED_MAPS)
    assert not errors
    edges = set[tuple[Any, ...]]()
    for op, *edge in found:
        (edges.add if op == "add_edge" else edges.remove)(tuple(edge))
    assert edges == {(one["customer"], one["merchant"], key) for key, one in rows.items()}
    assert len({edge[:2] for edge in edges}) < len(edges), "some are parallel"


def test_an_update_in_which_one_event_is_wrong_is_one_letter() -> None:
    values = [
        envelope("u", {"id": 1, **row(1, 2)}, {"id": "a", **row(1, 2)}),
        envelope("c", None, {"id": 5, **row(1, 2)}),
    ]
    keys = KeyRules("", None)
    keys.decide(1)
    found, errors = keyed("json", raw(values), keys, KEYED_MAPS)
    assert found == [("add_edge", 1, 2, 5)]
    assert errors == ["key: expected an integer like the job's other keys, got the string 'a'"]


def test_a_rejected_record_of_several_events_decides_nothing() -> None:
    wrong = {"a": 1, "b": 2, "k": "text", "x": 1.5}
    maps = [{"op": "`add_edge`", "src": "a", "dst": "b", "key": "k"}, {"op": "`add_edge`", "src": "a", "dst": "x"}]
    parser = Parser(Features(2), None, None, maps, keys=KeyRules("", None))
    parser.parse_messages(raw([wrong]), Origin())
    assert (parser.id_kind, parser.keys.kind) == (None, None)
    parser.parse_messages(raw([{**wrong, "x": 3, "k": 8}]), Origin())
    assert (parser.id_kind, parser.keys.kind) == ("int", "int")


AVRO_TYPES: dict[str, Any] = {
    "int": "int",
    "long": "long",
    "string": "string",
    "uuid": {"type": "string", "logicalType": "uuid"},
    "uuid16": {"type": "fixed", "size": 16, "name": "U", "logicalType": "uuid"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "boolean": "boolean",
    "double": "double",
    "bytes": "bytes",
    "time": {"type": "long", "logicalType": "timestamp-millis"},
    "null": "null",
}


@pytest.mark.parametrize(
    ("name", "value", "kind", "expected"),
    [
        ("int", 7, "int", 7),
        ("long", 2**62, "int", 2**62),
        ("long", 7, "string", "pay: expected a string like the job's other keys, got the integer 7"),
        ("string", "7", "string", "7"),
        ("string", "7", "int", "pay: expected an integer like the job's other keys, got the string '7'"),
        ("string", "", "string", "pay: expected a key, got an empty string"),
        ("string", "x" * 1025, "string", "pay: expected at most 1024 bytes, got 1025"),
        ("uuid", str(UUID_1), "string", str(UUID_1)),
        ("uuid16", UUID_1.bytes, "string", "pay: expected a string, got a value of type bytes"),
        ("decimal", Decimal("7.00"), "int", 7),
        ("decimal", Decimal("7.50"), "int", "pay: expected an integer, got the number 7.5"),
        ("boolean", True, "int", "pay: expected an integer, got the boolean true"),
        ("double", 7.0, "int", 7),
        ("double", 7.5, "int", "pay: expected an integer, got the number 7.5"),
        ("double", 1e300, "int", "pay: expected an integer above -2**63 and below 2**63, got 1e+300"),
        ("bytes", b"7", "string", "pay: expected a string, got a value of type bytes"),
        ("time", 7, "int", 7),
        ("null", None, "int", None),
    ],
)
def test_avro(server: RegistryServer, name: str, value: Any, kind: str, expected: Any) -> None:
    fields = {"op": "string", "src": "long", "dst": "long", "pay": AVRO_TYPES[name]}
    schema = {"type": "record", "name": "Edge", "fields": [{"name": one, "type": of} for one, of in fields.items()]}
    server.add(7, schema)
    message = avro_message(7, schema, {"op": "add_edge", "src": 1, "dst": 2, "pay": value})
    found, errors = keyed("avro", [RawMessage(4, message)], KeyRules("pay", kind), server=server)
    if isinstance(expected, str) and expected.startswith("pay: "):
        assert (found, errors) == ([], [expected])
    else:
        assert (found, errors) == ([("add_edge", 1, 2, expected)], [])
    maps = {"op": "op", "src": "src", "dst": "dst", "key": "pay"}
    again, more = keyed("avro", [RawMessage(4, message)], KeyRules("", kind), maps, server)
    assert (again, [one.replace("key: ", "pay: ") for one in more]) == (found, errors)


KINDS = descriptor_pb2.FieldDescriptorProto


def protobuf_messages(server: RegistryServer, kind: int, values: list[Any]) -> list[RawMessage]:
    """Edges with such a field `pay` without presence; None: it is not set."""
    file = descriptor_pb2.FileDescriptorProto(name="edge.proto", package="shop", syntax="proto3")
    edge = file.message_type.add(name="Edge")
    fields = [("op", KINDS.TYPE_STRING), ("src", KINDS.TYPE_INT64), ("dst", KINDS.TYPE_INT64), ("pay", kind)]
    for number, (name, of) in enumerate(fields, 1):
        edge.field.add(name=name, number=number, type=of, label=KINDS.LABEL_OPTIONAL)
    server.add(3, base64.b64encode(file.SerializeToString()).decode())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Edge"))
    ends = {"op": "add_edge", "src": 1, "dst": 2}
    found = [make(**ends) if value is None else make(**ends, pay=value) for value in values]
    return [RawMessage(k, framed(3, b"\x00" + one.SerializeToString())) for k, one in enumerate(found)]


@pytest.mark.parametrize(
    ("type_number", "kind", "values", "expected"),
    [
        (KINDS.TYPE_INT64, "int", [7, 0, None], [7, 0, 0]),
        (KINDS.TYPE_UINT64, "int", [7, 2**63], [7, "pay: expected an integer above -2**63 and below 2**63"]),
        (KINDS.TYPE_STRING, "string", ["a", "", None, "*"], ["a", None, None, "pay: '*' stands for all keys"]),
        (KINDS.TYPE_STRING, "int", ["7", ""], [INT_WORDS, None]),
        (KINDS.TYPE_BYTES, "string", [b"a", b"", None], [STRING_WORDS, None, None]),
        (KINDS.TYPE_BOOL, "int", [True], [INT_WORDS]),
        (KINDS.TYPE_DOUBLE, "int", [7.0, 7.5], [7, INT_WORDS]),
    ],
)
def test_protobuf(server: RegistryServer, type_number: int, kind: str, values: list[Any], expected: list[Any]) -> None:
    messages = protobuf_messages(server, type_number, values)
    for field, maps in (("pay", None), ("", {"op": "op", "src": "src", "dst": "dst", "key": "pay"})):
        found, errors = keyed("protobuf", messages, KeyRules(field, kind), maps, server)
        reasons = [one for one in expected if isinstance(one, str) and one.startswith("pay: ")]
        assert [key for *_, key in found] == [one for one in expected if one not in reasons]
        assert len(errors) == len(reasons)
        for error, words in zip(errors, reasons, strict=True):
            assert error.replace("key: ", "pay: ").startswith(words)


def test_a_field_that_is_never_set_makes_no_keys(server: RegistryServer) -> None:
    messages = protobuf_messages(server, KINDS.TYPE_STRING, [None, ""])
    assert keyed("protobuf", messages, KeyRules("", ""), server=server) == ([("add_edge", 1, 2, None)] * 2, [])
