"""A model of the table's stores in every order that its fences allow, against a reader at every point between them.

On a weakly ordered processor (arm64) plain stores become visible in any order that releases and fences leave open, and
plain loads happen in any order between acquires. Here one row is replaced twice, its ring has room for one entry, and
a reader takes the row as of epoch 1. What it calls good must be the version of then, whole. Without any one of the
fences of state/served/read_kernels.py and write_kernels.py some schedule must show a bad read: the model sees them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

SCHEDULES = 10_000
RING = 1
# Two words of the row's vector tell its epoch; `seq` 0, `before` -1 at first.
START = dict.fromkeys(("seq", "reserved", "u_own", "u0", "u1"), 0)
START |= {"own": 1, "v0": 1, "v1": 1, "before": -1, "u_before": -1}
Store = tuple[str, int, str]  # word, value, "plain" or "release"; a fence is ("", 0, "fence")


def replacement(epoch: int, former: dict[str, int], number: int, without: str) -> Iterator[Store]:
    """The stores of `_replace`: the undo entry, then the row."""
    yield "reserved", number + 1, "release"
    if without != "ring fence":
        yield "", 0, "fence"
    yield "u_own", former["own"], "plain"
    yield "u_before", former["before"], "plain"
    yield "u0", former["v0"], "plain"
    yield "u1", former["v1"], "plain"
    yield "seq", 2 * number + 1, "plain" if without == "odd release" else "release"
    if without != "row fence":
        yield "", 0, "fence"
    yield "own", epoch, "plain"
    yield "before", number, "plain"
    yield "v0", epoch, "plain"
    yield "v1", epoch, "plain"
    yield "seq", 2 * number + 2, "plain" if without == "even release" else "release"


def visible_order(stores: list[Store], rng: random.Random) -> list[Store]:
    """One of the orders in which the stores may become visible."""
    left = list(enumerate(stores))
    found: list[Store] = []
    while left:
        ready = []
        for at, (k, (word, _, kind)) in enumerate(left):
            earlier = left[:at]
            blocked = bool(earlier) if kind in ("release", "fence") else False
            blocked = blocked or any(other[2] == "fence" or other[0] == word for _, other in earlier)
            if not blocked:
                ready.append((at, k))
        at, _ = rng.choice(ready)
        found.append(left.pop(at)[1])
    return [store for store in found if store[2] != "fence"]


class Reader:
    """`read_slot` for one row as of epoch 1, a load at a time."""

    def __init__(self, without: str, rng: random.Random) -> None:
        self._without, self._rng = without, rng

    def read(self) -> Iterator[str]:
        """Yields the word to load, is sent its value; returns what it takes for the vector, or None."""
        while True:
            loads = ["own", "before", "v0", "v1"]
            self._rng.shuffle(loads)
            row, early = {}, 0
            if self._without == "first look":  # what follows a plain load may come before it
                early = self._rng.randrange(len(loads) + 1)
            for word in loads[:early]:
                row[word] = yield word
            seq = yield "seq"
            if seq % 2:
                continue
            loads, again = loads[early:], None
            if self._without == "read fence":  # the second look may come before the loads
                loads.insert(self._rng.randrange(len(loads) + 1), "again")
            for word in loads:
                value = yield "seq" if word == "again" else word
                row[word] = value
            again = row["again"] if "again" in row else (yield "seq")
            if again == seq:
                break
        if row["own"] <= 1:
            return row["v0"], row["v1"], row["own"]
        before = row["before"]
        while before >= 0:
            loads = ["u_own", "u_before", "u0", "u1"]
            self._rng.shuffle(loads)
            entry = {}
            if self._without == "ring read fence":
                loads.insert(self._rng.randrange(len(loads) + 1), "reserved")
            for word in loads:
                entry[word] = yield word
            reserved = entry["reserved"] if "reserved" in entry else (yield "reserved")
            if reserved - before > RING:
                return None  # the ring has moved on: it begins again
            if entry["u_own"] <= 1:
                return entry["u0"], entry["u1"], entry["u_own"]
            before = entry["u_before"]
        return "absent"


def bad_reads(without: str, seed: int, schedules: int = SCHEDULES) -> int:
    """Schedules in which the reader takes for good what never was the row as of epoch 1."""
    rng, bad = random.Random(seed), 0
    for k in range(schedules):
        second = {"own": 2, "before": 0, "v0": 2, "v1": 2}
        first = list(replacement(2, START, 0, without))
        stores = visible_order(first + list(replacement(3, second, 1, without)), rng)
        stores = stores[: k % (len(stores) + 1)]  # the writer is killed, at every point in turn
        memory, reader = dict(START), Reader(without, rng).read()
        word, idle = next(reader), 0
        try:
            while idle < 20:
                for _ in range(rng.randrange(len(stores) + 1) if stores else 0):  # in bursts, as processors do
                    name, value, _ = stores.pop(0)
                    memory[name] = value
                idle += not stores
                for _ in range(rng.randrange(1, 12)):
                    word = reader.send(memory[word])
        except StopIteration as end:
            bad += end.value not in (None, (1, 1, 1))
    return bad


def test_no_order_that_the_fences_allow_shows_a_bad_read() -> None:
    assert bad_reads("", seed=5) == 0


OF_A_ROW = ["ring fence", "row fence", "even release", "first look", "read fence", "ring read fence"]


@pytest.mark.parametrize("without", OF_A_ROW)
def test_without_one_of_them_some_order_does(without: str) -> None:
    assert bad_reads(without, seed=5) > 0


def bad_publications(without: str, seed: int, schedules: int = SCHEDULES) -> int:
    """Schedules in which a reader takes for published what it can't see whole yet.

    So are a record of the tail and its length, a slot and the index that names it, the rows of an epoch and its number:
    words in any order, then the one that shows them; twice, for the reader may meet the first or the second.
    """
    rng, bad = random.Random(seed), 0
    kind = "plain" if without == "release" else "release"
    for k in range(schedules):
        written: list[Store] = []
        for n in (1, 2):
            written += [(f"{word}{n}", n, "plain") for word in ("a", "b", "c")]
            written.append(("shown", n, kind))
        stores = visible_order(written, rng)
        stores = stores[: k % (len(stores) + 1)]
        memory = dict.fromkeys(("shown", *(f"{word}{n}" for word in "abc" for n in (1, 2))), 0)
        loads = [f"{word}{n}" for word in "abc" for n in (1, 2)]
        rng.shuffle(loads)
        loads.insert(rng.randrange(len(loads) + 1) if without == "acquire" else 0, "shown")
        seen = {}
        for word in loads:
            for _ in range(rng.randrange(len(stores) + 1)):
                name, value, _ = stores.pop(0)
                memory[name] = value
            seen[word] = memory[word]
        bad += any(seen[f"{word}{n}"] != n for n in range(1, seen["shown"] + 1) for word in "abc")
    return bad


def test_what_is_published_is_seen_whole() -> None:
    assert bad_publications("", seed=6) == 0


@pytest.mark.parametrize("without", ["release", "acquire"])
def test_not_so_without_either_of_them(without: str) -> None:
    assert bad_publications(without, seed=6) > 0
