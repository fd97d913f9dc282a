"""Records in Avro, as those of a typed table."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from freshet.operators.parser.records import Foreign
from freshet.operators.parser.registry.schema_registry import RegisteredSchema

_DECIMAL = "freshet-decimal"
_DECIMAL_BYTES_MAX, _SCALE_MAX = 64, 1000
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
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS[f"bytes-{_DECIMAL}"] = LOGICAL_READERS[f"fixed-{_DECIMAL}"] = _decimal
    named: dict[str, Any] = {}
    try:
        parsed: Any = None
        for one in schemas:
            parsed = fastavro.parse_schema(_plain(orjson.loads(one.text)), named_schemas=named)
        _least(parsed, named, {}, ())
    except SchemaRefusedError:
        raise
    except Exception as error:  # whatever stands in a registry
        msg = f"no Avro schema: {' '.join(str(error).split())[:200]}"
        raise SchemaRefusedError(msg) from error

    def decode(body: bytes) -> Any:
        stream = io.BytesIO(body)
        record = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(body):
            msg = f"{len(body) - stream.tell()} bytes too many"
            raise ValueError(msg)
        return _as_row(record)

    return decode


def _plain(schema: Any) -> Any:
    """A schema without logical types, but for decimals: other values stay the numbers that they are."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _plain(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
    }
    logical = found.pop("logicalType", None)
    if logical == "decimal" and found.get("type") in ("bytes", "fixed"):
        found["logicalType"] = _DECIMAL
    return found


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


def _decimal(content: bytes, writer: Any = None, reader: Any = None) -> Any:
    scale = writer.get("scale", 0) if isinstance(writer, dict) else 0
    if len(content) > _DECIMAL_BYTES_MAX or not isinstance(scale, int) or not 0 <= scale <= _SCALE_MAX:
        return content
    value = int.from_bytes(content, "big", signed=True)
    exact = Decimal(value).scaleb(-scale)
    return int(exact) if exact == int(exact) else float(exact)


def _as_row(value: Any) -> Any:
    """A record with what JSON does not have as values that no field takes."""
    if isinstance(value, dict):
        return {name: _as_row(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_row(one) for one in value]
    return Foreign("a value of type bytes", value.decode("latin-1")) if isinstance(value, bytes) else value
