"""Avro: which schemas can be read, and their values in binary form.

Values are read strictly: what the specification does not allow is an error. Avro's libraries take negative numbers of
enums' symbols and unions' branches, integers past their range and lengths that are lies. A record is one of a typed
table: what JSON does not have becomes a value that no field takes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from freshet.operators.parser.records import Foreign
from freshet.operators.parser.registry.schema_registry import RegisteredSchema
from freshet.partitioner.times.units import INSTANTS

Read = Callable[[bytes, int], tuple[Any, int]]
"""What reads a value of a message from a place on, and returns it with the place that follows."""

_DECIMAL_BYTES_MAX, _SCALE_MAX = 64, 1000
_INT_MAX, _LONG_BITS = 2**31 - 1, 64
_MOMENTS = {
    f"{local}timestamp-{name}": INSTANTS[unit]
    for local in ("", "local-")
    for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
}
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def reader_of(schema: Any, named: Mapping[str, Any], known: dict[str, Read] | None = None) -> Read:
    """Return what reads values of a schema that fastavro has parsed; `named` has the types that it refers to.

    The reader raises ValueError (or EOFError) for bytes that are no such value. `known` collects the readers of named
    types. Invariant: no type is within itself.
    """
    known = {} if known is None else known
    if isinstance(schema, list):
        return _union([reader_of(one, named, known) for one in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return reader_of(kind, named, known)
    if isinstance(schema, str):
        if kind in _PLAIN:
            return _PLAIN[kind]
        schema = named[kind]
    name = schema.get("name")
    if name in known:
        return known[name]
    found = _reader_of_type(schema, named, known)
    if name is not None:
        known[name] = found
    return found


def _reader_of_type(schema: Mapping[str, Any], named: Mapping[str, Any], known: dict[str, Read]) -> Read:
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error", "request"):
        return _record([(one["name"], reader_of(one["type"], named, known)) for one in schema["fields"]])
    if kind == "enum":
        return _enum(schema["symbols"])
    if kind == "array":
        return _array(reader_of(schema["items"], named, known))
    if kind == "map":
        return _map(reader_of(schema["values"], named, known))
    if kind in ("bytes", "fixed"):
        raw = _bytes if kind == "bytes" else _fixed(int(schema["size"]))
        return _opaque(raw, schema.get("scale", 0) if logical == "decimal" else None)
    return _instant(_MOMENTS[logical]) if kind == "long" and logical in _MOMENTS else _PLAIN[kind]


def _long(body: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(body):
            raise EOFError
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= _LONG_BITS:
            break
    if byte >= 0x80 or value >> _LONG_BITS:
        msg = "an integer past 64 bits"
        raise ValueError(msg)
    return (value >> 1) ^ -(value & 1), at


def _int(body: bytes, at: int) -> tuple[int, int]:
    value, end = _long(body, at)
    if not -_INT_MAX - 1 <= value <= _INT_MAX:
        msg = f"an int past 32 bits: {value}"
        raise ValueError(msg)
    return value, end


def _instant(kind: type[int]) -> Read:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        value, end = _long(body, at)
        return kind(value), end

    return read


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(body: bytes, at: int) -> tuple[bool, int]:
    if at >= len(body):
        raise EOFError
    if body[at] > 1:
        msg = f"a boolean of the byte {body[at]}"
        raise ValueError(msg)
    return body[at] == 1, at + 1


def _float(body: bytes, at: int) -> tuple[float, int]:
    _need(body, at, 4)
    return _FLOAT.unpack_from(body, at)[0], at + 4


def _double(body: bytes, at: int) -> tuple[float, int]:
    _need(body, at, 8)
    return _DOUBLE.unpack_from(body, at)[0], at + 8


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(body, at)
    _need(body, at, size)
    return body[at : at + size], at + size


def _string(body: bytes, at: int) -> tuple[str, int]:
    content, at = _bytes(body, at)
    return content.decode(), at


def _fixed(size: int) -> Read:
    def read(body: bytes, at: int) -> tuple[bytes, int]:
        _need(body, at, size)
        return body[at : at + size], at + size

    return read


def _need(body: bytes, at: int, size: int) -> None:
    if size < 0:
        msg = f"a length of {size}"
        raise ValueError(msg)
    if at + size > len(body):
        msg = f"expected {size} bytes, there are {len(body) - at}"
        raise EOFError(msg)


def _record(fields: Sequence[tuple[str, Read]]) -> Read:
    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, one in fields:
            record[name], at = one(body, at)
        return record, at

    return read


def _union(branches: Sequence[Read]) -> Read:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(body, at)
        return _chosen(branches, number, "branch")(body, at)

    return read


def _enum(symbols: Sequence[str]) -> Read:
    def read(body: bytes, at: int) -> tuple[str, int]:
        number, at = _int(body, at)
        return _chosen(symbols, number, "symbol"), at

    return read


def _chosen(some: Sequence[Any], number: int, what: str) -> Any:
    if not 0 <= number < len(some):
        msg = f"expected the number of a {what}, 0 to {len(some) - 1}, got {number}"
        raise ValueError(msg)
    return some[number]


def _array(item: Read) -> Read:
    def read(body: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []

        def take(at: int) -> int:
            value, at = item(body, at)
            found.append(value)
            return at

        return found, _blocks(body, at, take)

    return read


def _map(value_of: Read) -> Read:
    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}

        def take(at: int) -> int:
            key, at = _string(body, at)
            found[key], at = value_of(body, at)
            return at

        return found, _blocks(body, at, take)

    return read


def _blocks(body: bytes, at: int, take: Callable[[int], int]) -> int:
    """Read blocks of values up to the empty one; returns where they end. Each value takes a byte at least."""
    while True:
        count, at = _long(body, at)
        if not count:
            return at
        end = None
        if count < 0:  # with the size of the block
            size, at = _long(body, at)
            _need(body, at, size)
            count, end = -count, at + size
        for _ in range(count):
            at = take(at)
        if end is not None and at != end:
            msg = "a block of another size than it says"
            raise ValueError(msg)


def _opaque(read_bytes: Read, scale: Any) -> Read:
    """Bytes: a decimal of that scale as a number (None: it is none), else a value that no field takes."""
    fits = isinstance(scale, int) and 0 <= scale <= _SCALE_MAX

    def read(body: bytes, at: int) -> tuple[Any, int]:
        content, at = read_bytes(body, at)
        if not fits or len(content) > _DECIMAL_BYTES_MAX:
            return Foreign("a value of type bytes", content.decode("latin-1")), at
        exact = Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-scale)
        return int(exact) if exact == int(exact) else float(exact), at

    return read


_PLAIN: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _opaque(_bytes, None),
    "string": _string,
}


_VALUES_MAX = 1 << 16  # of a record whatever its bytes are
_SIZES = {"null": 0, "float": 4, "double": 8}
_SIZED = {"boolean", "int", "long", "bytes", "string"}
_RECORDS = {"record", "error", "request"}


class SchemaRefusedError(ValueError):
    """A schema by which no record can be read."""


def avro_decoder(schemas: Sequence[RegisteredSchema]) -> Callable[[bytes], Any]:
    """Return what reads records of the last schema; the others are those that it refers to.

    A few bytes never make a large record: of a schema where they could (lists of values that take no bytes, a type
    within itself), none is read.
    Raises: SchemaRefusedError.
    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        parsed: Any = None
        for one in schemas:
            parsed = fastavro.parse_schema(orjson.loads(one.text), named_schemas=named)
        _least(parsed, named, {}, ())
        read = reader_of(parsed, named)
    except SchemaRefusedError:
        raise
    except Exception as error:  # whatever stands in a registry
        msg = f"no Avro schema: {' '.join(str(error).split())[:200]}"
        raise SchemaRefusedError(msg) from error

    def decode(body: bytes) -> Any:
        record, end = read(body, 0)
        if end != len(body):
            msg = f"{len(body) - end} bytes too many"
            raise ValueError(msg)
        return record

    return decode


