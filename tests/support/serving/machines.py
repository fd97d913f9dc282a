"""Machines that share no folder, each with some of a job's tails, and servers of them in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.flight_server import EmbeddingFlights
from freshet.job.serving.feeds.fed_job import FedServers
from freshet.job.serving.feeds.merging_follower import MergingFollower
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from tests.support.serving.hand_job import HandJob


class Merging:
    """A server in this process; it listens before it has a table, as `freshet serve` does."""

    def __init__(
        self, tables: Path, at: str, others: list[str], own: ServedJob | None = None, kind: type = MergingFollower
    ) -> None:
        self._stop, self.tables, self.at = threading.Event(), tables, at
        sources = FedServers(others, "secret")
        self.job = own or sources.job(tables, self._stop.is_set, 20)
        self.lookup = Lookup(CurrentTable(tables, JobHere.of(self.job)))
        self.health = Health(self.lookup, stale_after_s=1.0)
        self.follower = kind(self.job, tables, sources, self._stop.is_set, 1 << 20)
        self.health.trouble = lambda: self.follower.trouble
        self.epochs: list[int] = []
        self.listen()
        self._threads = [threading.Thread(target=run) for run in (self._follow, self._look)]
        for thread in self._threads:
            thread.start()

    def listen(self) -> None:
        shared = self.lookup, self.health, "secret"
        self.flights = EmbeddingFlights(f"grpc://{self.at}", *shared)

    def _follow(self) -> None:
        self.follower.start(self._stop.is_set)
        self.follower.run(self._stop.is_set)

    def _look(self) -> None:
        while not self._stop.wait(0.002):
            with suppress(NotReadyError):
                self.epochs.append(self.lookup.table.epoch)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not self._true(condition):
            assert time.monotonic() < deadline, self.health.figures()
            time.sleep(0.005)

    def _true(self, condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except NotReadyError:
            return False

    def rows(self, epoch: int) -> dict[object, tuple[int, float]]:
        """All rows, as soon as it has that epoch."""
        self.until(lambda: self.lookup.table.epoch >= epoch)
        answer = self.lookup.all()
        assert answer.epoch == epoch
        ids = answer.ids.tolist() if isinstance(answer.ids, np.ndarray) else answer.ids.decode()
        return {id_: (own, row[0]) for id_, own, row in zip(ids, answer.epochs.tolist(), answer.rows, strict=True)}

    def close(self, forget: bool = True) -> None:
        self._stop.set()
        self.flights.shutdown()
        for thread in self._threads:
            thread.join()
        self.follower.close(forget)
        assert self.epochs == sorted(self.epochs), "never back"


class Machines:
    """Two machines with a part of the job each, and servers."""

    def __init__(self, folder: Path, kind: str = "int") -> None:
        self.folder = folder
        self.one, self.two = folder / "one" / "tables", folder / "two" / "tables"
        self.hand = HandJob(folder / "O", kind, machines=[self.one, self.two])
        self.at = {name: f"127.0.0.1:{server_port()}" for name in ("one", "two", "three")}
        self.servers: list[Merging] = []

    def serve(self, name: str, *others: str, kind: type = MergingFollower, sees_log: bool = False) -> Merging:
        tables = self.folder / "O" / "tables" if sees_log else self.folder / name / "tables"
        own = ServedJob.read(self.folder / "O") if sees_log else None
        made = Merging(tables, self.at[name], [self.at[other] for other in others], own, kind)
        self.servers.append(made)
        return made

    def key(self, number: int) -> object:
        return f"v{number}" if self.hand.kind == "string" else number

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.hand.close()


def begin(hand: HandJob) -> bool:
    """The first epoch, once."""
    if not list(hand.machines[0].rglob("*.tail")):
        hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    return True
