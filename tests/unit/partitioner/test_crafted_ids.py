"""Ids made up to fall on one place of the index: they do so under the seed that they were made for, and no other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from freshet.kernels.kernel import kernel
from freshet.operators.sink import coalesce, dealing
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.graph_tables import MASTER
from freshet.schema import Features
from freshet.state.salt import Salt, hash_text, make_salt, mix
from tests.support.stages.sunk import WIDTH, block

KNOWN, SECRET = 0, 0x5EC4E7
WORD = 2**64 - 1
Id = int | str


def ids_on_one_place(salt: Salt, n: int) -> list[int]:
    """Numbers with the same 32 bits of hash: `mix` computed backwards."""
    found = []
    for low in range(n):
        z = 12345 << 32 | low
        z = z * pow(int(salt.second), -1, 2**64) & WORD
        z ^= z >> 29 ^ z >> 58
        z = z * pow(int(salt.first), -1, 2**64) & WORD
        z ^= z >> 32
        z ^= int(salt.start)
        found.append(z - 2**64 if z >= 2**63 else z)
    return found


@kernel
def _scan(salt: Salt, text: np.ndarray, found: np.ndarray, places: int) -> int:
    """Numbers in 10 digits whose text falls on place 0 of an index of so many places, or fewer."""
    count = number = 0
    while count < len(found):
        rest = number
        for k in range(10):
            text[9 - k] = 48 + rest % 10
            rest //= 10
        if np.int64(mix(salt, np.int64(hash_text(salt, text, 0, 10)))) < (1 << 32) // places:
            found[count] = number
            count += 1
        number += 1
    return number


def names_on_one_place(salt: Salt, n: int) -> list[str]:
    """Strings on the first place of an index with room for them all."""
    found = np.empty(n, np.int64)
    _scan(salt, np.zeros(10, np.uint8), found, 1 << (4 * n).bit_length())
    return [f"{number:010}" for number in found.tolist()]


def longest_run(seed: int, ids: list[Id], kind: str) -> int:
    """The most entries that one search of the index of these ids may look at."""
    partitioner = Partitioner(1, Features(1), PartitionerConfig(id_kind=kind, hash_seed=seed))
    partitioner.partition(events_of([("add_vertex", one) for one in ids], Features(1), kind))
    assert partitioner.vertices == len(ids)
    gaps = np.flatnonzero(partitioner._keys.entries == 0)
    return int(np.diff(gaps, append=gaps[0] + len(partitioner._keys.entries)).max()) - 1


@pytest.mark.parametrize(("kind", "make"), [("int", ids_on_one_place), ("string", names_on_one_place)])
def test_ids_crafted_without_the_seed_do_no_harm(kind: str, make: Callable[[Salt, int], list[Id]]) -> None:
    crafted = make(make_salt(KNOWN), 1000)
    assert longest_run(KNOWN, crafted, kind) >= 900, "they are what they are meant to be"
    assert longest_run(SECRET, crafted, kind) < 100


@pytest.mark.parametrize("types", [1, 50])
def test_edges_between_known_rows_do_not_gather(types: int) -> None:
    """Who adds the vertices knows their rows: 0, 1, 2, ..."""
    names = [f"t{k}" for k in range(types)]
    rows = [("add_edge", k % 40, k // types % 50, 1.0, names[k % types]) for k in range(2000)]
    partitioner = Partitioner(1, Features(1), PartitionerConfig(hash_seed=SECRET))
    partitioner.partition(events_of(rows, Features(1), "int"))
    gaps = np.flatnonzero(partitioner._edges.rows.entries == 0)
    assert int(np.diff(gaps).max()) - 1 < 100


def test_tables_of_an_epoch_have_a_salt_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of int ids are the ids: the Sink's look at an epoch and the coalescer hash them too."""
    used: list[Salt] = []
    salt = make_salt(3)
    for module in (dealing, coalesce):
        monkeypatch.setattr(module, "scratch_salt", lambda: used.append(salt) or salt)
    (found,) = dealing.deal("sink", 1, [block(1, range(5), dead=range(4, 9))], WIDTH, 1)
    assert found.keys[found.changed :].tolist() == [5, 6, 7, 8]
    coalesce.Coalescer(1, "int").take()
    assert len(used) == 2


def masters(seed: int) -> list[int]:
    """The part that `hash` gives each of 200 vertices."""
    partitioner = Partitioner(4, Features(1), PartitionerConfig(strategy="hash", hash_seed=seed))
    partitioner.partition(events_of([("add_vertex", k) for k in range(200)], Features(1), "int"))
    return partitioner._t.vertex.data[:200, MASTER].tolist()


def test_the_seed_decides_where_hash_puts_a_vertex() -> None:
    assert masters(1) == masters(1) != masters(2)
    assert np.bincount(masters(1), minlength=4).min() > 25
