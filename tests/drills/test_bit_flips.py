"""Some of the flips of scripts/drills/flip_bits.py: none of them gives a wrong row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.drills.bit_flips import Drill, embed_drill, flink_drill, flip, local_drill


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "flips"),
    [(local_drill, 4), (embed_drill, 4), (partial(flink_drill, savepoint=False), 2)],
    ids=["local", "embed", "checkpoint"],
)
def test_no_flipped_bits_give_a_wrong_row(make: Callable[[Path], Drill], flips: int, tmp_path: Path) -> None:
    drill = make(tmp_path)
    try:
        found = drill.run(flips, Random(5))
    finally:
        drill.job.end()
    assert found.wrong == []
    assert found.refused + len(found.no_effect) == flips


def test_three_bits_are_flipped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    places = flip(path, Random(1))
    assert sum(byte.bit_count() for byte in path.read_bytes()) == len(places) == 3
