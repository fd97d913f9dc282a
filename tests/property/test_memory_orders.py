"""The table's kernels in every order that their fences allow, a reader beside a writer that is killed at every point.

On a weakly ordered processor (arm64) plain stores become visible in any order that releases and fences leave open, and
plain loads happen in any order between acquires. The kernels of state/served run here one load and one store at a time
(tests/support/serving/stepped_memory.py). Whatever a reader calls good must be the rows as of one epoch, whole. Without
any one of the fences, releases and acquires some schedule must show a bad read: the test sees them.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from freshet.kernels import atomics
from freshet.state import salt
from freshet.state.served import read_kernels, write_kernels
from freshet.state.served.layout import T_EPOCH, T_RING, TableShape
from freshet.state.served.mapped import NEWEST
from freshet.state.served.writer import TableWriter
from tests.support.serving.stepped_memory import (
    Beside,
    EndlessError,
    Fences,
    Kernels,
    Recording,
    Store,
    plain_kernels,
    visible_order,
)

SCHEDULES = 4_000
WIDTH = 3
ID, NEW = 7, 8
MISSED, STUCK, ABSENT = read_kernels.MISSED, read_kernels.STUCK, read_kernels.ABSENT
POSITIONS = [np.array([[0, 0, 10 * epoch, epoch]] * epoch) for epoch in range(4)]


class Writer:
    """Kernels of the writer on a memory that writes down what they store."""

    def __init__(self, words: np.ndarray, fences: Fences, kernels: dict[str, Kernels]) -> None:
        self.memory, self._kernels, self._publish = Recording(words), kernels["write_kernels"], kernels["atomics"]
        fences.memory = self.memory

    def put(self, epoch: int, id_: int = ID) -> None:
        rows = np.full((1, WIDTH), epoch, np.float32)
        ids, slots = np.array([id_]), np.empty(1, np.int64)
        self._kernels["put_numbers"](self.memory, self.memory.floats, np.array([epoch]), ids, rows, slots)

    def remove(self, epoch: int) -> None:
        rows = np.empty((0, WIDTH), np.float32)
        self._kernels["remove_numbers"](self.memory, self.memory.floats, epoch, np.array([ID]), rows)

    def publish(self, epoch: int) -> None:
        self._publish["publish_word"](self.memory, T_EPOCH, epoch)

    def set_positions(self, epoch: int) -> None:
        self._kernels["set_positions"](self.memory, POSITIONS[epoch])


def replaced(writer: Writer) -> None:
    for epoch in (2, 3):
        writer.put(epoch)
        writer.publish(epoch)


def replaced_again_and_again(writer: Writer) -> None:
    """Also twice for one epoch that is not shown yet, as after a kill."""
    for epoch in (2, 3, 4, 5):
        writer.put(epoch)
        writer.put(epoch)
        writer.publish(epoch)


def removed_and_put(writer: Writer) -> None:
    writer.remove(2)
    writer.publish(2)
    writer.put(3)
    writer.publish(3)


def added(writer: Writer) -> None:
    """An id that was not there, and its next row."""
    for epoch in (2, 3):
        writer.put(epoch, NEW)
        writer.publish(epoch)


# What is written, which id is read, and the epoch of its row as of each epoch: None where it has none.
Scene = tuple[Callable[[Writer], None], int, dict[int, int | None]]
SCENES: dict[str, Scene] = {
    "replaced": (replaced, ID, {1: 1, 2: 2, 3: 3}),
    "again and again": (replaced_again_and_again, ID, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
    "removed": (removed_and_put, ID, {1: 1, 2: None, 3: 3}),
    "added": (added, NEW, {1: None, 2: 2, 3: 3}),
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """A table at epoch 1 with one id."""
    table = TableWriter(tmp_path_factory.mktemp("table") / "a.table", TableShape.of(WIDTH, False, 8, 0, 0), 1, 1)
    table.put(1, np.array([ID]), np.full((1, WIDTH), 1, np.float32))
    table.set_positions(POSITIONS[1])
    table.publish(1)
    return table.mem.copy()


def kernels_of(fences: Fences, without: dict[str, Any]) -> dict[str, Kernels]:
    spins = {"_SPINS": 6}  # of a reader that waits for the writer
    return plain_kernels(fences, atomics, salt, read_kernels, write_kernels, **spins, **without)


def orders(words: np.ndarray, fences: Fences, stores: list[Store], seed: str, schedules: int) -> Iterator[Beside]:
    """Memories of readers beside that writer, which is killed at any point in half of them."""
    rng = random.Random(zlib.crc32(seed.encode()))
    order: list[Store] = []
    for k in range(schedules):
        if k % 4 == 0:
            order = visible_order(stores, rng)
        end = len(order) if rng.random() < 0.5 else rng.randrange(len(order) + 1)
        fences.memory = Beside(words, order[:end], rng)
        yield fences.memory


def judged(code: int, own: int, row: np.ndarray, rows: dict[int, int | None]) -> str:
    """What a read came to; "bad" where it is no row of the epoch that it is said to be of."""
    if code in (MISSED, STUCK):
        return "missed" if code == MISSED else "stuck"
    expected = rows.get(code, -9)
    if expected is None:
        return "absent" if own == ABSENT else "bad"
    good = own == expected and row.tolist() == [expected] * WIDTH
    return ("newest" if code == max(rows) else "earlier") if good else "bad"


def reads(words: np.ndarray, scene: str, ring: int = 1, schedules: int = SCHEDULES, **without: Any) -> Counter[str]:
    """What the reads of so many schedules came to, without what is replaced in the kernels (see `plain_kernels`)."""
    act, id_, rows = SCENES[scene]
    words, found = words.copy(), Counter[str]()
    words[T_RING] = ring
    fences = Fences()
    kernels = kernels_of(fences, without)
    read, ids = kernels["read_kernels"]["read_numbers"], np.array([id_])
    with np.errstate(over="ignore"):
        writer = Writer(words, fences, kernels)
        act(writer)
        for memory in orders(words, fences, writer.memory.stores, f"{scene} {ring}", schedules):
            own, row = np.full(1, -9), np.full((1, WIDTH), -9, np.float32)
            try:
                code = read(memory, memory.floats, NEWEST, ids, own, row)
            except EndlessError:
                found["bad"] += 1
                continue
            found[judged(code, own[0], row[0], rows)] += 1
    return found


@pytest.mark.parametrize("ring", [1, 2])
@pytest.mark.parametrize("scene", SCENES)
def test_no_order_that_the_fences_allow_shows_a_bad_read(words: np.ndarray, scene: str, ring: int) -> None:
    found = reads(words, scene, ring)
    assert found["bad"] == found["stuck"] == 0, found
    assert found["newest"] > SCHEDULES // 50, found
    assert found["earlier"] + found["absent"] > SCHEDULES // 5, found


def plain_load(mem: Any, at: int) -> Any:
    return mem[at]


def plain_store(mem: Any, at: int, value: int) -> None:
    mem[at] = value


def plain_if_even(mem: Any, at: int, value: int) -> None:
    """Of a sequence: what says that the row is whole again."""
    if value % 2:
        mem.store_release(int(at), value)
    else:
        mem[at] = value


def no_fence() -> None:
    pass


WITHOUT: dict[str, tuple[str, dict[str, Any]]] = {
    "fence of the ring": ("again and again", {"_keep_undo__fence_release": no_fence}),
    "fence of a row": ("replaced", {"_replace__fence_release": no_fence}),
    "release of a whole row": ("replaced", {"_replace__store_release": plain_if_even}),
    "acquire of the sequence": ("replaced", {"read_slot__load_acquire": plain_load}),
    "fence of the reader": ("replaced", {"read_slot__fence_acquire": no_fence}),
    "fence of the reader in the ring": ("again and again", {"_read_ring__fence_acquire": no_fence}),
    "release of a new slot": ("added", {"_name__store_release": plain_store}),
    "acquire of the index": ("added", {"find_number_from__load_acquire": plain_load}),
    "release of the epoch": ("replaced", {"publish_word__store_release": plain_store}),
    "acquire of the epoch": ("added", {"read_numbers__load_acquire": plain_load}),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_without_one_of_them_some_order_does(words: np.ndarray, what: str) -> None:
    scene, without = WITHOUT[what]
    assert reads(words, scene, schedules=2 * SCHEDULES, **without)["bad"] > 0


def bad_positions(words: np.ndarray, **without: Any) -> int:
    """Schedules in which a reader takes positions that the writer has never set together."""
    fences = Fences()
    kernels = kernels_of(fences, without)
    writer = Writer(words, fences, kernels)
    for epoch in (2, 3):
        writer.set_positions(epoch)
    bad, taken = 0, Counter[int]()
    for memory in orders(words, fences, writer.memory.stores, "positions", SCHEDULES):
        out = np.zeros((3, 4), np.int64)
        count = kernels["read_kernels"]["read_positions"](memory, out)
        if count != STUCK:
            taken[count] += 1
            bad += out[:count].tolist() != POSITIONS[count].tolist()
    assert min(taken[count] for count in (1, 2, 3)) > SCHEDULES // 100
    return bad


def test_positions_are_those_of_one_epoch(words: np.ndarray) -> None:
    assert bad_positions(words) == 0


@pytest.mark.parametrize(
    "without",
    [
        {"set_positions__fence_release": no_fence},
        {"set_positions__store_release": plain_if_even},
        {"read_positions__fence_acquire": no_fence},
        {"read_positions__load_acquire": plain_load},
    ],
    ids=lambda without: next(iter(without)),
)
def test_positions_are_mixed_without_one_of_them(words: np.ndarray, without: dict[str, Any]) -> None:
    assert bad_positions(words, **without) > 0
