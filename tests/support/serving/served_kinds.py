"""A job of users, items and shops driven by hand, some of its kinds served by all servers in this process."""

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
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.together import follow
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup, joined
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.kinds_job import HandKinds
from tests.support.serving.served import ANSWER_S


class ServedKinds:
    """Followers of some kinds of a job, and all servers of them."""

    def __init__(self, hand: HandKinds, *kinds: str) -> None:
        self.tables, jobs = hand.out / "tables", [ServedJob.read(hand.out, kind) for kind in kinds]
        found = [job for job in jobs if job is not None]
        assert len(found) == len(kinds)
        self.followers = [Follower(job, job.log.tables, 1 << 20) for job in found]
        for one in self.followers:
            one.start()
        self.lookup = joined([Lookup(CurrentTable(job.log.tables, JobHere.of(job))) for job in found])
        self.health = Health(self.lookup, stale_after_s=60.0)
        self.port = server_port()
        self.flights = EmbeddingFlights(f"grpc://127.0.0.1:{self.port}", self.lookup, self.health)
        front = Front(self.health, None, make_app(self.lookup, self.health))
        self.http = TestClient(front, raise_server_exceptions=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=follow, args=(self.followers, self._stop.is_set))
        self._thread.start()
        self.until(1)

    def until(self, epoch: int) -> None:
        """Wait until all tables have come to an epoch."""
        deadline = time.monotonic() + 300
        while min(one.table.epoch for one in self.lookup.each) < epoch:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def client(self, way: str = "flight", **options: Any) -> EmbeddingClient:
        address = f"127.0.0.1:{self.port}" if way == "flight" else self.tables
        return EmbeddingClient(address, **{"timeout": ANSWER_S, **options})

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.flights.shutdown()
        for one in self.followers:
            one.close(forget=True)


def score_of(client: EmbeddingClient, *pairs: tuple[int, int], **more: Any) -> tuple[int, list[float | None], str]:
    """The epoch, the scores, and what they are of."""
    table = client.score(list(pairs), **more)
    metadata = table.schema.metadata
    assert list(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True)) == list(pairs)
    return int(metadata[b"epoch"]), table["score"].to_pylist(), metadata[b"scored_by"].decode()


def hand_kinds(out: Path, **more: Any) -> HandKinds:
    """A job with users 2 to 5, items 2 to 7 and a shop 2, at epoch 1."""
    hand = HandKinds(out, **more)
    hand.apply_kinds(1, user=dict.fromkeys(range(2, 6), 1.0), item={k: k / 2 for k in range(2, 8)}, shop={2: 1.0})
    return hand
