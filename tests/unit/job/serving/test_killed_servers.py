"""Servers killed between any two rows: the next one shows exact epochs alone, and none before what readers have seen.

Each server is a follower whose kernels take one row a call; the call that is its last raises, and nothing is removed.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.job.serving.feeds.change_stream import schema_of
from freshet.job.serving.feeds.fed_job import FedJob
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.protocol.columns import numbers, vectors
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables import place
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served import writer as table_writer
from freshet.state.served.mapped import HistoryTooShortError
from tests.support.serving.fed import FedFollower
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob

Rows = dict[int, tuple[int, float]]
MANY = 320


class Killed(BaseException):
    """The end of a server; nothing of it catches this."""


class Rowwise:
    """The kernels of a table's writer, a row a call; `left` calls until the server is killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        monkeypatch.setattr(table_writer, "_ROWS_AT_ONCE", 1)
        for name in ("put_numbers", "remove_numbers"):
            monkeypatch.setattr(table_writer, name, self._counted(getattr(table_writer, name)))

    def _counted(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return kernel(*args)

        return call


@pytest.fixture
def rowwise(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rowwise]:
    monkeypatch.setattr("freshet.state.served.layout.RING_MIN", 16)
    monkeypatch.setattr("freshet.state.served.reader._PATIENCE_S", 0.1)
    yield Rowwise(monkeypatch)
    for path in place.SHM.glob(f"freshet-{JOB_ID}-*"):
        path.unlink()


def history(seed: int, epochs: int, many: int | None = None) -> list[tuple[dict[int, float], list[int]]]:
    """Of each epoch what it sets and deletes; the epoch `many` replaces more than the ring holds, and adds as many."""
    drawn, found = random.Random(seed), []
    for epoch in range(1, epochs + 1):
        put = {key: epoch + key / 1024 for key in drawn.sample(range(8), 3)}
        dead = [key for key in drawn.sample(range(8), 2) if key not in put]
        if epoch in (1, many):
            put |= {key: epoch + key / 1024 for key in range(8, MANY if epoch == 1 else 2 * MANY)}
        found.append((put, dead))
    return found


def states(changes: list[tuple[dict[int, float], list[int]]]) -> list[Rows]:
    """The rows after each epoch, those of epoch 0 first."""
    rows: Rows = {}
    found = [rows]
    for epoch, (put, dead) in enumerate(changes, 1):
        rows = {key: value for key, value in rows.items() if key not in dead}
        rows |= {key: (epoch, np.float32(value)) for key, value in put.items()}
        found.append(rows)
    return found


class Readers:
    """They look at what a folder shows: rows of exactly one epoch each time, never an earlier one."""

    def __init__(self, tables: Path, expected: list[Rows]) -> None:
        self.lookup, self.expected, self.seen, self.looks = Lookup(CurrentTable(tables)), expected, -1, 0

    def look(self) -> int:
        try:
            answer = self.lookup.all()
        except (HistoryTooShortError, NotReadyError):  # the caller would ask again
            return self.seen
        rows = {
            key: (own, row[0])
            for key, own, row in zip(answer.ids.tolist(), answer.epochs.tolist(), answer.rows, strict=True)
        }
        assert rows == self.expected[answer.epoch], f"epoch {answer.epoch}"
        assert answer.epoch >= self.seen
        self.seen, self.looks = answer.epoch, self.looks + 1
        return self.seen


def follower_of(hand: HandJob, tails: bool = True) -> Follower:
    job = ServedJob.read(hand.out)
    assert job is not None
    follower = Follower(job, hand.out / "tables", 1024)
    if not tails:
        for part in follower._parts:
            part.get = lambda wanted: None  # type: ignore[method-assign]
    follower.start()
    return follower


def follow(follower: Follower, readers: Readers, upto: int) -> None:
    """Take steps until that epoch shows; a table that can't be read takes long to say so, and is looked at once."""
    deadline = time.monotonic() + 60
    readers.look()
    while readers.seen < upto:
        assert time.monotonic() < deadline, (follower.table.epoch, readers.seen)
        for part in follower._parts:
            part._looked = float("-inf")  # no waiting between two looks
        follower._moved_at = follower._asked_at = float("-inf")
        follower.step()
        if follower.table is getattr(follower, "_shown", follower.table):
            readers.look()


@pytest.mark.parametrize("left", [1, 2, 5, 16, 17, 100, 316, 400, 620])
def test_an_epoch_past_the_ring_that_the_change_log_lacks(tmp_path: Path, rowwise: Rowwise, left: int) -> None:
    """The table can't be read, nor grow; one made anew begins with the change log, at an earlier epoch."""
    changes = history(left, 5, many=4)
    readers = Readers(tmp_path / "O" / "tables", states(changes))
    hand = HandJob(tmp_path / "O")
    for epoch, change in enumerate(changes, 1):
        hand.apply(epoch, change, **({"marker": 1} if epoch == 1 else {}))
        if epoch == 1:
            hand.settle()
    first = follower_of(hand)
    first._parts[0].get = _until(first._parts[0].get, 3)  # type: ignore[method-assign]
    follow(first, readers, 3)
    del first._parts[0].get
    rowwise.left = left
    with pytest.raises(Killed):
        follow(first, readers, 4)
    rowwise.left = 10**9
    assert readers.look() == 3
    again = follower_of(hand)
    follow(again, readers, 5)
    assert readers.looks > 3
    again.close(forget=True)
    hand.close()


def _until(get: Callable[[int], Any], epoch: int) -> Callable[[int], Any]:
    return lambda wanted: get(wanted) if wanted <= epoch else None


@pytest.mark.parametrize("left", range(0, 14, 2))
def test_catching_up_by_the_change_log_and_then_fed_by_tails(tmp_path: Path, rowwise: Rowwise, left: int) -> None:
    changes = history(left, 6)
    readers = Readers(tmp_path / "O" / "tables", states(changes))
    hand = HandJob(tmp_path / "O")
    hand.apply(1, changes[0], marker=1)
    hand.settle()
    first = follower_of(hand, tails=False)
    follow(first, readers, 1)
    for epoch, change in enumerate(changes[1:5], 2):
        hand.apply(epoch, change, **({"marker": 2} if epoch == 5 else {}))
    hand.settle()
    rowwise.left = left
    try:
        follow(first, readers, 5)
    except Killed:
        assert readers.look() == 1
    rowwise.left = 10**9
    again = follower_of(hand)
    follow(again, readers, 5)
    hand.apply(6, changes[5])
    follow(again, readers, 6)
    again.close(forget=True)
    hand.close()


class Servers:
    """Other servers, in place of `Sources`: each answers with the whole table at an epoch, then with what changed."""

    def __init__(self, expected: list[Rows], *epochs: int) -> None:
        self.expected, self.epochs = expected, list(epochs)

    def changes(self, job: ServedJob, source: object = None) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
        told = dict.fromkeys(("behind_us", "arrived_us", "published_us", "tail_failures"), 0)
        before: Rows | None = None
        while self.epochs:
            epoch = self.epochs.pop(0)
            rows = self.expected[epoch]
            put = {key: row for key, row in rows.items() if before is None or before.get(key) != row}
            dead = [] if before is None else [key for key in before if key not in rows]
            head: dict[str, Any] = {"epoch": epoch, "whole": before is None}
            yield head | {"lives": True}, _batch(list(put), list(put.values()))
            last = {"told": told | {"ended": False, "positions": []}}
            yield head | {"lives": False} | last, _batch(dead, [(epoch, 0.0)] * len(dead))
            before = rows


def _batch(ids: list[int], rows: list[tuple[int, float]]) -> pa.RecordBatch:
    values = np.array([[value] * WIDTH for _, value in rows], np.float32).reshape(-1, WIDTH)
    columns = [numbers(np.array(ids, np.int64)), numbers(np.array([own for own, _ in rows], np.int64)), vectors(values)]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(False, WIDTH))


