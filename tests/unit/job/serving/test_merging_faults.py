"""What servers that feed from each other must bear: hearsay, names that fail, torn files, and nonsense."""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.job.folder import run_file
from freshet.job.machine.processes import allow_many_files
from freshet.job.serving.feeds.fed_job import FedJob, FedServer, FedServers
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.merging_follower import MergingFollower
from freshet.job.serving.feeds.peer_tails import PeerTails
from freshet.job.serving.protocol.tls import Address
from freshet.job.serving.tables import place
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import TailName, TailNote
from freshet.operators.sink.tail.reader import TailReader
from freshet.state.served.layout import RUNS
from freshet.state.served.mapped import HistoryTooShortError
from freshet.state.served.writer import TableWriter
from tests.support.serving.fed import FedFollower
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob
from tests.support.serving.machines import Machines, begin


@pytest.fixture
def machines(tmp_path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    begin(made.hand)
    yield made
    made.close()
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))


class Teller:
    """In place of `FedServers`: one server that tells these pieces."""

    def __init__(self, *pieces: tuple[dict[str, Any], np.ndarray]) -> None:
        self.pieces, self.told = pieces, 0

    def all(self) -> tuple[set[FedServer], dict[Address, str]]:
        return {FedServer(Address("teller", 1, False), "127.0.0.1")}, {}

    def identity_of(self, source: FedServer) -> tuple[str, int | None]:
        return JOB_ID, None

    def tails(
        self, job: ServedJob, wanted: list[int], source: FedServer
    ) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
        for head, raw in self.pieces:
            yield head, pa.RecordBatch.from_arrays([pa.array(raw, pa.uint8())], ["record"])
            self.told += 1


def job_of(machines: Machines) -> ServedJob:
    job = ServedJob.read(machines.hand.out)
    assert job is not None
    return job


def heard(machines: Machines, *pieces: tuple[dict[str, Any], np.ndarray]) -> tuple[PeerTails, Teller]:
    """What is known once the server has told all that it was let tell."""
    teller = Teller(*pieces)
    peers = PeerTails(teller, job_of(machines))  # type: ignore[arg-type]
    peers.start()
    deadline = time.monotonic() + 60
    while peers.unheard() in ([], ["teller:1: not reached yet"]) or not peers._peers:
        assert time.monotonic() < deadline, peers.unheard()
        time.sleep(0.01)
    peers.close()
    return peers, teller


def record_of_part(machines: Machines) -> np.ndarray:
    """The record of epoch 1."""
    path = next(path for path in (machines.one / "tail").iterdir() if TailName.parse(path.name))
    record = TailReader(path, job_of(machines).word).next()
    assert record is not None
    return record.raw.copy()


def test_that_a_job_has_ended_is_no_hearsay(machines):
    hand = machines.hand
    one, two = machines.serve("one", "two", "three"), machines.serve("two", "one", "three")
    hand.settle()
    three = machines.serve("three", "one", "two", sees_log=True)
    assert one.rows(1) == two.rows(1) == three.rows(1)
    hand.close()
    run_file.update_run(hand.out, state=run_file.FINISHED)
    for server in (one, two, three):
        server.until(lambda server=server: server.health.figures()["job"] == "ended")
    run_file.update_run(hand.out, state=run_file.STOPPED)
    for server in (one, two, three):
        server.until(lambda server=server: server.health.figures()["job"] == "stopped")
    run_file.update_run(hand.out, state=run_file.RUNNING)
    hand.open()  # resumed: its parts say something again
    hand.apply(2, ({2: 2.0}, []))
    for server in (one, two, three):
        assert server.rows(2) == {2: (2, 2.0), 3: (1, 1.0), 4: (1, 1.0)}
        server.until(lambda server=server: server.health.figures()["job"] == "running")
    time.sleep(1.5)  # more than between two looks at whether it has ended
    assert "ended" not in [server.health.figures()["job"] for server in (one, two, three)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"beats": []},
        {"beats": [[1, 2, 3, 4]]},
        {"beats": [[1, 2, 3], None]},
        {"beats": [[1, 2, 3, "x"], None]},
        {"beats": 7},
        {"table": "7"},
        {"table": None},
    ],
)
def test_a_heartbeat_that_is_none(machines, wrong):
    head = {"beats": [None, None], "table": 9, "ended": False} | wrong
    peers, _ = heard(machines, (head, np.empty(0, np.uint8)))
    assert "a heartbeat: expected four numbers for each of 2 parts" in peers.unheard()[0]
    assert (peers.beats(), peers.further(), peers.how_ended()) == ([None, None], None, RUNS)


