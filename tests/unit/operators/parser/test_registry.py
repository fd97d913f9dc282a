"""Messages whose schemas are in a registry: what becomes of them, in the Parser and in `freshet check`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

from freshet.operators.parser.registry.avro import SchemaRefusedError, avro_decoder
from freshet.operators.parser.registry.decoder import Decoder
from freshet.operators.parser.registry.schema_registry import (
    RegisteredSchema,
    RegistryError,
    RegistryRefusalError,
    SchemaRegistry,
)
from freshet.schema import Features
from tests.support.graphs.shop_kinds import KINDS
from tests.support.kafka.debezium import MAPS, envelope, row
from tests.support.kafka.registry import RegistryServer, avro_message, framed, registry_server
from tests.support.malformed.kinds import REJECTED
from tests.support.stages.decoded import parse, registry_of

EDGE: dict[str, Any] = {
    "type": "record",
    "name": "Edge",
    "namespace": "shop",
    "fields": [
        {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": ["add_edge", "del_edge"]}},
        {"name": "src", "type": "long"},
        {"name": "dst", "type": ["null", "double", "string", "bytes"]},
        {"name": "weight", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
MAP = {"op": "op", "src": "src", "dst": "dst", "weight": "weight"}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


def edge(dst: Any = 2.0, weight: Any = None, op: str = "add_edge") -> dict[str, Any]:
    return {"op": op, "src": 1, "dst": dst, "weight": weight, "ts": 0}


def test_avro(server: RegistryServer) -> None:
    """A whole float is an id, as in a column; a decimal is a number."""
    server.add(7, EDGE)
    found, letters = parse(
        server,
        "avro",
        avro_message(7, EDGE, edge(weight=Decimal("2.50"))),
        avro_message(7, EDGE, edge(op="del_edge")),
        avro_message(7, EDGE, edge(2.5)),
        avro_message(7, EDGE, edge("b")),
        avro_message(7, EDGE, edge(b"\xff")),
        avro_message(7, EDGE, edge(None)),
    )
    assert found == [("add_edge", 1, 2, 2.5), ("del_edge", 1, 2, 1.0)]
    assert [letter.error.partition(", got")[0] for letter in letters] == [
        "dst: expected an integer",
        "dst: expected an integer like the job's other ids",
        "dst: expected an integer",
        "dst: missing",
    ]
    assert letters[2].error.endswith("got a value of type bytes")
    assert server.asked.count("/schemas/ids/7") == 2, "once for the Parser, once for the check"


def test_kinds_of_vertices_and_relations(server: RegistryServer) -> None:
    names = ["null", "string"]
    some = {"op": "string", "id": ["null", "long"], "x": ["null", {"type": "array", "items": "float"}]}
    some |= {"src": ["null", "long"], "dst": ["null", "long"], "attr": ["null", {"type": "array", "items": "double"}]}
    named = dict.fromkeys(("kind", "type", "src_kind", "dst_kind"), names)
    schema = {"type": "record", "name": "Any", "fields": [{"name": k, "type": t} for k, t in (some | named).items()]}
    server.add(9, schema)
    empty = dict.fromkeys((*some, *named))
    good = [
        {"op": "add_vertex", "id": 1, "kind": "item", "x": [1, 2, 3]},
        {"op": "add_edge", "src": 1, "dst": 2, "type": "buys", "attr": [1, 2]},
        {"op": "del_edge", "src": 1, "dst": 2, "type": "rates", "src_kind": "user", "dst_kind": "shop"},
    ]
    bad = [
        (one, why) for one, why in REJECTED if all(value is None or type(value) is not bool for value in one.values())
    ]
    fitting = [(one, why) for one, why in bad if _fits(schema, empty | one)]
    assert len(fitting) > 20
    values = [avro_message(9, schema, empty | one) for one in [*good, *(one for one, _ in fitting)]]
    found, letters = parse(server, "avro", *values, features=Features.of_kinds(KINDS))
    assert [one[:3] for one in found] == [("add_vertex", 1, 0), ("add_edge", 1, 2), ("del_edge", 1, 2)]
    assert all(letter.error.startswith(why) for letter, (_, why) in zip(letters, fitting, strict=True)), letters


def _fits(schema: Any, record: dict[str, Any]) -> bool:
    try:
        return bool(avro_message(9, schema, record))
    except (ValueError, TypeError):
        return False


def test_what_is_no_message_of_the_registry(server: RegistryServer) -> None:
    """Each is one letter with the message as it came."""
    server.add(7, EDGE)
    server.add(8, {"type": "enum"})
    good = avro_message(7, EDGE, edge())
    values = [good, b"", b'{"op":"add_edge"}', good[:-1], good + b"\0", framed(99, b"x"), framed(8, b"x"), None]
    found, letters = parse(server, "avro", *values)
    assert len(found) == 1
    assert [letter.raw for letter in letters] == [value or b"" for value in values[1:]]
    assert [letter.error[:38] for letter in letters] == [
        "not in the registry's wire format: exp",
        "not in the registry's wire format: exp",
        "not avro of its schema, got EOFError (",
        "not avro of its schema, got ValueError",
        "schema: not in the registry, got id 99",
        "schema: can't be used, got id 8: no Av",
        "no value: a tombstone is no event",
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "null"}, "a list of values that take no bytes"),
        (
            {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]},
            "the type A is within itself",
        ),
        ({"type": "array", "items": {"type": "record", "name": "A", "fields": []}}, "a list of values that take no"),
        ({"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}}, "a list of"),
    ],
)
def test_schemas_by_which_a_few_bytes_were_a_large_record(schema: Any, why: str) -> None:
    with pytest.raises(SchemaRefusedError, match=why):
        avro_decoder([RegisteredSchema("", orjson.dumps(schema).decode())])


def test_a_type_of_very_many_fields_is_refused() -> None:
    """Each level has ten of the next one, in a kilobyte of schema."""
    kind: Any = "null"
    for level in range(8):
        first = {"type": "record", "name": f"L{level}", "fields": [{"name": "f0", "type": kind}]}
        again = kind["name"] if isinstance(kind, dict) else kind
        first["fields"] += [{"name": f"f{k}", "type": again} for k in range(1, 10)]
        kind = first
    with pytest.raises(SchemaRefusedError, match="more than 65,536 values"):
        avro_decoder([RegisteredSchema("", orjson.dumps(kind).decode())])


def test_lengths_that_are_lies(server: RegistryServer) -> None:
    """A text of 2^60 bytes, a list of as many values."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "op", "type": "string"}]}
    many = {"type": "record", "name": "M", "fields": [{"name": "x", "type": {"type": "array", "items": "float"}}]}
    server.add(1, schema)
    server.add(2, many)
    length = b"\x80\x80\x80\x80\x80\x80\x80\x80\x20"
    found, letters = parse(server, "avro", framed(1, length + b"abc"), framed(2, length + b"\0" * 64))
    assert not found
    assert all(letter.error.startswith("not avro of its schema") for letter in letters)


