"""Records in Protobuf, as those of a typed table."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from freshet.log_lines import warn
from freshet.operators.parser.records import Foreign
from freshet.operators.parser.registry.avro import SchemaRefusedError
from freshet.operators.parser.registry.schema_registry import RegisteredSchema
from freshet.operators.parser.rules import KIND_FIELDS, with_integers
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, OP_NAMES
from freshet.partitioner.times.units import Timed, to_ms

_INDEXES_MAX = 32
_VARINT_BYTES_MAX = 10
_OWN = "google/protobuf/"
_TIMESTAMP = "google.protobuf.Timestamp"


_EMPTY: dict[str, Any] = {"attr": [], "type": "", **dict.fromkeys(KIND_FIELDS, "")}
_NO_PRESENCE = "ts", "weight"  # of event fields without presence, those in which zero is taken as never set


class Timestamp(Timed, dict[str, Any]):
    """A message of google.protobuf.Timestamp."""

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return to_ms(int(self["seconds"]), "s") + to_ms(int(self["nanos"]), "ns")


def without_empty(record: dict[str, Any], key_field: str) -> dict[str, Any]:
    """Return the same as `with_integers`, without empty fields: nobody can say whether these were set.

    So an empty string is no key, and neither are no bytes. 0 is one: payments may count from it.
    """
    for name, empty in _EMPTY.items():
        if record.get(name) == empty:
            del record[name]
    key = record.get(key_field)
    if (key.text if isinstance(key, Foreign) else key) == "":
        del record[key_field]
    if record.get("x") == [] and record.get("op") == OP_NAMES[OP_ADD_VERTEX]:
        del record["x"]
    return with_integers(record, key_field)


def without_zeros(record: dict[str, Any], key_field: str) -> dict[str, Any]:
    """Return the same as `without_empty`, of mapped records: a `ts` of 0 was never set, whatever it was made of."""
    if record.get("ts") == 0:
        del record["ts"]
    return without_empty(record, key_field)


def protobuf_decoder(schemas: Sequence[RegisteredSchema]) -> Callable[[bytes], Any]:
    """Return what reads messages of the last schema's types, from the numbers of the type on.

    Each schema is a file's descriptor in base64. Protobuf's own library bounds memory by the bytes and nesting to 100.
    Raises: SchemaRefusedError.
    """
    from google.protobuf import message_factory

    try:
        file = _pool_of(schemas)
    except Exception as error:  # whatever stands in a registry
        msg = f"no Protobuf descriptor: {' '.join(str(error).split())[:200]}"
        raise SchemaRefusedError(msg) from error
    classes: dict[tuple[int, ...], Any] = {}
    bare: dict[tuple[int, ...], list[str]] = {}  # fields whose 0 may be one that was never set
    warned: set[str] = set()

    def decode(body: bytes) -> Any:
        path, begin = _path(body)
        if path not in classes:
            types = list(file.message_types_by_name.values())
            found = types[path[0]]
            for number in path[1:]:
                found = list(found.nested_types)[number]
            classes[path] = message_factory.GetMessageClass(found)
            fields = {one.name: one for one in found.fields}
            bare[path] = [name for name in _NO_PRESENCE if name in fields and not fields[name].has_presence]
        message = classes[path]()
        message.ParseFromString(body[begin:])
        if not message.IsInitialized():
            msg = f"required fields are not set: {', '.join(message.FindInitializationErrors())}"
            raise ValueError(msg)
        return _without_unset(_as_row(message), bare[path], warned)

    return decode


def _without_unset(row: dict[str, Any], bare: Sequence[str], warned: set[str]) -> dict[str, Any]:
    """A row without the zeros of these fields. That it is so with weights is said once."""
    for name in bare:
        if row[name] == 0:
            del row[name]
            if name == "weight" and row.get("op") == OP_NAMES[OP_ADD_EDGE] and name not in warned:
                warned.add(name)
                warn(
                    "--format protobuf: the schema has weight without presence, so a weight of 0 is one that was never "
                    "set, and counts as 1; declare it `optional` to send weights of 0"
                )
    return row


def _pool_of(schemas: Sequence[RegisteredSchema]) -> Any:
    """The descriptor of the last file, in a pool of its own with those that it imports."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )

    pool = descriptor_pool.DescriptorPool()
    own = any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, type_pb2
    source_context = descriptor_pb2.FileDescriptorProto()
    type_pb2.DESCRIPTOR.dependencies[1].CopyToProto(source_context)
    known = {source_context.name: source_context}
    for module in (*own, wrappers_pb2):
        proto = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(proto)
        known[proto.name] = proto
    added: set[str] = set()

    def add(proto: Any) -> None:
        for name in proto.dependency:
            if name.startswith(_OWN) and name not in added:
                add(known[name])
        added.add(proto.name)
        pool.Add(proto)

    last = None
    for one in schemas:
        last = descriptor_pb2.FileDescriptorProto()
        last.ParseFromString(base64.b64decode(one.text, validate=True))
        last.name = one.name or "freshet-schema.proto"
        add(last)
    assert last is not None
    return pool.FindFileByName(last.name)


def _path(body: bytes) -> tuple[tuple[int, ...], int]:
    """The numbers that say which type of the file it is, from the outermost on, and where the message begins."""
    count, at = _varint(body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        msg = "no message indexes"
        raise ValueError(msg)
    path = []
    for _ in range(count):
        number, at = _varint(body, at)
        if number < 0:
            msg = "no message indexes"
            raise ValueError(msg)
        path.append(number)
    return tuple(path), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    value = 0
    for k, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + k + 1
    msg = "no message indexes"
    raise ValueError(msg)


def _as_row(message: Any) -> dict[str, Any]:
    """The fields of a message: those that know whether they are set, if they are; others with their value."""
    row = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.label != field.LABEL_REPEATED:
            row[field.name] = _value(field, value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            row[field.name] = {str(key): _value(kind, value[key]) for key in value}
        else:
            row[field.name] = [_value(field, one) for one in value]
    return row


def _value(field: Any, value: Any) -> Any:
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        if field.message_type.full_name == _TIMESTAMP:
            return Timestamp(seconds=value.seconds, nanos=value.nanos)
        return _as_row(value)
    if field.type == field.TYPE_ENUM:
        found = field.enum_type.values_by_number.get(value)
        return value if found is None else found.name
    return Foreign("a value of type bytes", value.decode("latin-1")) if field.type == field.TYPE_BYTES else value
