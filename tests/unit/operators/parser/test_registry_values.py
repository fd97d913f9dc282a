"""Values of messages whose schemas are in a registry: times, fields that were never set, and damaged bytes."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from freshet.schema import Features
from tests.support.kafka.registry import RegistryServer, avro_message, framed, registry_server
from tests.support.stages.decoded import parse, times

T = 1_700_000_000_123
EVENT = {"op": "add_edge", "src": 1, "dst": 2}
_OF = descriptor_pb2.FieldDescriptorProto


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


def record(**fields: Any) -> dict[str, Any]:
    """The Avro schema of an edge, with further fields of these types."""
    every = {"op": "string", "src": "long", "dst": "long"} | fields
    return {"type": "record", "name": "Edge", "fields": [{"name": k, "type": t} for k, t in every.items()]}


def proto(server: RegistryServer, syntax: str = "proto3", **optional: bool) -> Any:
    """The class of a message with every field of events, as 3; `optional`: fields that know presence."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="shop", syntax=syntax)
    event = file.message_type.add(name="Event")
    kinds = {
        **dict.fromkeys(("op", "type"), _OF.TYPE_STRING),
        **dict.fromkeys(("id", "src", "dst", "ts"), _OF.TYPE_INT64),
        "weight": _OF.TYPE_DOUBLE,
        **dict.fromkeys(("x", "attr"), _OF.TYPE_FLOAT),
    }
    for number, (name, kind) in enumerate(kinds.items(), 1):
        label = _OF.LABEL_REPEATED if name in ("x", "attr") else _OF.LABEL_OPTIONAL
        if syntax == "proto2" and name == "op":
            label = _OF.LABEL_REQUIRED
        field = event.field.add(name=name, number=number, type=kind, label=label)
        if optional.get(name):
            field.oneof_index, field.proto3_optional = len(event.oneof_decl), True
            event.oneof_decl.add(name=f"_{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    server.add(3, base64.b64encode(file.SerializeToString()).decode())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))


def sent(*messages: Any) -> list[bytes]:
    return [framed(3, b"\x00" + one.SerializePartialToString()) for one in messages]


def test_fields_of_protobuf_that_were_never_set_are_absent(
    server: RegistryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without `optional` they have zero, no list and an empty text; an id may be 0."""
    event = proto(server)
    values = sent(
        event(op="add_vertex", id=0, x=[1, 2]),
        event(op="add_vertex", id=5),
        event(**EVENT),
        event(**EVENT, weight=2.5, ts=T, attr=[1, 2, 3]),
    )
    found, letters = parse(server, "protobuf", *values, features=Features(2, edge_width=3))
    assert not letters, letters
    assert found == [
        ("add_vertex", 0, 0, 1.0),
        ("add_vertex", 5, 0, 1.0),
        ("add_edge", 1, 2, 1.0),
        ("add_edge", 1, 2, 2.5),
    ]
    assert "a weight of 0 is one that was never set" in capfd.readouterr().err
    assert times(server, "protobuf", *values[:3]) == [None] * 3
    maps = {name: name for name in ("op", "id", "src", "dst", "x", "ts")}
    assert times(server, "protobuf", *values[:3], maps=maps) == [None] * 3


def test_a_field_of_protobuf_that_knows_its_presence_keeps_its_zero(server: RegistryServer) -> None:
    event = proto(server, ts=True, weight=True)
    values = sent(event(**EVENT, ts=0, weight=0), event(**EVENT))
    assert parse(server, "protobuf", *values)[0] == [("add_edge", 1, 2, 0.0), ("add_edge", 1, 2, 1.0)]
    assert times(server, "protobuf", *values) == [0, None]


def test_a_message_of_protobuf_without_a_required_field_is_a_letter(server: RegistryServer) -> None:
    event = proto(server, "proto2")
    found, (letter,) = parse(server, "protobuf", *sent(event(**EVENT, ts=0), event(src=1, dst=2)))
    assert len(found) == 1
    assert "required fields are not set: op" in letter.error
    assert times(server, "protobuf", *sent(event(**EVENT, ts=0), event(**EVENT))) == [0, None]


def test_a_timestamp_of_protobuf_is_taken_by_its_type(server: RegistryServer) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    event = file.message_type.add(name="Event")
    for number, (name, kind) in enumerate(
        (("op", _OF.TYPE_STRING), ("src", _OF.TYPE_INT64), ("dst", _OF.TYPE_INT64)), 1
    ):
        event.field.add(name=name, number=number, type=kind, label=_OF.LABEL_OPTIONAL)
    at = event.field.add(name="ts", number=4, type=_OF.TYPE_MESSAGE, label=_OF.LABEL_OPTIONAL)
    at.type_name = ".google.protobuf.Timestamp"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    server.add(3, base64.b64encode(file.SerializeToString()).decode())
    of = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))
    set_one, unset = of(**EVENT), of(**EVENT)
    set_one.ts.seconds, set_one.ts.nanos = T // 1000, 123_999_999
    assert times(server, "protobuf", *sent(set_one, unset), unit="s") == [T, None]


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("local", ["", "local-"])
@pytest.mark.parametrize(("kind", "parts"), [("millis", 1), ("micros", 1000), ("nanos", 1_000_000)])
def test_times_of_avro_are_taken_by_their_type(
    server: RegistryServer, kind: str, parts: int, local: str, unit: Any
) -> None:
    """Whatever the unit of integers is, also where they may be null, and behind a map; elsewhere they are numbers."""
    moment = {"type": "long", "logicalType": f"{local}timestamp-{kind}"}
    plain = record(ts=["null", "long"], weight="long")
    server.add(1, record(ts=["null", moment], weight=moment))
    values = [avro_message(1, plain, {**EVENT, "ts": ts, "weight": 7}) for ts in (T * parts + parts - 1, -1, None)]
    wanted = [T, -1, None]
    assert times(server, "avro", *values, unit=unit) == wanted
    maps = {"op": "op", "src": "src", "dst": "dst", "ts": "ts", "weight": "weight"}
    assert times(server, "avro", *values, unit=unit, maps=maps) == wanted
    assert parse(server, "avro", *values)[0] == [("add_edge", 1, 2, 7.0)] * 3


def test_integers_of_avro_are_of_the_jobs_unit(server: RegistryServer) -> None:
    server.add(1, record(ts="long"))
    assert times(server, "avro", avro_message(1, record(ts="long"), {**EVENT, "ts": T // 1000}), unit="s") == [
        T // 1000 * 1000
    ]
    moment = datetime.datetime(2023, 11, 14, tzinfo=datetime.UTC)
    schema = record(ts={"type": "long", "logicalType": "timestamp-micros"})
    server.add(2, schema)
    assert times(server, "avro", avro_message(2, schema, {**EVENT, "ts": moment})) == [int(moment.timestamp() * 1000)]


EDGE_BYTES = b"\x10add_edge\x02\x04"  # op, src 1, dst 2


@pytest.mark.parametrize(
    ("kind", "tail", "why"),
    [
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, b"\x01", "number of a symbol, 0 to 1, got -1"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, b"\x04", "number of a symbol, 0 to 1, got 2"),
        (["null", "long"], b"\x01", "number of a branch, 0 to 1, got -1"),
        (["null", "long"], b"\x03", "number of a branch, 0 to 1, got -2"),
        (["null", "long"], b"\x04\x00", "number of a branch, 0 to 1, got 2"),
        ("int", b"\x80\x80\x80\x80\x10", "an int past 32 bits: 2147483648"),
        ("int", b"\x81\x80\x80\x80\x10", "an int past 32 bits: -2147483649"),
        ("long", b"\xff" * 9 + b"\x02", "an integer past 64 bits"),
        ("long", b"\x80" * 10 + b"\x00", "an integer past 64 bits"),
        ("long", b"\x80", "EOFError"),
        ("boolean", b"\x02", "a boolean of the byte 2"),
        ("string", b"\x01", "a length of -1"),
        ("bytes", b"\x03ab", "a length of -2"),
        ("string", b"\x02\xff", "UnicodeDecodeError"),
        ("double", b"\x00" * 7, "expected 8 bytes, there are 7"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "expected 3 bytes, there are 2"),
        ({"type": "array", "items": "long"}, b"\x01\x06\x02\x00", "expected 3 bytes, there are 2"),
        ({"type": "array", "items": "long"}, b"\x03\x02\x02\x04\x00", "a block of another size than it says"),
        ({"type": "map", "values": "long"}, b"\x01\x08\x02a\x02\x00\x00", "a block of another size than it says"),
        ({"type": "array", "items": "long"}, b"\x02", "EOFError"),
    ],
)
def test_damaged_avro_is_a_letter(server: RegistryServer, kind: Any, tail: bytes, why: str) -> None:
    server.add(1, record(more=kind))
    found, (letter,) = parse(server, "avro", framed(1, EDGE_BYTES + tail))
    assert not found
    assert why in letter.error


@pytest.mark.parametrize(
    ("kind", "tail"),
    [
        ("int", b"\xfe\xff\xff\xff\x0f"),
        ("long", b"\xff" * 9 + b"\x01"),
        ("long", b"\x80\x00"),  # longer than it need be, which is allowed
        ({"type": "array", "items": "long"}, b"\x03\x04\x02\x04\x02\x06\x00"),
        ({"type": "map", "values": ["null", "long"]}, b"\x01\x08\x02a\x02\x02\x00"),
    ],
)
def test_whole_avro_is_taken(server: RegistryServer, kind: Any, tail: bytes) -> None:
    server.add(1, record(more=kind))
    assert parse(server, "avro", framed(1, EDGE_BYTES + tail)) == ([("add_edge", 1, 2, 1.0)], [])
