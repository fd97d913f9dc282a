"""A job driven by hand, served by all servers in this process."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from freshet import EmbeddingClient
from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.flight_server import EmbeddingFlights
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.http_server import make_app
from freshet.job.serving.doors.tokens import ServerTokens
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import HandJob

ANSWER_S = 60.0  # for an answer: this process may wait long for a core


class Served:
    """A job driven by hand, its follower, and all servers in this process."""

    def __init__(self, out: Path, kind: str, token: str | ServerTokens | None = None, link_head: object = None) -> None:
        self.hand = HandJob(out, kind, link_head=link_head)
        self.hand.apply(1, ({2: 1.0, 3: -2.0}, []), ({4: 3.0}, []))
        job = ServedJob.read(out)
        assert job is not None
        self.follower = Follower(job, out / "tables", 1 << 20)
        self.follower.start()
        self.lookup = Lookup(CurrentTable(out / "tables", JobHere.of(job)))
        self.health = Health(self.lookup, stale_after_s=60.0)  # more than this process ever waits for a core
        self.port = server_port()
        self.flights = EmbeddingFlights(f"grpc://127.0.0.1:{self.port}", self.lookup, self.health, token)
        self.http = TestClient(
            Front(self.health, token, make_app(self.lookup, self.health)), raise_server_exceptions=False
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.follower.run, args=(self._stop.is_set,))
        self._thread.start()
        self.until(1)

    def until(self, epoch: int) -> None:
        deadline = time.monotonic() + 300
        while self.lookup.table.epoch < epoch:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def client(self, way: str, **options: Any) -> EmbeddingClient:
        address = f"127.0.0.1:{self.port}" if way == "flight" else self.hand.out / "tables"
        return EmbeddingClient(address, **{"timeout": ANSWER_S, **options})

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.flights.shutdown()
        self.hand.close()
        self.follower.close(forget=True)


def key(served: Served, number: int) -> int | str:
    return f"v{number}" if served.hand.kind == "string" else number