@pytest.mark.parametrize("part", [-1, 2, "0", None])
def test_a_record_of_a_part_that_there_is_not(machines, part):
    peers, _ = heard(machines, ({"part": part, "epoch": 1, "more": False}, record_of_part(machines)))
    assert f"epoch 1 of part {part}: the job has 2 parts" in peers.unheard()[0]
    assert not any(peers._held)


def test_a_record_that_never_ends(machines):
    raw = record_of_part(machines)
    piece = {"part": 0, "epoch": 1, "more": True}, raw
    peers, teller = heard(machines, *[piece] * 100)
    assert f"a record of more than the {raw.nbytes} bytes that it names" in peers.unheard()[0]
    assert teller.told < 100


def test_large_epochs_that_are_ahead_are_not_all_held(machines, monkeypatch):
    monkeypatch.setattr("freshet.job.serving.feeds.peer_tails.HELD_BYTES_MAX", 30_000)
    hand, ids = machines.hand, range(10, 1010)  # 24 kB a record
    machines.serve("one", "two"), machines.serve("two", "one")
    reader = machines.serve("three", "one", "two")
    assert reader.rows(1)
    for epoch in range(2, 30):
        hand.sinks[0].apply(epoch, [hand.block(epoch, 0, {key: float(epoch) for key in ids}, [])])
    held = reader.follower._peers
    reader.until(lambda: held._bytes > 60_000)
    time.sleep(1.0)
    assert held._bytes < 150_000
    for epoch in range(2, 30):
        hand.sinks[1].apply(epoch, [hand.block(epoch, 1, {4: float(epoch)}, [])])
    assert reader.rows(29) == {2: (1, 1.0), 3: (1, 1.0), 4: (29, 29.0)} | dict.fromkeys(ids, (29, 29.0))


def test_a_name_that_fails_for_a_while(machines, monkeypatch):
    resolve, failing = socket.getaddrinfo, set[str]()

    def resolved(host: str, *rest: Any, **more: Any) -> Any:
        if host in failing:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve("127.0.0.1", *rest, **more)

    monkeypatch.setattr("freshet.job.serving.feeds.fed_job.socket.getaddrinfo", resolved)
    ports = {name: at.partition(":")[2] for name, at in machines.at.items()}
    machines.at |= {"first": f"first:{ports['one']}", "second": f"second:{ports['two']}"}
    machines.serve("one", "second"), machines.serve("two", "first")
    reader = machines.serve("three", "first", "second")
    assert reader.rows(1)
    peers = reader.follower._peers
    before = dict(peers._peers)
    failing.add("second")
    reader.until(lambda: any("second:" in one and "Temporary" in one for one in peers.unheard()))
    time.sleep(0.3)
    assert peers._peers == before, "its streams go on"
    failing.clear()
    reader.until(lambda: not peers.unheard())


def test_a_name_that_nobody_knows_is_said(machines):
    machines.at["nobody"] = "nobody.invalid:47470"
    one = machines.serve("one", "nobody")
    one.until(lambda: "nobody.invalid:47470: " in str(one.health.figures()["reason"]))
    odd = "x" * 70 + ".org"
    found, unknown = FedServers([f"{odd}:1", "127.0.0.1:2"], None).all()
    assert [str(one) for one in found] == ["127.0.0.1:2"]
    assert [one.host for one in unknown] == [odd]


def test_what_a_loss_of_power_has_torn_counts_as_none(machines):
    (machines.one / "tail" / "job.json").write_bytes(b"")
    (machines.one / "source.json").write_bytes(b'{"job_id":')
    assert TailNote.read(machines.one / "tail") is None
    assert FedJob.recorded(machines.one) is None


def test_tails_of_another_job_are_said(machines):
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    assert one.rows(1) == two.rows(1)
    TailNote("f00d", 2, WIDTH, False).write(machines.one / "tail")
    one.until(lambda: re.search("tails of the job f00d now.* start it again", str(one.health.figures()["reason"])))
    assert one.rows(1) == two.rows(1)


