"""Models and events of a service's jobs in a drill: models of other widths and kinds, events at an even rate."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Producer

from freshet.gnn.model import save_model
from freshet.job.dev.broker import Broker
from freshet.kinds import Kinds
from tests.support.graphs import kind_streams, streams
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.graphs.models import IN_WIDTH, Spec, conv, linear, make_model

RETURNED = ("item", "user")
BATCH = 20  # events of a message
IDLE = 1  # partitions that get nothing
_RELU = {"type": "relu"}
_BODIES: tuple[tuple[Spec, ...], ...] = (
    (conv("sage_conv", IN_WIDTH, 8), _RELU, conv("gcn_conv", 8, 8)),
    (conv("gat_conv", IN_WIDTH, 8, heads=2), {"type": "elu"}, conv("sage_conv", 8, 12, aggr="max")),
    (conv("graph_conv", IN_WIDTH, 5), _RELU, conv("gin_conv", 5, 4)),
)
_WIDTHS = 8, 12, 4
_CLASSES = 4, 3, 5
MODELS = len(_BODIES)


def save_models(folder: Path, kinds: int) -> list[Path]:
    """Write all models, each with a head of one linear layer; with two kinds they return two."""
    found = []
    for number, (body, width, classes) in enumerate(zip(_BODIES, _WIDTHS, _CLASSES, strict=True)):
        found.append(folder / f"M{number + 1}")
        if kinds == 1:
            save_model(make_model(number, body, head=[linear(width, classes)]), found[-1])
            continue
        layers = [
            sage_everywhere(KINDS, 6, aggr=("max", "mean", "sum")[number]),
            sage_everywhere(dict.fromkeys(KINDS, 6), width),
        ]
        heads = {kind: [linear(width, classes + k)] for k, kind in enumerate(RETURNED)}
        save_model(kinds_model(layers, RETURNED, seed=number, heads=heads), found[-1])
    return found


def make_records(kinds: int, events: int, vertices: int, seed: int) -> list[dict[str, Any]]:
    """Events of all kinds."""
    if kinds == 1:
        return streams.random_records(random.Random(seed), events, IN_WIDTH, vertices=vertices)
    features = kinds_model([sage_everywhere(KINDS, 3)], RETURNED).features
    assert isinstance(features.kinds, Kinds)
    return kind_streams.random_records(features.kinds, seed, events)


def ids_of(records: Sequence[dict[str, Any]]) -> np.ndarray:
    """All ids that the events name."""
    return np.unique([one[name] for one in records for name in ("id", "src", "dst") if name in one]).astype(np.int64)


def messages_of(records: Sequence[dict[str, Any]], partitions: int) -> list[tuple[int, bytes]]:
    """Messages of some events each, with their partitions; the events of a destination keep their order."""
    waiting: list[list[bytes]] = [[] for _ in range(partitions)]
    found = []
    for record in records:
        lines = waiting[partition := (record["id"] if "id" in record else record["dst"]) % partitions]
        lines.append(orjson.dumps(record))
        if len(lines) == BATCH:
            found.append((partition, b"\n".join(lines)))
            lines.clear()
    return found


class Feed:
    """Sends messages at a rate, again from the first when all are sent, on a thread of its own."""

    def __init__(self, broker: Broker, topic: str, messages: list[tuple[int, bytes]], rate: float) -> None:
        """`rate`: events a second."""
        self.sent_ms: dict[int, list[float]] = {}  # by partition: when each of its messages was sent, by offset
        self._messages, self._topic, self._every_s = messages, topic, BATCH / rate
        self._producer: Producer | None = Producer({"bootstrap.servers": broker.address, "linger.ms": 1})
        self._stop, self._failed = threading.Event(), list[Any]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ends(self) -> dict[int, int]:
        """The next offset of each partition that has any."""
        return {partition: len(times) for partition, times in self.sent_ms.items()}

    def end(self) -> None:
        """Send no more, and wait until all is in the topic.

        Raises: AssertionError where it is not.
        """
        if self._producer is None:
            return
        self._stop.set()
        self._thread.join()
        left, self._producer = self._producer.flush(60), None  # or it would look for its broker for ever
        assert left == 0, f"{left} messages are not in the topic after 60 s"
        assert not self._failed, self._failed[:3]

    def _run(self) -> None:
        next_s, number, producer = time.monotonic(), 0, self._producer
        assert producer is not None
        while not self._stop.is_set():
            partition, value = self._messages[number % len(self._messages)]
            self.sent_ms.setdefault(partition, []).append(1e3 * time.time())
            producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            producer.poll(0)
            number, next_s = number + 1, max(next_s + self._every_s, time.monotonic() - 1.0)
            if (left_s := next_s - time.monotonic()) > 0:
                self._stop.wait(left_s)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed.append(error)
