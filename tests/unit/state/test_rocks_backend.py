from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet.state.rocks_backend import RocksStore
from freshet.state.sweep import Mutations
from tests.support.simulation.dict_backend import DictBackend
from tests.support.stages.rocks_part import RocksPart
from tests.unit.state.backend_contract import BackendContract


class TestDictBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> DictBackend:
        return DictBackend()


class TestRocksBackend(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RocksPart]:
        store = RocksStore(tmp_path / "state")
        for neighbour in ("storage1-1", "storage1-12", "storage", "t"):  # others in the same folder are not ours
            RocksPart(store, neighbour).apply([("a", b"not ours")], [])
        yield RocksPart(store, "storage1-1-0")
        assert [len(list(store.items(name))) for name in ("storage1-1", "storage1-12", "storage", "t")] == [1] * 4
        store.close()


def test_a_dict_backend_keeps_a_copy() -> None:
    entries = {"a": b"1"}
    DictBackend(entries).apply([("b", b"2")], [])
    assert entries == {"a": b"1"}


def test_a_folder_opened_again_holds_what_was_committed(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.commit({
        "storage1-0": Mutations([("a", b"1"), ("b", b"2")]),
        "partitioner": Mutations([("a", b"3")]),
    })  # fmt: skip
    store.commit({"storage1-0": Mutations([("c", b"4"), ("a", b"5")], ["b"])})
    store.close()
    store = RocksStore(tmp_path)
    assert sorted(store.items("storage1-0")) == [("a", b"5"), ("c", b"4")]
    assert list(store.items("partitioner")) == [("a", b"3")]
    store.close()


def test_puts_come_before_deletes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.commit({"sink-0": Mutations([("a", b"1"), ("a", b"2"), ("b", b"1")], ["b"])})
    assert list(store.items("sink-0")) == [("a", b"2")]
    store.close()


LOGGED = ("partitioner", "journal/")


class TestLoggedEntries(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RocksPart]:
        store = RocksStore(tmp_path, ("partitioner", ""))
        yield RocksPart(store, "partitioner")
        store.close()


def test_logged_entries_come_back_from_a_folder_opened_again(tmp_path: Path) -> None:
    page, block = b"p" * 70_000, bytes(range(256)) * 500
    store = RocksStore(tmp_path, LOGGED)
    puts = [("journal/0", block), ("journal/1", b"next"), ("s/0@1", page)]
    store.commit({"partitioner": Mutations(puts), "sink-0": Mutations([("journal/0", b"another's")])})
    store.commit({"partitioner": Mutations([("journal/2", b"last")], ["journal/0", "nothing"])})
    store.close()
    store = RocksStore(tmp_path, LOGGED)
    left = [("journal/1", b"next"), ("journal/2", b"last"), ("s/0@1", page)]
    assert sorted(store.items("partitioner")) == left
    assert list(store.items("sink-0")) == [("journal/0", b"another's")]
    store.commit({"partitioner": Mutations([], ["journal/1", "journal/2"])})
    store.close()
    assert not list((tmp_path / "values").iterdir())


def test_a_commit_that_fails_keeps_what_it_would_have_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RocksStore(tmp_path, LOGGED)
    store.commit({"partitioner": Mutations([("journal/0", b"needed")])})
    store.close()
    store = RocksStore(tmp_path, LOGGED)
    monkeypatch.setattr(store, "_db", BrokenDb(store._db))
    with pytest.raises(OSError, match="disk full"):
        store.commit({"partitioner": Mutations([("journal/1", b"new")], ["journal/0"])})
    store.close()
    store = RocksStore(tmp_path, LOGGED)
    assert list(store.items("partitioner")) == [("journal/0", b"needed")]
    store.close()


class BrokenDb:
    """A RocksDB whose disk is full."""

    def __init__(self, db: Any) -> None:
        self.close = db.close

    def write(self, batch: object) -> None:
        raise OSError("disk full")