def test_a_part_has_more_files_than_may_be_open(machines):
    for epoch in range(2, 100):
        machines.hand.apply(epoch, ({2: float(epoch)}, []), marker=epoch)
    folder, limit = machines.one / "tail", resource.RLIMIT_NOFILE
    assert len(list(folder.glob("part-0-*.tail"))) > 90
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (len(os.listdir("/proc/self/fd")) + 30, before[1]))
    try:
        tails = PartTails(folder, 0, job_of(machines).word)
        found = tails.get(98)
        assert found is not None
        assert found.rows[0, 0] == 98.0
        tails.close()
        allow_many_files()
        assert resource.getrlimit(limit)[0] == before[1]
    finally:
        resource.setrlimit(limit, before)


def test_a_table_that_is_begun_anew_does_not_go_back(tmp_path, monkeypatch):
    """It can't be read when it must grow; what is loaded then is further than the epoch that it was to have."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    job = ServedJob.read(hand.out)
    assert job is not None
    follower = Follower(job, hand.out / "tables", 1 << 20)
    follower.start()
    while follower.table.epoch < 1:
        follower.step()
    hand.apply(2, ({key: 2.0 for key in range(10, 3000)}, []), ({4: 2.0}, []))
    hand.apply(3, ({2: 3.0}, []), ({}, [4]), marker=3)
    hand.settle()

    def content(table: TableWriter) -> None:
        msg = "the ring is too short"
        raise HistoryTooShortError(msg)

    monkeypatch.setattr(TableWriter, "content", content)
    for part in follower._parts:
        part._looked = float("-inf")  # the tails have it
    assert follower.step()
    assert follower.table.epoch == 3
    answer = Lookup(CurrentTable(hand.out / "tables")).all()
    assert (answer.epoch, len(answer.ids), 4 in answer.ids) == (3, 2992, False)
    follower.close(forget=True)
    hand.close()


class Tables(Teller):
    """Servers whose tables stand still, each at an epoch of its own; they tell of their tables, and have no tails."""

    def __init__(self, **epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.asked: list[str] = []

    def all(self) -> tuple[set[FedServer], dict[Address, str]]:
        return {FedServer(Address(name, 1, False), "127.0.0.1") for name in list(self.epochs)}, {}

    def tails(
        self, job: ServedJob, wanted: list[int], source: FedServer
    ) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
        while True:
            yield {"beats": [None, None], "table": self.epochs[source.address.host], "ended": False}, None
            time.sleep(0.05)

    def changes(self, job: ServedJob, source: FedServer) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
        epoch = self.epochs[source.address.host]
        self.asked.append(source.address.host)
        told = dict.fromkeys(("behind_us", "arrived_us", "published_us", "tail_failures"), 0)
        rows = pa.array([[1.0] * WIDTH], pa.list_(pa.float32(), WIDTH))
        batch = pa.RecordBatch.from_arrays([pa.array([2]), pa.array([epoch]), rows], ["id", "epoch", "embedding"])
        while True:
            yield (
                {"epoch": epoch, "whole": True, "lives": True, "told": told | {"ended": False, "positions": []}},
                batch,
            )
            time.sleep(0.05)


def test_a_server_that_stands_still_gives_way_to_one_that_is_further(tmp_path):
    job = FedJob(tmp_path, JOB_ID, 2, False, (), "", str(tmp_path / "tables"), noted_width=WIDTH)
    (tmp_path / "tables").mkdir()
    servers = Tables(one=4)
    follower = MergingFollower(job, tmp_path / "tables", servers, lambda: False, 1 << 20)  # type: ignore[arg-type]
    follower.start()
    servers.epochs["two"] = 7
    deadline = time.monotonic() + 60
    while follower.table.epoch < 7:
        assert time.monotonic() < deadline, servers.asked
        follower.step()
    assert servers.asked == ["one", "two"]
    follower.close(forget=True)


def test_a_source_of_another_width_is_refused(machines):
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    assert one.rows(1) == two.rows(1)
    reader = machines.serve("three", "one", "two", kind=FedFollower)
    assert reader.rows(1)
    follower = reader.follower
    follower._flow._job = FedJob(**{**vars(follower.job), "noted_width": WIDTH + 1})
    machines.hand.apply(2, ({2: 2.0}, []))
    reader.until(lambda: "another width" in follower._flow.said)
    assert reader.lookup.table.epoch == 1