@pytest.mark.parametrize("left", range(0, 14, 2))
def test_catching_up_by_another_server_and_then_by_one_that_is_less_far(
    tmp_path: Path, rowwise: Rowwise, left: int
) -> None:
    expected = states(history(left, 7))
    tables = tmp_path / "tables"
    tables.mkdir()
    job = FedJob(tmp_path, JOB_ID, 0, False, (), "", str(tables), noted_width=WIDTH)
    readers = Readers(tables, expected)
    servers = Servers(expected, 2, 5)
    first = FedFollower(job, tables, servers, lambda: False, 1024)  # type: ignore[arg-type]
    first.start()
    assert readers.look() == 2
    rowwise.left = left
    try:
        while readers.look() < 5:
            first.step()
    except Killed:
        assert readers.look() == 2
    rowwise.left = 10**9
    servers.epochs = [3, 4, 7]
    again = FedFollower(job, tables, servers, lambda: False, 1024)  # type: ignore[arg-type]
    again.start()
    while readers.look() < 7:
        again.step()
    again.close(forget=True)


@pytest.mark.parametrize("left", [1, 17, 100, 300])
def test_an_epoch_past_the_ring_that_came_from_another_server(tmp_path: Path, rowwise: Rowwise, left: int) -> None:
    """What the table had can't be read any more; the next server tells all of it."""
    expected = states([({key: value for key in range(400)}, [7] if value > 2 else []) for value in (1.0, 2.0, 3.0)])
    tables = tmp_path / "tables"
    tables.mkdir()
    job = FedJob(tmp_path, JOB_ID, 0, False, (), "", str(tables), noted_width=WIDTH)
    readers = Readers(tables, expected)
    servers = Servers(expected, 1, 2)
    first = FedFollower(job, tables, servers, lambda: False, 1024)  # type: ignore[arg-type]
    first.start()
    rowwise.left = left
    with pytest.raises(Killed):
        while readers.look() < 2:
            first.step()
    rowwise.left = 10**9
    servers.epochs = [2, 3]
    again = FedFollower(job, tables, servers, lambda: False, 1024)  # type: ignore[arg-type]
    again.start()
    assert again.taken_over
    while readers.look() < 3:
        again.step()
    again.close(forget=True)