def test_a_schema_that_refers_to_another(server: RegistryServer) -> None:
    pair = {
        "type": "record",
        "name": "shop.Pair",
        "fields": [{"name": name, "type": "long"} for name in ("src", "dst")],
    }
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "pair", "type": "shop.Pair"}]}
    server.versions["/pair-value/versions/3"] = {"schema": orjson.dumps(pair).decode()}
    server.add(5, outer, [{"name": "shop.Pair", "subject": "pair-value", "version": 3}])
    maps = {"op": "`add_edge`", "src": "pair.src", "dst": "pair.dst"}
    whole = {**outer, "fields": [{"name": "pair", "type": pair}]}
    found, letters = parse(server, "avro", avro_message(5, whole, {"pair": {"src": 4, "dst": 5}}), maps=maps)
    assert (found, letters) == ([("add_edge", 4, 5, 1.0)], [])


def test_changes_of_a_table_in_json_schema(server: RegistryServer) -> None:
    """The JSON stands behind the id, and is judged as JSON: 7.0 is no id."""
    values = [envelope("u", row(1, 2), row(1, 3)), envelope("c", None, row(1.0, 2))]
    found, letters = parse(server, "json-schema", *(framed(1, orjson.dumps(one)) for one in values), maps=MAPS)
    assert [one[:3] for one in found] == [("del_edge", 1, 2), ("add_edge", 1, 3)]
    assert [letter.error[:13] for letter in letters] == ["src: expected"]
    assert not [path for path in server.asked if path.startswith("/schemas")]


