"""Servers, jobs and tables that stand still or are replaced under clients that read: late at worst, never wrong."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from freshet.job.lifecycle.summary import progress
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables import place
from tests.support.runs.jobs import Input, Job, make_input
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob
from tests.support.serving.server import Judge, Sampler, Server

pytestmark = pytest.mark.slow
EVENTS = 40_000  # more than three minutes', of which the job is stopped in mid-stream
IDS = np.arange(300) * 7 - 5
SLOW = {"slow": {"parser": 500}, "chunk": 100}
Make = Callable[[Input], Job]


@pytest.mark.long
def test_a_server_and_a_job_that_are_stopped_for_a_while(job: Make, servers: list[Server], tmp_path: Path) -> None:
    """By SIGSTOP: connections stay, and nobody answers, or nothing new comes."""
    one = job(make_input(tmp_path / "in", EVENTS, snapshot=True))
    options = ("--parts", 2, "--epoch-events", 40, "--epoch-ms", 5, "--checkpoint-interval", "1s")
    process = one.start(*options, "--stay", faults=SLOW)
    one.until_epoch(2)
    server = Server(one.out)
    servers.append(server)
    told = server.start("--stale-after", "1s")
    assert server.process is not None
    mapped, flight = Sampler(str(server.tables), IDS), Sampler(told["flight"], IDS[::3])
    with EmbeddingClient(told["flight"], timeout=60) as asked, EmbeddingClient(server.tables) as beside:
        seen = asked.rows(IDS).epoch
        one.until(lambda: all(len({answer[0] for answer in each.answers}) > 3 for each in (mapped, flight)))
        server.process.send_signal(signal.SIGSTOP)
        until(lambda: stands_still(server.process.pid))
        began = time.monotonic()
        with pytest.raises(NotReadyError, match=r"no answer for 1 s: it is stopped, or far too busy"):
            asked.rows(IDS, timeout=1.0)
        with (
            EmbeddingClient(told["flight"], timeout=1.0) as newcomer,
            pytest.raises(NotReadyError, match="no server answers there"),
        ):
            newcomer.get([2])
        assert time.monotonic() - began < 45, "both were told long before the time that calls have by themselves"
        stale = beside.rows(IDS).epoch
        until(lambda: beside.health()["behind_s"] > 2)
        reads = len(mapped.answers)
        until(lambda: len(mapped.answers) > reads + 20)
        assert beside.rows(IDS).epoch == stale >= seen, "shared memory is read as it was left"
        server.process.send_signal(signal.SIGCONT)
        one.until(lambda: beside.rows(IDS).epoch >= min(stale + 5, progress(one.out)["epoch"]) > stale)
        assert asked.rows(IDS).epoch >= stale
        until(lambda: asked.health()["ready"])

        os.killpg(process.pid, signal.SIGSTOP)
        until(lambda: "nothing was heard" in str(asked.health()["reason"]))  # with all that it said before it stood
        assert httpx.get(f"http://{told['http']}/readyz", trust_env=False, timeout=60).status_code == 503
        last = asked.rows(IDS).epoch
        assert last >= stale, "what there is can still be read"
        os.killpg(process.pid, signal.SIGCONT)
        until(lambda: asked.health()["ready"])
        until(lambda: asked.rows(IDS).epoch > last or progress(one.out)["events"] == EVENTS)
    for each in (mapped, flight):
        each.end()
    one.hurry()
    stopped = one.stop()
    assert stopped.code == 0, stopped.errors
    one.wait()
    judge = Judge(one.out)
    assert flight.failures > 0, "it was told that the server is away"
    assert len(judge.approve(mapped)) > 3
    assert len(judge.approve(flight)) > 3
    one.check()
    assert server.stop() == 0


BLOCK, GROWTH, EPOCHS = 400, 1.5, 12


def test_a_table_that_is_replaced_again_and_again_under_its_readers(servers: list[Server], tmp_path: Path) -> None:
    """Each epoch adds more ids than the one before it, and changes a third of those that are there."""
    sizes = np.cumsum([int(BLOCK * GROWTH**k) for k in range(EPOCHS + 1)])
    others = deleted_tables(os.getpid())  # that tests before this one have left in memory
    hand = HandJob(tmp_path / "O", parts=1)
    hand.apply(1, (rows_of_epoch(sizes, 1), []))
    server = Server(tmp_path / "O")
    servers.append(server)
    told = server.start()
    assert server.process is not None
    readers = [
        Growing(address, sizes, seed) for seed, address in enumerate((server.tables, server.tables, told["flight"]))
    ]
    tables = {place.read_table_file(server.tables)}
    for epoch in range(2, EPOCHS + 1):
        hand.apply(epoch, (rows_of_epoch(sizes, epoch), []))
        until(lambda epoch=epoch: all(reader.epoch >= epoch for reader in readers) or any(map(broken, readers)))
        tables.add(place.read_table_file(server.tables))
    until(lambda: all(reader.reads > 50 for reader in readers) or any(map(broken, readers)))
    for reader in readers:
        reader.end()
    print(f"{len(tables)} tables, {[reader.reads for reader in readers]} reads")
    assert len(tables) > 3
    assert all(reader.reads > 50 for reader in readers)
    mine = f"freshet-{JOB_ID}-{place.mark_of(server.tables)}-*"
    until(lambda: len(list(place.SHM.glob(mine))) == 1)  # of all tables one is left
    until(lambda: deleted_tables(os.getpid()) <= others)  # its memory too: nobody maps the others any more
    until(lambda: not deleted_tables(server.process.pid))
    for reader in readers:
        reader.client.close()
    assert server.stop() == 0
    hand.close()


def rows_of_epoch(sizes: np.ndarray, epoch: int) -> dict[int, float]:
    """What it sets: each row says the epoch."""
    ids = np.arange(sizes[epoch])
    return dict.fromkeys(ids[(ids >= (sizes[epoch - 1] if epoch > 1 else 0)) | (ids % 3 == epoch % 3)].tolist(), epoch)


class Growing:
    """Reads random ids all the time, on a thread of its own, and knows what each must be."""

    def __init__(self, address: object, sizes: np.ndarray, seed: int) -> None:
        self.client, self._sizes, self._rng = EmbeddingClient(address, timeout=60), sizes, np.random.default_rng(seed)
        self.epoch, self.reads = 0, 0
        self.broken: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._read(self._rng.choice([1, 100, 5_000]))
                self.reads += 1
        except BaseException as error:
            self.broken = error

    def _read(self, count: int) -> None:
        asked = np.unique(self._rng.integers(0, self._sizes[min(self.epoch + 2, EPOCHS)], count))
        found = self.client.rows(asked)
        ids, own, rows = found
        assert found.epoch >= self.epoch, "it went back"
        self.epoch = found.epoch
        born = np.maximum(np.searchsorted(self._sizes, asked, side="right"), 1)
        there = born <= found.epoch
        assert ids.tolist() == asked[there].tolist()
        expected = np.maximum(born[there], found.epoch - (found.epoch - ids) % 3)
        assert own.tolist() == expected.tolist()
        assert np.array_equal(rows, np.repeat(own.astype(np.float32)[:, None], WIDTH, 1)), "torn"

    def end(self) -> None:
        self._stop.set()
        self._thread.join(300)
        if self.broken is not None:
            raise self.broken


def broken(reader: Growing) -> bool:
    return reader.broken is not None


def deleted_tables(pid: int) -> set[str]:
    """The inodes of the job's tables that a process maps though they are gone."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    gone = [line for line in lines if f"freshet-{JOB_ID}-" in line and line.endswith("(deleted)")]
    return {line.split()[4] for line in gone}


def stands_still(pid: int) -> bool:
    """Whether no thread of a process that was told to stop goes on."""
    states = set[str]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states == {"T"}


def until(condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