def test_a_table_that_waits_for_what_readers_have_seen_says_so(
    tmp_path: Path, rowwise: Rowwise, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Killed while it caught up, at an epoch that no tail and no change log has any more: the job goes on from less."""
    hand, changes = HandJob(tmp_path / "O"), history(3, 4)
    for epoch, change in enumerate(changes[:3], 1):
        hand.apply(epoch, change, **({"marker": 1} if epoch == 1 else {}))
        if epoch == 1:
            hand.settle()
    first = follower_of(hand)
    follow(first, Readers(hand.out / "tables", states(changes)), 3)
    first.table._reach(5)
    monkeypatch.setattr("freshet.job.serving.feeds.follower._WAITS_S", 0)
    monkeypatch.setattr("freshet.job.serving.tables.part_tails.PartTails.get", lambda *_: None)
    job = ServedJob.read(hand.out)
    assert job is not None
    again, looks = Follower(job, hand.out / "tables", 1024), iter(range(20))
    again.start(lambda: next(looks, None) is None)
    assert again._shown is None
    assert "readers have seen epoch 3, and there is nothing past 1 yet" in str(again.trouble)
    assert capfd.readouterr().err.count("readers have seen epoch 3") == 1
    again.close(forget=True)
    hand.close()


def test_a_disk_without_room_for_the_tables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that could not be shown don't stay in memory, one for each try; one is shown once there is room."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({1: 1.0}, []), marker=1)
    hand.settle()
    job = ServedJob.read(hand.out)
    assert job is not None
    show, there = place.show, []

    def full(job: Any, tables: Path, table: Any) -> None:
        there.append(len(list(place.SHM.glob(f"freshet-{JOB_ID}-*"))))
        if len(there) < 4:
            raise OSError(errno.ENOSPC, "full")
        show(job, tables, table)

    monkeypatch.setattr(place, "show", full)
    monkeypatch.setattr("freshet.job.serving.feeds.follower._AGAIN_S", 0)
    follower = Follower(job, hand.out / "tables", 1024)
    follower.start()
    assert there == [1, 1, 1, 1]
    follower._begin_anew()
    there.clear()
    monkeypatch.setattr(place, "show", lambda *args: full(*args))
    with pytest.raises(OSError, match="full"):
        follower._begin_anew()
    former = follower._shown
    for _ in range(3):
        follower._tried(follower.step)
    assert follower._shown is follower.table is not former
    follower.close(forget=True)
    hand.close()
