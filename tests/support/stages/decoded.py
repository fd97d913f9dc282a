"""Messages whose schemas are in a registry, as the Parser and `freshet check` take them."""

from __future__ import annotations

from typing import Any

from freshet.job.results.plain_kinds import PlainKindsRules
from freshet.job.results.plain_reader import message_records
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.messages import RawMessage
from freshet.operators.parser.registry.decoder import Decoder
from freshet.operators.parser.registry.schema_registry import SchemaRegistry
from freshet.partitioner.events import ALL_KEYS, NO_TS, OP_DEL_EDGES, OP_NAMES
from freshet.partitioner.times.units import MS, TsUnit
from freshet.schema import Features
from tests.support.kafka.registry import USER_INFO, RegistryServer

PLAIN, ORIGIN = Features(2), Origin(0, "topic", 3)


def registry_of(server: RegistryServer, **options: Any) -> SchemaRegistry:
    return SchemaRegistry(server.url, {"basic.auth.user.info": USER_INFO}, **options)


def parse(
    server: RegistryServer, kind: str, *values: bytes | None, maps: Any = None, features: Features = PLAIN
) -> tuple[list[tuple[Any, ...]], list[DeadLetter]]:
    """The events and letters of messages, which `freshet check` must judge in the same way."""
    messages = [RawMessage(10 + k, value) for k, value in enumerate(values)]
    parser = Parser(features, None, None, maps, decoder=Decoder(kind, registry_of(server)))
    events, letters = parser.parse_messages(messages, Origin(0, "topic", 3))
    rules = (PlainKindsRules if features.kinds else PlainRules)(features, None, None, maps)
    plain = list(message_records(messages, rules, Decoder(kind, registry_of(server))))
    a, b, ops = events.a.to_list(), events.b.to_list(), [OP_NAMES[op] for op in events.op.tolist()]
    found = list(zip(ops, a, b, events.values.weight.tolist(), strict=True))
    taken = [one.event for one in plain if one.event is not None]
    ids = [[end[1] if isinstance(end, tuple) else end or 0 for end in (one.a, one.b)] for one in taken]
    assert [(one.op, *ends, one.values[0]) for one, ends in zip(taken, ids, strict=True)] == found
    assert [one.position for one in plain if one.event is not None] == events.position.tolist()
    assert [one.position - 1 for one in plain if one.event is None] == [letter.offset for letter in letters]
    assert events.rejected == len(letters)
    return found, letters


def keyed(
    kind: str, messages: list[RawMessage], keys: KeyRules, maps: Any = None, server: RegistryServer | None = None
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The operation, ends and key of each event of edges, and the errors; `freshet check` takes the same."""

    def decoder() -> Decoder | None:
        return None if server is None else Decoder(kind, registry_of(server))

    field, of_keys = keys.field if keys.is_given else "", keys.kind
    events, letters = Parser(PLAIN, None, None, maps, decoder=decoder(), keys=keys).parse_messages(messages, ORIGIN)
    assert of_keys is not None, "which kind it is, check has from the job"
    rules = PlainRules(PLAIN, None, None, maps, edge_keys=of_keys, edge_key=field)
    plain = [one for one in message_records(messages, rules, decoder()) if not one.is_skipped]
    taken = [(one.event.op, one.event.a, one.event.b, one.event.key) for one in plain if one.event is not None]
    every = {number for number, op in enumerate(events.op.tolist()) if op == OP_DEL_EDGES}
    names = ["del_edge" if number in every else OP_NAMES[op] for number, op in enumerate(events.op.tolist())]
    found = [ALL_KEYS if number in every else events.key_of(number) for number in range(len(events))]
    rows = list(zip(names, events.a.to_list(), events.b.to_list(), found, strict=True))
    assert taken == rows
    assert [one.position - 1 for one in plain if one.event is None] == [letter.offset for letter in letters]
    return rows, [letter.error for letter in letters]


def times(server: RegistryServer, kind: str, *values: bytes, unit: TsUnit = MS, maps: Any = None) -> list[int | None]:
    """The `ts` of messages, in milliseconds, all of which are events; `freshet check` takes the same."""
    messages = [RawMessage(k, value) for k, value in enumerate(values)]
    parser = Parser(PLAIN, None, None, maps, decoder=Decoder(kind, registry_of(server)), ts_unit=unit)
    events, letters = parser.parse_messages(messages, Origin(0, "topic", 3))
    assert not letters, letters
    found = [None] * len(values) if events.ts is None else [None if ts == NO_TS else ts for ts in events.ts.tolist()]
    rules = PlainRules(PLAIN, None, None, maps, ts_unit=unit)
    plain = [one.event for one in message_records(messages, rules, Decoder(kind, registry_of(server)))]
    assert [one and one.ts for one in plain] == found
    return found