def proto() -> descriptor_pb2.FileDescriptorProto:
    """syntax = "proto3"; message Other {message Edge {...}}, with a wrapper of protobuf's own."""
    file = descriptor_pb2.FileDescriptorProto(name="edge.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    file.message_type.add(name="First")
    nested = file.message_type.add(name="Other").nested_type.add(name="Edge")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = [
        ("op", kinds.TYPE_STRING),
        ("src", kinds.TYPE_INT64),
        ("dst", kinds.TYPE_DOUBLE),
        ("key", kinds.TYPE_BYTES),
    ]
    for number, (name, kind) in enumerate(fields, 1):
        nested.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    weight = nested.field.add(name="weight", number=5, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
    weight.type_name = ".google.protobuf.DoubleValue"
    attr = nested.field.add(name="attr", number=6, type=kinds.TYPE_FLOAT, label=kinds.LABEL_REPEATED)
    attr.json_name = "attr"
    return file


def test_protobuf(server: RegistryServer) -> None:
    """The second type of the file, nested in it; a field that is not set and knows it is absent."""
    file = proto()
    server.add(3, base64.b64encode(file.SerializeToString()).decode())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    edge_of = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Other.Edge"))
    one = edge_of(op="add_edge", src=2**60, dst=3.0, attr=[1.0, 2.0])
    one.weight.value = 0.5
    indexes = b"\x04\x02\x00"  # two of them: 1, 0
    maps = {**MAP, "weight": "weight.value", "attr": "attr"}
    bad = edge_of(op="add_edge", src=1, dst=2.5)
    found, letters = parse(
        server,
        "protobuf",
        framed(3, indexes + one.SerializeToString()),
        framed(3, indexes + edge_of(op="del_edge", src=1, dst=2).SerializeToString()),
        framed(3, indexes + bad.SerializeToString()),
        framed(3, b"\x00"),  # First, which has no field
        framed(3, b"\x04\x02\x09"),
        framed(3, b"\xff" * 20),
        framed(3, indexes + b"\xff\xff"),
        maps=maps,
    )
    assert found == [("add_edge", 2**60, 3, 0.5), ("del_edge", 1, 2, 1.0)]
    assert [letter.error[:40] for letter in letters[:2]] == [
        "dst: expected an integer, got the number",
        "op: missing: events_map `op` gives null",
    ]
    assert [letter.error[:31] for letter in letters[2:]] == ["not protobuf of its schema, got"] * 3
    assert "/schemas/ids/3?format=serialized" in server.asked


def test_a_registry_that_is_away_makes_no_letters(server: RegistryServer) -> None:
    """The record waits for it; one that stays away, or refuses the login, ends the job."""
    server.add(7, EDGE)
    server.status, pauses = 503, list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        server.status = 503 if len(pauses) < 3 else 0

    decoder = Decoder("avro", registry_of(server, pause=pause))
    assert decoder.decode(avro_message(7, EDGE, edge())).record["src"] == 1
    assert len(pauses) == 3
    with pytest.raises(
        RegistryRefusalError, match=r"refuses /schemas/ids/7 \(HTTP status 401\); check address and login"
    ):
        SchemaRegistry(server.url, {}).schemas(7)
    server.status = 500
    with pytest.raises(RegistryRefusalError, match=r"does not answer \(HTTP status 500\)"):
        registry_of(server).check()
    server.status = 404
    with pytest.raises(RegistryRefusalError, match="answers /schemas/ids/7 not as a registry does; check the address"):
        registry_of(server).schemas(7)
    away = SchemaRegistry("http://127.0.0.1:1", {})
    away.patience_s = 0.0
    with pytest.raises(RegistryError, match="does not answer"):
        away.schemas(7)


def test_an_unknown_schema_is_asked_for_again_after_a_while(server: RegistryServer) -> None:
    now = 0.0
    decoder = Decoder("avro", registry_of(server), lambda: now)
    message = avro_message(7, EDGE, edge())
    assert decoder.decode(message).why == decoder.decode(message).why == "schema: not in the registry, got id 7"
    assert len(server.asked) == 1
    server.add(7, EDGE)
    now = 61.0
    assert decoder.decode(message).record["src"] == 1
