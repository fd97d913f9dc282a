"""Clients that read again and again and count, for `bench_serve`."""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from typing import Any

import numpy as np
import orjson

from freshet.job.serving.clients.client import EmbeddingClient, Rows
from freshet.job.serving.tables.served import CurrentTable
from freshet.state.served.layout import T_PUBLISHED_US, T_READABLE_US
from scripts.bench.serving.oracle import Sample

# Of the answers of a reader one in so many is kept for the oracle, and so many at most, by the ids of a request: a
# hundred thousand in all, within half a gigabyte.
SAMPLED: dict[int | None, tuple[int, int]] = {1: (2, 80_000), 100: (2, 4_000), 10_000: (1, 40), None: (1, 3)}
_DRAWN, _DRAWN_IDS = 2048, 1 << 21
_LOOK_S = 0.004


class HttpClient:
    """Single lookups over one connection that stays open."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=10)

    def rows(self, ids: np.ndarray) -> Rows:
        """The row of one id."""
        self._connection.request("GET", f"/embeddings/{ids[0]}")
        told: dict[str, Any] = orjson.loads(self._connection.getresponse().read())
        if "embedding" not in told:
            return Rows.of(told["as_of"], ids[:0], np.empty(0, np.int64), np.empty((0, 0), np.float32))
        row = np.array([told["embedding"]], np.float32)
        return Rows.of(told["as_of"], ids, np.array([told["epoch"]]), row)

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()


class Reader:
    """A client and what it counts; `size`: ids a request, None for all of them."""

    def __init__(self, client: EmbeddingClient | HttpClient, vertices: int, size: int | None, seed: int) -> None:
        self.client, self._vertices, self.size = client, vertices, size
        self._rng = np.random.default_rng(seed)
        self.taken_s: list[float] = []
        self.seconds, self.rows, self.back = 0.0, 0, 0
        self.samples: deque[Sample] = deque(maxlen=SAMPLED[size][1])
        self._epoch = 0

    def turn(self, seconds: float) -> None:
        """Read for so long."""
        size = self.size or 1
        drawn = self._rng.integers(0, self._vertices, (min(_DRAWN, _DRAWN_IDS // size), size))
        every, _ = SAMPLED[self.size]
        read = self._all if self.size is None else self.client.rows
        began = now = time.perf_counter()
        while now - began < seconds:
            ids = drawn[len(self.taken_s) % len(drawn)]
            found = read(ids)
            after = time.perf_counter()
            self.taken_s.append(after - now)
            self.rows += len(found[0])
            self.back += found.epoch < self._epoch
            self._epoch = found.epoch
            if len(self.taken_s) % every == 0:
                asked = None if self.size is None else ids
                self.samples.append(Sample(found.epoch, asked, *found))
            now = time.perf_counter()
        self.seconds += now - began

    def _all(self, _: np.ndarray) -> Rows:
        assert isinstance(self.client, EmbeddingClient)
        table = self.client.all()
        vectors = table["embedding"].combine_chunks()
        flat = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)
        epoch = int(table.schema.metadata[b"epoch"])
        return Rows.of(epoch, table["id"].to_numpy(), table["epoch"].to_numpy(), flat)


def together(readers: list[Reader], seconds: float) -> None:
    """A turn of each at once."""
    threads = [threading.Thread(target=reader.turn, args=(seconds,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Readable:
    """Time from publishing an epoch to its being readable, polled in the table's header.

    Those that were published before somebody looked are left out: a server that has just started is behind.
    """

    def __init__(self, tables: Any) -> None:
        self._table, self.taken_ms = CurrentTable(tables), dict[int, float]()
        self._began_us = time.time_ns() // 1000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            table = self._table.served().table
            epoch, readable = table.epoch, table.word(T_READABLE_US)
            published = table.word(T_PUBLISHED_US)
            if published >= self._began_us and readable >= published and table.epoch == epoch:
                self.taken_ms.setdefault(epoch, (readable - published) / 1e3)

    def end(self) -> list[float]:
        """Stop and return the measured times."""
        self._stop.set()
        self._thread.join()
        return list(self.taken_ms.values())
