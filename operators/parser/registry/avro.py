"""Avro's schemas: which can be read, and the reader of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from freshet.operators.parser.registry.avro_values import reader_of
from freshet.operators.parser.registry.schema_registry import RegisteredSchema

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
