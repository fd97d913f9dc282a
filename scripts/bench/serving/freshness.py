"""From a change of a vertex's features in Kafka to its new embedding at a client, for `bench_serve`.

Each probe has a vertex of its own without edges: its row changes by the probe's own events alone, so a row of a newer
epoch than before is the one that shows the change.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Producer

from freshet.job.serving.clients.client import EmbeddingClient

_FIRST_ID = 10_000_000  # past all of the stream's
_PAUSE_S = 0.1  # between two changes, at most twice that
_PATIENCE_S = 20.0
_LOOK_S = {"mapped": 0.0005, "flight": 0.001}


class Probe:
    """Changes its vertex again and again, and looks for the new row by one way, on a thread of its own."""

    def __init__(self, way: str, address: str, broker: str, topic: str, width: int) -> None:
        """`way` is flight or mapped; `width`: numbers of a vertex's features."""
        self.taken_ms: list[float] = []
        self.lost = 0
        self.way, self._width, self._topic = way, width, topic
        self._client = EmbeddingClient(address, timeout=_PATIENCE_S)
        self._producer = Producer({"bootstrap.servers": broker, "linger.ms": 0})
        self._ids = np.array([_FIRST_ID + (way == "flight")])
        self._rng = np.random.default_rng(self._ids[0])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> list[float]:
        """Milliseconds of each change, from just before it was sent; none may be lost."""
        self._stop.set()
        self._thread.join()
        self._client.close()
        del self._producer  # or it would look for its broker for ever
        if self.lost or not self.taken_ms:
            msg = f"{self.way}: {self.lost} changes were not seen in {_PATIENCE_S} s, {len(self.taken_ms)} were"
            raise RuntimeError(msg)
        return self.taken_ms

    def _run(self) -> None:
        epoch = self._change("add_vertex", -1)
        self.taken_ms.clear()
        while not self._stop.wait(self._rng.uniform(0, 2 * _PAUSE_S)):
            epoch = self._change("set_features", epoch)

    def _change(self, op: str, before: int) -> int:
        """Send an event and wait for its row; the row's epoch."""
        features = self._rng.normal(size=self._width).astype(np.float32).tolist()
        event: dict[str, Any] = {"op": op, "id": int(self._ids[0]), "x": features}
        message = orjson.dumps(event)
        began = time.perf_counter()
        self._producer.produce(self._topic, message, partition=0)
        self._producer.flush()
        while time.perf_counter() - began < _PATIENCE_S:
            _, epochs, _ = self._client.rows(self._ids)
            if len(epochs) and epochs[0] > before:
                self.taken_ms.append(1e3 * (time.perf_counter() - began))
                return int(epochs[0])
            time.sleep(_LOOK_S[self.way])
        self.lost += 1
        return before


def probes(addresses: dict[str, str], broker: str, topic: str, width: int) -> list[Probe]:
    """One by each way."""
    return [Probe(way, addresses[way], broker, topic, width) for way in ("flight", "mapped")]