def _least(
    schema: Any, named: Mapping[str, Any], known: dict[str, tuple[int, int]], within: tuple[str, ...]
) -> tuple[int, int]:
    """The fewest bytes of a value, and how many values it then has.

    Raises: SchemaRefusedError.
    """
    if isinstance(schema, list):  # a number says which
        return 1, 1 + max((_least(one, named, known, within)[1] for one in schema), default=0)
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _least(kind, named, known, within)
    if kind in _SIZES or kind in _SIZED:
        return _SIZES.get(kind, 1), 1
    if isinstance(schema, str):
        return _least_of(kind, named[kind], named, known, within)
    if kind == "array":
        size, values = _least(schema["items"], named, known, within)
        if not size:
            msg = "a list of values that take no bytes"
            raise SchemaRefusedError(msg)
        return 1, values
    if kind == "map":
        return 1, _least(schema["values"], named, known, within)[1]
    return _least_of(schema["name"], schema, named, known, within)


def _least_of(
    name: str, schema: Any, named: Mapping[str, Any], known: dict[str, tuple[int, int]], within: tuple[str, ...]
) -> tuple[int, int]:
    if name in within:
        msg = f"the type {name} is within itself"
        raise SchemaRefusedError(msg)
    if name not in known:
        if schema["type"] == "fixed":
            known[name] = int(schema["size"]), 1
        elif schema["type"] == "enum":
            known[name] = 1, 1
        elif schema["type"] in _RECORDS:
            found = [_least(one["type"], named, known, (*within, name)) for one in schema["fields"]]
            known[name] = sum(size for size, _ in found), 1 + sum(values for _, values in found)
        else:
            msg = f"the type {schema['type']} is none of Avro"
            raise SchemaRefusedError(msg)
        if known[name][1] > _VALUES_MAX:
            msg = f"a record has more than {_VALUES_MAX:,} values"
            raise SchemaRefusedError(msg)
    return known[name]
