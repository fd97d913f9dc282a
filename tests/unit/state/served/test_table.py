"""The versioned table: every read is one epoch's, whoever writes meanwhile, and whatever befalls the writer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.kernels.atomics import publish_word
from freshet.state.served.ids import Texts, frozen
from freshet.state.served.layout import R_SEQ, T_POSITION_SEQ, T_RESERVED, T_ROWS_AT, T_USED, TableShape
from freshet.state.served.mapped import NEWEST, HistoryTooShortError, NoTableError, WriterGoneError
from freshet.state.served.plain import PlainReader
from freshet.state.served.reader import ChangeReader, TableReader
from freshet.state.served.writer import TableFullError, TableWriter
from tests.support.serving.epochs import EPOCHS, IDS, histories, row_of, write_epoch
from tests.support.serving.read_beside import Beside, read_beside, writer

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def path() -> Iterator[Path]:
    found = Path(f"/dev/shm/freshet-test-{os.getpid()}-{random.randrange(1 << 40)}")
    yield found
    found.unlink(missing_ok=True)


def ids_of(keys: list[int], strings: bool):
    return Texts.encode([f"id-{key}" * (key % 3) for key in keys]) if strings else np.array(keys, np.int64)


change = st.tuples(st.integers(0, 9), st.booleans())
epochs = st.lists(st.lists(change, max_size=8), max_size=12)


@settings(deadline=None, max_examples=40)
@given(epochs, st.booleans(), st.integers(0, 3))
def test_every_epoch_as_a_dict_has_it(stream, strings, again):
    """With readers of each epoch, epochs applied twice, a takeover on the way, and growth."""
    folder = Path("/dev/shm")
    made = []

    def make(capacity):
        made.append(folder / f"freshet-test-{os.getpid()}-{random.randrange(1 << 40)}")
        return TableWriter(made[-1], TableShape.of(3, strings, capacity, 4096, 1 << 20), 1, 1)

    try:
        table, oracle = make(4), {}
        mirror = Mirror(TableReader(table.path))
        table.publish(0)
        for epoch, changes in enumerate(stream, 1):
            state = {(f"id-{k}" * (k % 3) if strings else k): live for k, live in changes}
            keys = {name: k for k, _ in changes for name in [f"id-{k}" * (k % 3) if strings else k]}
            dead = [keys[name] for name, live in state.items() if not live]
            put = [keys[name] for name, live in state.items() if live]
            reader, before = TableReader(table.path), dict(oracle)
            for _ in range(1 + (again == 1)):
                table.remove(epoch, ids_of(dead + put, strings))  # an id that moves between parts
                table.put(epoch, ids_of(put, strings), np.full((len(put), 3), epoch, np.float32))
                assert_is(reader, before, epoch - 1, strings)
                if epoch % 3:
                    mirror.follow()
            if again == 2:
                table = TableWriter.take_over(table.path)
            table.publish(epoch)
            for name, live in state.items():
                oracle.pop(name, None)
                if live:
                    oracle[name] = epoch
            assert_is(reader, oracle, epoch, strings)
            assert_is(reader, before, epoch - 1, strings, epoch - 1)
            assert reader.live == len(oracle)
            if epoch % 4:
                mirror.follow()
                assert (mirror.reader.epoch, mirror.rows) == (epoch, oracle)
            if again == 3:
                ids, found, _ = table.content()
                table.supersede()
                assert reader.superseded
                assert reader.few(ids_of([], strings), 0) is None
                table = make(len(found.own) + 8)
                table.put(found.own, ids, found.rows)
                table.publish(found.epoch)
                assert_is(TableReader(table.path), oracle, epoch, strings)
                mirror = Mirror(TableReader(table.path))
    finally:
        for one in made:
            one.unlink(missing_ok=True)


class Mirror:
    """What somebody else knows, by changes alone."""

    def __init__(self, table):
        self.reader, self.rows = ChangeReader(table), {}

    def follow(self):
        while (change := self.reader.next()) is not None:
            live, dead = (one.decode() if isinstance(one, Texts) else one.tolist() for one in (change.ids, change.dead))
            if change.whole:
                self.rows = {}
            for name in dead:
                self.rows.pop(name, None)
            self.rows |= dict(zip(live, change.own.tolist(), strict=True))
            assert change.rows.tolist() == [[own] * 3 for own in change.own.tolist()]


def assert_is(reader, oracle, epoch, strings, upto=NEWEST):
    """By the reader, and by numpy alone: in these tests nobody writes meanwhile."""
    assert_shows(reader, oracle, epoch, strings, upto)
    assert_shows(PlainReader(reader.path), oracle, epoch, strings, upto)


def assert_shows(reader, oracle, epoch, strings, upto):
    keys = list(range(12))
    names = [f"id-{k}" * (k % 3) if strings else k for k in keys]
    found = reader.get(ids_of(keys, strings), upto)
    assert found.epoch == epoch
    for name, own, row in zip(names, found.own.tolist(), found.rows.tolist(), strict=True):
        assert own == oracle.get(name, -1)
        assert own < 0 or row == [own] * 3
    if isinstance(reader, TableReader) and upto == NEWEST:
        assert_few(reader, [key for key, name in zip(keys, names, strict=True) if name in oracle], found, strings)
    if isinstance(reader, PlainReader):
        return
    ids, found = reader.all(upto)
    listed = ids.decode() if strings else ids.tolist()
    assert dict(zip(listed, found.own.tolist(), strict=True)) == oracle


def assert_few(reader, there, found, strings):
    """The short way gives the same where all is there, and else nothing."""
    few = reader.few(ids_of(there, strings), found.epoch)
    assert few is not None
    epoch, own, rows = few
    assert (epoch, own.tolist(), rows.tolist()) == (found.epoch, found.own[there].tolist(), found.rows[there].tolist())
    assert reader.few(ids_of(there, strings), found.epoch + 1) is None
    if len(there) < 12:
        missing = next(key for key in range(12) if key not in there)
        assert reader.few(ids_of([*there, missing], strings), 0) is None


def child(path: Path, until: int = EPOCHS) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.serving.epochs", str(path), str(until)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def load_kernels(path: Path) -> None:
    """Or the first read takes longer than the writer lives."""
    table = TableWriter(path, TableShape.of(5, False, IDS, 0, 1), 1, 1)
    table.publish(0)
    TableReader(path).get(frozen(np.arange(IDS)))
    TableReader(path).all()
    path.unlink()


@pytest.fixture
def patient(monkeypatch):
    """Readers that wait for a writer which stands still amid a row: on a busy machine it may, for long."""
    monkeypatch.setattr("freshet.state.served.reader._PATIENCE_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_reads_beside_a_writer_that_is_killed_again_and_again(path):
    """Every read has the rows of the one epoch that it names, bit by bit, and none is older than one before it."""
    own, lives = histories()
    load_kernels(path)
    everyone, last, reads, kills = frozen(np.arange(IDS)), -1, 0, 0
    rng, deadline = random.Random(3), time.monotonic() + 200
    while last < EPOCHS:
        assert time.monotonic() < deadline
        kill_at = EPOCHS + 1 if kills == 8 else last + rng.randrange(1, 300)
        process = child(path, kill_at + 30)
        reader = TableReader(path)
        while reader.epoch < 0:
            time.sleep(0.001)
        while process.poll() is None:
            found = reader.get(everyone)
            expected = np.where(lives[found.epoch], own[found.epoch], -1)
            assert found.epoch >= last
            assert np.array_equal(found.own, expected)
            there = expected >= 0
            assert np.array_equal(found.rows[there], row_of(np.arange(IDS)[there], expected[there]))
            last, reads = found.epoch, reads + 1
            if reads % 7 == 0:
                ids, all_found = reader.all()
                live = np.flatnonzero(lives[all_found.epoch])
                assert sorted(ids.tolist()) == live.tolist()
            if last >= kill_at and reads > 15 * (kills + 1):  # which waits for that
                process.kill()
                process.wait()
                kills += 1
                assert_plain_reads(path, own, lives)
        process.stdout.close()
        last = max(last, TableReader(path).epoch)
    assert kills == 8
    assert reads > 100, reads


@pytest.mark.usefixtures("patient")
def test_single_reads_beside_a_writer_agree():
    """Ten million of them: scripts/bench/reads.py."""
    found: list[Beside] = []
    with writer() as path:
        while sum(one.epochs for one in found) <= 20 and len(found) < 100:  # the writer, too, has to have a core
            found.append(read_beside(path, 40_000, seed=11 + len(found)))
    assert not any(one.wrong or one.back for one in found), found
    assert sum(one.epochs for one in found) > 20, found
    assert sum(one.rows for one in found) > 10_000, found


def assert_plain_reads(path, own, lives):
    """What a new server answers with at once is what the killed one had shown last."""
    reader = PlainReader(path)
    found = reader.get(frozen(np.arange(IDS)))
    there = lives[found.epoch]
    assert np.array_equal(found.own, np.where(there, own[found.epoch], -1))
    assert np.array_equal(found.rows[there], row_of(np.flatnonzero(there), found.own[there]))


@pytest.mark.parametrize("killed", ["before its epoch", "amid the vector", "set again", "set again for a shown epoch"])
def test_readers_take_what_a_half_written_row_was_until_it_is_put_back(path, monkeypatch, killed):
    own, lives = histories()
    table = TableWriter(path, TableShape.of(5, False, IDS, 0, 1 << 20), 1, 1)
    for epoch in (0, 1):
        write_epoch(table, epoch, own, lives)
    reader = TableReader(path)
    before = reader.get(frozen(np.arange(IDS)))
    at = int(np.flatnonzero(lives[1] & (own[1] == 1))[0])
    slot = next(s for s in range(IDS) if table.mem[table.word(12) + s] == at)
    row = table.word(T_ROWS_AT) + slot * table.word(8)
    former = table.mem[row : row + table.word(8)].copy()
    # As `_replace` does it for epoch 2, killed on the way.
    table.remove(2, np.array([at]))
    if killed.startswith("set again"):
        other = int(np.flatnonzero(lives[1] & (np.arange(IDS) != at))[0])
        table.remove(2, np.array([other]))  # the last entry of the ring is another row's
    table.mem[row : row + 4] = table.mem[row] - 1, 2, table.mem[row + 2], 1
    table.mem[row + 4] = -1
    if killed == "before its epoch":
        table.mem[row + 1 : row + len(former)] = former[1:]
    assert table.mem[row + R_SEQ] % 2 == 1
    monkeypatch.setattr("freshet.state.served.reader._PATIENCE_S", 0.05)
    if killed == "set again for a shown epoch":
        table.publish(2)
        with pytest.raises(WriterGoneError):
            reader.get(frozen(np.arange(IDS)))
        return
    meanwhile = reader.get(frozen(np.arange(IDS)))
    assert meanwhile.epoch == 1 and np.array_equal(meanwhile.own, before.own)
    assert np.array_equal(meanwhile.rows[before.own >= 0], before.rows[before.own >= 0])
    assert sorted(reader.all()[0].tolist()) == np.flatnonzero(lives[1]).tolist()
    assert reader.few(frozen(np.array([at])), 1).own.tolist() == [1]
    assert_plain_reads(path, own, lives)
    TableWriter.take_over(path)
    after = reader.get(frozen(np.arange(IDS)))
    assert np.array_equal(after.own, before.own)
    assert np.array_equal(after.rows[after.own >= 0], before.rows[before.own >= 0])


def test_a_slot_that_the_index_names_counts_after_a_kill(path):
    table = TableWriter(path, TableShape.of(2, True, 10, 4096, 1 << 20), 1, 1)
    table.put(0, Texts.encode(["a", "bb"]), np.ones((2, 2), np.float32))
    table.publish(0)
    publish_word(table.mem, T_USED, 1)  # killed just before
    again = TableWriter.take_over(path)
    ids, _ = TableReader(path).all()
    assert ids.decode() == ["a", "bb"]
    again.put(1, Texts.encode(["bb", "c"]), np.ones((2, 2), np.float32))
    again.publish(1)
    assert TableReader(path).all()[0].decode() == ["a", "bb", "c"]


def test_a_ring_that_has_moved_on_is_said(path, monkeypatch):
    table = TableWriter(path, TableShape.of(2, False, 10, 0, 1), 1, 1)
    ids = np.arange(10)
    table.put(0, ids, np.zeros((10, 2), np.float32))
    table.publish(0)
    reader = TableReader(path)
    for epoch in range(1, 500):  # never published, and more than the ring holds
        table.put(epoch, ids, np.zeros((10, 2), np.float32))
    assert table.word(T_RESERVED) > 4096
    monkeypatch.setattr("freshet.state.served.reader._PATIENCE_S", 0.05)
    with pytest.raises(HistoryTooShortError, match="--history"):
        reader.get(frozen(ids))
    assert reader.misses > 1
    with pytest.raises(HistoryTooShortError, match="--history"):
        PlainReader(path).get(frozen(ids))
    table.publish(499)
    assert reader.get(frozen(ids)).epoch == 499
    monkeypatch.setattr("freshet.state.served.reader._PATIENCE_S", 300.0)
    for read in (lambda: reader.get(frozen(ids), 0), lambda: reader.all(0)):  # which does not come back
        with pytest.raises(HistoryTooShortError, match="--history"):
            read()


def test_a_machine_that_stands_still_has_a_reader_wait_for_its_writer(path, monkeypatch):
    table = TableWriter(path, TableShape.of(2, False, 10, 0, 1), 1, 1)
    ids, pauses, now = np.arange(10), [], [1.0]
    for epoch in range(500):
        table.put(epoch, ids, np.zeros((10, 2), np.float32))
        if epoch == 0:
            table.publish(0)

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += 60.0 if len(pauses) == 1 else seconds
        if len(pauses) == 3:
            table.publish(499)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("freshet.state.served.reader.time", clock)
    assert TableReader(path).get(frozen(ids)).epoch == 499


def test_positions_that_were_being_written_are_none(path):
    """Who takes over says them anew."""
    table = TableWriter(path, TableShape.of(2, False, 10, 0, 1), 1, 1)
    table.set_positions(np.array([[0, 1, 20, 3]]))
    table.mem[T_POSITION_SEQ] += 1  # killed amid the rows
    assert PlainReader(path).positions().tolist() == []
    again = TableWriter.take_over(path)
    assert TableReader(path).positions().tolist() == []
    again.set_positions(np.array([[0, 1, 21, 4]]))
    assert TableReader(path).positions().tolist() == [[0, 1, 21, 4]]


def test_another_reader_takes_the_place_of_the_plain_one(path):
    table = TableWriter(path, TableShape.of(2, True, 10, 4096, 1 << 20), 1, 1)
    table.put(0, Texts.encode(["a", "a name of more than eight bytes", ""]), np.ones((3, 2), np.float32))
    table.set_positions(np.array([[0, 1, 20, 3]]))
    table.publish(0)
    reader, asked = PlainReader(path), Texts.encode(["", "b", "a name of more than eight bytes"])
    assert reader.get(asked).own.tolist() == [0, -1, 0]
    reader.hand_over(TableReader(path))
    table.put(1, Texts.encode(["b"]), np.ones((1, 2), np.float32))
    table.publish(1)
    assert reader.get(asked).own.tolist() == [0, 1, 0]
    assert reader.positions().tolist() == [[0, 1, 20, 3]]


def test_bounds(path):
    table = TableWriter(path, TableShape.of(2, False, 10, 0, 1), 1, 1)
    with pytest.raises(TableFullError):
        table.put(0, np.arange(1025), np.zeros((1025, 2), np.float32))
    table.set_positions(np.array([[0, 1, 20, 3]]))
    assert TableReader(path).positions().tolist() == [[0, 1, 20, 3]]
    assert PlainReader(path).positions().tolist() == [[0, 1, 20, 3]]
    path.write_bytes(b"x" * 5000)
    with pytest.raises(NoTableError):
        TableReader(path)
