from collections.abc import Iterator
from pathlib import Path

import pytest

from state.backends import DictBackend, RocksBackend, RocksStore
from state.sweep import Mutations
from tests.unit.state.backend_contract import BackendContract


class TestDictBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> DictBackend:
        return DictBackend()


class TestRocksBackend(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RocksBackend]:
        store = RocksStore(tmp_path / "state")
        for neighbour in ("storage1-1", "storage1-12", "storage", "t"):  # others in the same folder are not ours
            store.part(neighbour).put("a", b"not ours")
        yield store.part("storage1-1-0")
        assert [len(list(store.part(name).items())) for name in ("storage1-1", "storage1-12", "storage", "t")] == [
            1
        ] * 4
        store.close()


def test_a_dict_backend_keeps_a_copy() -> None:
    entries = {"a": b"1"}
    DictBackend(entries).put("b", b"2")
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
    assert sorted(store.part("storage1-0").items()) == [("a", b"5"), ("c", b"4")]
    assert list(store.part("partitioner").items()) == [("a", b"3")]
    store.close()


def test_puts_come_before_deletes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.commit({"sink-0": Mutations([("a", b"1"), ("a", b"2"), ("b", b"1")], ["b"])})
    assert list(store.part("sink-0").items()) == [("a", b"2")]
    store.close()
