"""A stream of good events and malformed records, as Kafka messages, of which every record is known by its place.

Most messages hold one record; some hold several lines, bad ones between good ones, with blank lines among them; some
are Arrow tables with a bad row. Everything is drawn from the seed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from kafka import KafkaProducer

from freshet.job.dev.broker import Broker
from freshet.operators.parser.rejects import LETTERS_MAX
from freshet.partitioner.config import TYPES_MAX
from tests.drills.bad_graphs import BadGraph, OneKind
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.kafka.topics import make_topic
from tests.support.malformed.arrow import SCHEMA, rows_to_ipc
from tests.support.malformed.records import FLOOD, LINE, REFUSED, ROW, Way

HEAVY_SHARE, HEAVY_MAX = 1 / 1000, 30  # of the bad records, for each heavy way
SEVERAL = 0.05  # how often a message gets several records
SEVERAL_MAX = 20
BLANK = 0.002  # how often a message of blank lines comes before the next
FIRST = 10_000_000  # of vertices that the rest of the stream does not know
TYPE_FLOOD = Way("one type too many", lambda _: None, ("type: expected at most", "one more"), REFUSED)
NOTHING = b"null"  # among good events: one that the epochs count, but the Partitioner refuses
_FLUSH_BYTES = 32 << 20

Place = tuple[int, int]  # partition, offset


class TooFewError(ValueError):
    """There are more ways to be wrong than records that may be wrong."""


class Bad(NamedTuple):
    """A malformed record that was sent: how it is wrong, and a digest of what its dead letter must hold (None: of
    what Arrow makes of it, which we do not foretell). `records`: how many its one letter stands for.
    """

    way: Way
    digest: bytes | None
    records: int = 1


@dataclass
class Sent:
    """What stands in the topic.

    `good` has the events of each partition as JSON, in order; `bad` what is wrong at each place.
    """

    good: list[list[bytes]]
    ends: list[int]
    bad: dict[Place, list[Bad]] = field(default_factory=lambda: defaultdict(list))
    bytes: int = 0

    @property
    def rejected(self) -> int:
        """How many records are bad."""
        return sum(bad.records for place in self.bad.values() for bad in place)

    @property
    def events(self) -> int:
        """How many records there are."""
        good = sum(len(lines) - lines.count(NOTHING) for lines in self.good)
        return good + self.rejected


class Message(NamedTuple):
    """A message before it has a place: its value (None: a tombstone), and what it holds."""

    value: bytes | None
    good: list[bytes]
    bad: list[Bad]


def digest_of(raw: bytes, way: Way) -> bytes:
    """What a dead letter is told by: its bytes; of what was parsed already, in whatever order its fields stand."""
    if way.kind in (ROW, REFUSED):
        raw = json.dumps(json.loads(raw), sort_keys=True).encode()
    return hashlib.blake2b(raw, digest_size=16).digest()


def ways_for(count: int, rng: random.Random, ways: list[Way]) -> list[Way]:
    """So many ways in random order: each heavy one seldom, the others equally often, all at least once.

    Raises: TooFewError.
    """
    heavy = [way for way in ways if way.heavy]
    each = max(1, min(HEAVY_MAX, int(count * HEAVY_SHARE)))
    found = heavy * each
    light = [way for way in ways if not way.heavy]
    if count < len(found) + len(light):
        msg = f"expected at least {len(found) + len(light)} malformed records, one of each way, got {count}"
        raise TooFewError(msg)
    found += [light[k % len(light)] for k in range(count - len(found))]
    rng.shuffle(found)
    return found


class BadStream:
    """Draws the messages: `events` records, of which a share is malformed."""

    def __init__(
        self, events: int, share: float, seed: int, refused: bool = False, graph: BadGraph | None = None
    ) -> None:
        """`refused`: with edges at the end that only the Partitioner can tell to be wrong."""
        graph = graph or OneKind()
        self._refused = refused
        self._rng = random.Random(f"bad input {seed}")
        bad = round(events * share)
        self._ways = ways_for(bad, self._rng, graph.ways)
        self._left = events - bad
        self._good = graph.records(random.Random(f"good input {seed}"), events - bad)

    def messages(self) -> Iterator[Message]:
        """All messages, in order."""
        rng = self._rng
        while self._left or self._ways:
            if rng.random() < BLANK:
                yield Message(rng.choice([b"", b"\n", b" \r\n\t\n"]), [], [])
            lines, alone = self._lines(rng.randint(2, SEVERAL_MAX) if rng.random() < SEVERAL else 1)
            if lines:
                yield self._of_lines(lines)
            if alone is not None:
                yield self._alone(alone)
        if self._refused:
            yield _refused_message()

    def _lines(self, count: int) -> tuple[list[tuple[bytes, Way | None]], Way | None]:
        """Up to so many lines, each with its way if it is bad, and the way that ends them since it stands alone."""
        lines: list[tuple[bytes, Way | None]] = []
        while len(lines) < count and (self._left or self._ways):
            if self._rng.random() * (self._left + len(self._ways)) < self._left:
                lines.append((self._next_good(), None))
                continue
            way = self._ways.pop()
            if way.kind != LINE or way.heavy:
                return lines, way
            lines.append((way.make(self._rng), way))
        return lines, None

    def _next_good(self) -> bytes:
        self._left -= 1
        return orjson.dumps(next(self._good))

    def _of_lines(self, lines: list[tuple[bytes, Way | None]]) -> Message:
        good = [line for line, way in lines if way is None]
        bad = [Bad(way, digest_of(line, way)) for line, way in lines if way is not None]
        texts = [line for line, _ in lines]
        if len(texts) > 1:
            texts.insert(self._rng.randrange(len(texts)), self._rng.choice([b"", b"  ", b"\t\r"]))
        return Message(b"\n".join(texts), good, bad)

    def _alone(self, way: Way) -> Message:
        made = way.make(self._rng)
        if way.kind == FLOOD:
            value, records = made
            return Message(value, [], [*[Bad(way, None)] * LETTERS_MAX, Bad(way, None, records - LETTERS_MAX)])
        if way.kind != ROW:
            return Message(made, [], [Bad(way, digest_of(made or b"", way) if way.known_raw else None)])
        good = [self._next_good() for _ in range(min(self._left, self._rng.randint(1, 5)))]
        rows = [orjson.loads(line) for line in good]
        rows.insert(self._rng.randint(0, len(rows)), made)
        return Message(rows_to_ipc(rows), good, [Bad(way, digest_of(as_json(made), way))])


def _refused_message() -> Message:
    """One message, for between messages of other partitions there is no order: good edges first, then bad ones."""

    def edge(k: int, **fields: Any) -> bytes:
        attr = [k / 2] * EDGE_WIDTH
        return orjson.dumps({"op": "add_edge", "src": FIRST + k, "dst": FIRST + k % 100, "attr": attr, **fields})

    good = [edge(k + 100, type=f"type {k}") for k in range(TYPES_MAX)]
    bad = [edge(k, type=f"one more {k}") for k in range(100, 600)]
    letters = [Bad(TYPE_FLOOD, digest_of(line, TYPE_FLOOD)) for line in bad]
    return Message(b"\n".join([*good, *bad]), [*good, *[NOTHING] * len(bad)], letters)


def as_json(row: dict[str, Any]) -> bytes:
    """A row of a table as its dead letter shows it, NaN and all."""
    assert row.keys() <= set(SCHEMA.names)
    return json.dumps(row).encode()


def send(stream: BadStream, broker: Broker, topic: str, partitions: int, seed: int) -> Sent:
    """Write the messages to a new topic; each partition keeps their order.

    Raises: AssertionError when a message is not where it was meant to be.
    """
    rng = random.Random(f"partitions {seed}")
    make_topic(broker, topic, partitions)
    sent = Sent([[] for _ in range(partitions)], [0] * partitions)
    producer = KafkaProducer(
        bootstrap_servers=broker.address,
        acks="all",
        enable_idempotence=True,
        max_in_flight_requests_per_connection=1,
        max_request_size=64 << 20,
        batch_size=256 << 10,
        linger_ms=5,
        # kafka-python sums up what it writes and reads in Python (0.2 s a megabyte); of packed batches that is little
        compression_type="gzip",
    )
    pending, size = [], 0
    for value, good, bad in stream.messages():
        partition = rng.randrange(partitions)
        offset = sent.ends[partition]
        future = producer.send(topic, value, key=b"key" if value is None else None, partition=partition)
        sent.ends[partition] += 1
        sent.good[partition] += good
        size += len(value or b"")
        if bad:
            sent.bad[partition, offset] += bad
            pending.append((future, offset))
        if size >= _FLUSH_BYTES:
            sent.bytes += size
            size = _flush(producer, pending)
    sent.bytes += size
    _flush(producer, pending)
    producer.close()
    return sent


def _flush(producer: KafkaProducer, pending: list[tuple[Any, int]]) -> int:
    """Wait for what is under way; the broker's offsets must be those that we count."""
    producer.flush()
    for future, offset in pending:
        assert future.get(timeout=60).offset == offset
    pending.clear()
    return 0
