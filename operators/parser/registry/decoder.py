"""Decoding of messages in Confluent's wire format: a zero byte, the id of a schema in four, and the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from freshet.operators.parser.registry.avro import SchemaRefusedError, avro_decoder
from freshet.operators.parser.registry.protobuf import protobuf_decoder, without_empty, without_zeros
from freshet.operators.parser.registry.schema_registry import SchemaRegistry
from freshet.operators.parser.rules import Prepare, with_integers

AVRO, PROTOBUF, JSON_SCHEMA = FORMATS = ("avro", "protobuf", "json-schema")

_HEAD = 5
_SCHEMAS_MAX = 1000
_UNKNOWN_S = 60.0  # before a registry is asked again for what it did not have


class Decoded(NamedTuple):
    """A record, or why a message is none."""

    record: Any = None
    why: str | None = None


class Decoder:
    """Decodes messages of one format; schemas are fetched once.

    Raises: RegistryError where the registry does not answer, so that no record is rejected for that.
    """

    def __init__(
        self, message_format: str, registry: SchemaRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.format = message_format
        self._registry, self._clock = registry, clock
        self._known: dict[int, Callable[[bytes], Any] | str] = {}
        self._unknown: dict[int, float] = {}

    @property
    def is_typed(self) -> bool:
        """True if fields have types as the columns of a table, so that a whole float can be an id."""
        return self.format != JSON_SCHEMA

    def preparing(self, *, is_mapped: bool) -> Prepare:
        """Return what makes rows, once they are mapped, the fields of an event."""
        if self.format != PROTOBUF:
            return with_integers
        return without_zeros if is_mapped else without_empty

    def decode(self, message: bytes) -> Decoded:
        """Return the record of a message."""
        if len(message) < _HEAD or message[0]:
            return Decoded(why="not in the registry's wire format: expected a zero byte and the id of a schema")
        number, body = int.from_bytes(message[1:_HEAD], "big"), message[_HEAD:]
        decode = orjson.loads if self.format == JSON_SCHEMA else self._decoder(number)
        if decode is None:
            return Decoded(why=f"schema: not in the registry, got id {number}")
        if isinstance(decode, str):
            return Decoded(why=f"schema: can't be used, got id {number}: {decode}")
        try:
            return Decoded(decode(body))
        except Exception as error:  # foreign bytes fail in any way they like
            said = " ".join(str(error).split())[:200]
            return Decoded(why=f"not {self.format} of its schema, got {type(error).__name__} (id {number}): {said}")

    def _decoder(self, number: int) -> Callable[[bytes], Any] | str | None:
        if (known := self._known.get(number)) is not None:
            return known
        now = self._clock()
        if now < self._unknown.get(number, 0.0):
            return None
        schemas = self._registry.schemas(number, "serialized" if self.format == PROTOBUF else "")
        for cache in (self._known, self._unknown):
            if len(cache) >= _SCHEMAS_MAX:
                cache.clear()
        if schemas is None:
            self._unknown[number] = now + _UNKNOWN_S
            return None
        try:
            found: Callable[[bytes], Any] | str = _DECODERS[self.format](schemas)
        except SchemaRefusedError as error:
            found = str(error)
        self._known[number] = found
        return found


_DECODERS: Mapping[str, Callable[[Any], Callable[[bytes], Any]]] = {AVRO: avro_decoder, PROTOBUF: protobuf_decoder}


def decoder_of(message_format: str, url: str, login: Mapping[str, str]) -> Decoder | None:
    """Return the decoder of a job's messages; None where they need none."""
    return Decoder(message_format, SchemaRegistry(url, login)) if message_format else None
