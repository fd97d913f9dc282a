"""Servers that have some of the tails each: the same rows at the same epochs, through moves, gaps and deaths."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow.flight as flight
import pytest

from freshet.job.errors import UsageError
from freshet.job.machine.ports import server_port
from freshet.job.serving.feeds.feed import ServeOptions, feeds_of
from freshet.job.serving.feeds.peer_tails import _checked
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables import place
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import R_CHANGED, TailName
from freshet.operators.sink.tail.reader import NotATailError, TailReader
from tests.support.serving.fed import FedFollower
from tests.support.serving.hand_job import JOB_ID, HandJob
from tests.support.serving.machines import Machines, begin
from tests.support.stages.sunk import tail_of


@pytest.fixture
def machines(tmp_path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))


@pytest.mark.parametrize("kind", ["int", "string"])
def test_what_each_machine_has_comes_together(tmp_path, kind):
    machines = Machines(tmp_path, kind)
    hand, key = machines.hand, machines.key
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    reader = machines.serve("three", "one", "two", kind=FedFollower)
    expected = {key(2): (1, 1.0), key(3): (1, 1.0), key(4): (1, 1.0)}
    assert one.rows(1) == two.rows(1) == reader.rows(1) == expected
    hand.apply(2, ({2: 2.0}, [3]), ({5: 2.0}, []))
    hand.apply(3, ({}, [2]), ({2: 3.0}, [4]))  # one that moves between parts, and so between machines
    expected = {key(2): (3, 3.0), key(5): (2, 2.0)}
    assert one.rows(3) == two.rows(3) == reader.rows(3) == expected
    assert one.lookup.table.positions().tolist() == [[0, 0, 30, 3]]
    assert two.lookup.table.positions().tolist() == reader.lookup.table.positions().tolist() == [[0, 0, 30, 3]]
    hand.sinks[0].apply(4, [hand.block(4, 0, {3: 4.0}, [])])
    time.sleep(0.3)
    assert one.rows(3) == two.rows(3) == expected, "half an epoch is none"
    hand.sinks[1].apply(4, [hand.block(4, 1, {key_: 4.0 for key_ in range(10, 3000)}, [])])  # grows all tables
    expected |= {key(3): (4, 4.0)} | {key(number): (4, 4.0) for number in range(10, 3000)}
    assert one.rows(4) == two.rows(4) == reader.rows(4) == expected
    for server in (one, two, reader):
        tail_of(hand.sinks[0]).beat(), tail_of(hand.sinks[1]).beat()
        server.until(lambda server=server: server.health.figures()["ready"])
    machines.close()
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))


def test_a_part_that_moves_begins_behind_what_was_seen(machines):
    hand = machines.hand
    one, two = (machines.serve(*names) for names in (("one", "two"), ("two", "one")) if begin(hand))
    for epoch in range(2, 6):
        hand.apply(epoch, ({2: float(epoch)}, []), ({3: float(epoch)}, []))
    assert one.rows(5) == {2: (5, 5.0), 3: (5, 5.0), 4: (1, 1.0)}
    hand.move(0, machines.two)
    hand.open()  # a restore of epoch 3; both parts are on one machine now
    for epoch in range(4, 8):
        hand.apply(epoch, ({2: float(epoch)}, []), ({3: float(epoch)}, []))
    assert one.rows(7) == two.rows(7) == {2: (7, 7.0), 3: (7, 7.0), 4: (1, 1.0)}
    late = machines.serve("three", "one", "two")
    assert late.rows(7) == one.rows(7)
    hand.apply(8, ({}, [2]))
    assert late.rows(8) == one.rows(8) == {3: (7, 7.0), 4: (1, 1.0)}


def test_what_no_tail_has_comes_from_a_table_that_is_further(machines):
    hand = machines.hand
    begin(hand)
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    assert one.rows(1) == two.rows(1)
    two.close(forget=False)  # killed
    machines.servers.remove(two)
    one.until(lambda: not one.health.figures()["ready"])
    hand.apply(2, ({2: 2.0}, []), ({5: 2.0}, [4]), marker=2)
    time.sleep(0.3)
    assert one.lookup.table.epoch == 1
    (machines.two / "tail").rename(machines.folder / "aside")  # the machine is away, and the epoch with it
    three = machines.serve("three", "one", "two", sees_log=True)
    hand.settle()
    expected = {2: (2, 2.0), 3: (1, 1.0), 5: (2, 2.0)}
    assert three.rows(2) == expected, "by the change log"
    assert one.job.job_id == three.job.job_id
    one.close(forget=False)
    machines.servers.remove(one)
    again = machines.serve("one", "three")
    again.until(lambda: again.follower.taken_over)
    assert again.rows(2) == expected, "by the table of another server"
    hand.open()
    hand.apply(3, ({2: 3.0}, []), ({6: 3.0}, []))
    back = machines.serve("two", "one", "three")
    assert again.rows(3) == three.rows(3) == back.rows(3) == expected | {2: (3, 3.0), 6: (3, 3.0)}


def test_without_a_base_it_is_said_and_taken_later(machines):
    hand = machines.hand
    hand.begins_empty = False  # a snapshot's rows, which are in the change log alone
    hand.open()
    hand.apply(0, ({8: 0.5}, []), ({9: 0.5}, []))
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []), marker=1)
    one = machines.serve("one", "two")
    one.until(lambda: re.search("no table to begin with.*(not reached|refused)", str(one.health.figures()["reason"])))
    with pytest.raises(NotReadyError):
        _ = one.lookup.table
    two = machines.serve("two", "one", "three")
    hand.settle()
    three = machines.serve("three", "one", "two", sees_log=True)
    expected = {8: (0, 0.5), 9: (0, 0.5), 2: (1, 1.0), 3: (1, 1.0)}
    assert three.rows(1) == two.rows(1) == one.rows(1) == expected
    hand.apply(2, ({2: 2.0}, [8]))
    expected = {9: (0, 0.5), 2: (2, 2.0), 3: (1, 1.0)}
    assert three.rows(2) == two.rows(2) == one.rows(2) == expected


def test_a_server_that_dies_is_missed_and_nothing_goes_back(machines):
    hand = machines.hand
    begin(hand)
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    reader = machines.serve("three", "one", "two", kind=FedFollower)
    assert one.rows(1) == two.rows(1) == reader.rows(1)
    two.flights.shutdown()
    hand.apply(2, ({2: 2.0}, []), ({4: 2.0}, []))
    two.until(lambda: two.lookup.table.epoch == 2)  # it hears others still
    for server in (one, reader):
        server.until(lambda server=server: not server.health.figures()["ready"])
    one.until(lambda: "epoch 2 of part 1 is in no tail that is reached" in str(one.health.figures()["reason"]))
    two.listen()
    expected = {2: (2, 2.0), 3: (1, 1.0), 4: (2, 2.0)}
    assert one.rows(2) == two.rows(2) == reader.rows(2) == expected
    for sink in hand.sinks:
        tail_of(sink).beat()
    for server in (one, two, reader):
        server.until(lambda server=server: server.health.figures()["ready"])
    one.until(lambda: one.follower.trouble is None)


def test_records_that_do_not_fit_are_refused(machines):
    begin(machines.hand)
    name = next(path for path in (machines.one / "tail").iterdir() if TailName.parse(path.name))
    job = ServedJob.read(machines.folder / "O")
    assert job is not None
    record = TailReader(name, job.word).next()
    assert record is not None
    raw = record.raw.copy()
    assert _checked(raw, job).epoch == 1
    for wrong in (raw[:-8], raw[:16], np.append(raw, raw[:8])):
        with pytest.raises(NotATailError):
            _checked(wrong.copy(), job)
    raw.view(np.int64)[R_CHANGED] = -1
    with pytest.raises(NotATailError):
        _checked(raw, job)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"tails": [1, 1], "job": "another"}, "tails of the job 'another'"),
        ({"tails": [1], "job": JOB_ID}, "expected 2 epochs"),
        ({"tails": [1, None], "job": JOB_ID}, "tails.1: "),
        ({"tails": 7, "job": JOB_ID}, "tails: "),
        ({"tails": [1, 1], "job": JOB_ID, "version": 7}, "tails of version 7"),
        ({"changes": True, "job": "another"}, "changes of the job 'another'"),
    ],
)
def test_what_is_asked_wrongly(machines, asked, reason):
    begin(machines.hand)
    one = machines.serve("one", "two")
    with flight.connect(f"grpc://{one.at}") as client:
        for token, said in (("secret", reason), ("wrong", "authorization")):
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
            with pytest.raises(flight.FlightError, match=said):
                client.do_get(flight.Ticket(orjson.dumps(asked)), options).read_all()


def test_tails_alone_are_served(tmp_path):
    """`freshet serve --tables L`, where all subtasks are on this machine, and the output folder is not."""
    tables = tmp_path / "here" / "tables"
    hand = HandJob(tmp_path / "O", machines=[tables, tables])
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    [feed] = feeds_of(ServeOptions(tables=tables, wait_s=1.0), lambda: False)
    follower = feed.follower(feed.job)
    follower.start()
    deadline = time.monotonic() + 60
    while follower.table.epoch < 1:
        assert time.monotonic() < deadline
        follower.step()
    answer = Lookup(CurrentTable(tables)).all()
    assert sorted(answer.ids.tolist()) == [2, 3]
    assert feed.job.readouts.widths[""] == feed.job.width, "the model is where the TaskManager has it"
    follower.close(forget=True)
    hand.close()
    with pytest.raises(UsageError, match="holds no job"):
        feeds_of(ServeOptions(tables=tmp_path / "nothing" / "tables", wait_s=0.1), lambda: False)


def test_much_that_is_held_waits_and_goes_on(machines, monkeypatch):
    """One part is far ahead, more than is held: what the other one lacks is not kept from coming."""
    monkeypatch.setattr("freshet.job.serving.feeds.peer_tails.HELD_BYTES_MAX", 4096)
    hand = machines.hand
    begin(hand)
    hand.apply(2, ({}, []), ({}, []))
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    reader = machines.serve("three", "one", "two")
    assert reader.rows(2) == one.rows(2) == two.rows(2)
    for epoch in range(3, 200):
        hand.sinks[0].apply(epoch, [hand.block(epoch, 0, {2: float(epoch), 3: float(epoch)}, [])])
    reader.until(lambda: reader.follower._peers._bytes >= 4096)
    time.sleep(0.5)
    assert reader.follower._peers._bytes < 20_000
    for epoch in range(3, 200):
        hand.sinks[1].apply(epoch, [hand.block(epoch, 1, {4: float(epoch)}, [])])
    expected = {2: (199, 199.0), 3: (199, 199.0), 4: (199, 199.0)}
    assert reader.rows(199) == one.rows(199) == two.rows(199) == expected


def test_what_a_stream_has_left_out_is_asked_for_again(machines, monkeypatch):
    """An epoch comes to light in a file that is new, behind one that was sent: an attempt that was slow, say."""
    monkeypatch.setattr("freshet.job.serving.feeds.merging_follower._GAP_S", 1e9)  # not from another server's table
    hand = machines.hand
    begin(hand)
    hand.apply(2, ({2: 2.0}, []), ({4: 2.0}, []), marker=1)
    hand.apply(3, ({2: 3.0}, []), ({4: 3.0}, []), marker=2)
    hand.apply(4, ({2: 4.0}, []), ({4: 4.0}, []))
    job = ServedJob.read(machines.folder / "O")
    assert job is not None
    files = [path for path in (machines.one / "tail").iterdir() if TailName.parse(path.name)]
    [third] = [path for path in files if TailReader(path, job.word).first_epoch == 3]
    third.rename(machines.folder / third.name)
    one, two = machines.serve("one", "two"), machines.serve("two", "one")
    two.until(lambda: two.follower._peers.after(0, 3) is not None)
    assert two.follower._peers.after(0, 3).epoch == 4
    assert two.rows(2) == one.rows(2)
    (machines.folder / third.name).rename(third)
    assert two.rows(4) == one.rows(4) == {2: (4, 4.0), 3: (1, 1.0), 4: (4, 4.0)}


def test_a_name_that_comes_to_stand_for_several_addresses(machines, monkeypatch):
    port, known = server_port(), ["127.0.0.1"]
    resolve = socket.getaddrinfo

    def resolved(host: str, *rest: object, **more: object) -> list[tuple[object, ...]]:
        found = known if host == "servers" else [host]
        return [one for each in found for one in resolve(each, *rest, **more)]

    monkeypatch.setattr("freshet.job.serving.feeds.fed_job.socket.getaddrinfo", resolved)
    machines.at |= {"one": f"127.0.0.1:{port}", "two": f"127.0.0.2:{port}", "all": f"servers:{port}"}
    hand = machines.hand
    begin(hand)
    one, two, reader = (
        machines.serve(name, "all") for name in ("one", "two", "three")
    )  # each is among its own sources
    two.rows(1)  # by the tails of the one that the name stands for
    time.sleep(0.3)
    with pytest.raises(NotReadyError):
        _ = one.lookup.table
    known.append("127.0.0.2")
    expected = {2: (1, 1.0), 3: (1, 1.0), 4: (1, 1.0)}
    assert one.rows(1) == two.rows(1) == reader.rows(1) == expected
    known.remove("127.0.0.1")
    peers = reader.follower._peers
    reader.until(lambda: [str(peer.at) for peer in list(peers._peers)] == ["127.0.0.2"])
    hand.apply(2, ({2: 2.0}, []), ({}, [4]))
    assert one.rows(2) == {2: (2, 2.0), 3: (1, 1.0)}, "its own part, and the other one's"
