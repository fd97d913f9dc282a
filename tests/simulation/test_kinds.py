"""Simulated jobs whose vertices have kinds: each epoch equals the oracle, and a run without crashes bit by bit.

`check(draw_kinds(seed))` replays a seed.
"""

from __future__ import annotations

import os

import pytest

from tests.support.simulation.drawn import Result, check
from tests.support.simulation.drawn_kinds import BY_DEGREES, MANY, MESSAGES, WRITTEN, draw_kinds

SOME, SEEDS = 8, int(os.environ.get("FRESHET_SEEDS", "13"))


def wrong(seeds: range, broken: str = "", family: int = 0) -> tuple[dict[int, str], list[Result]]:
    """What was noticed, by seed, and the results of the others."""
    noticed, results = dict[int, str](), list[Result]()
    for seed in seeds:
        try:
            results.append(check(draw_kinds(seed, family), broken))
        except Exception as error:
            noticed[seed] = f"{type(error).__name__}: {str(error)[:300]}"
    return noticed, results


def test_a_seed_draws_the_same_case_again() -> None:
    assert str(draw_kinds(3)) == str(draw_kinds(3))
    assert draw_kinds(3).events.encode() == draw_kinds(3).events.encode()


def test_some_seeds() -> None:
    found, results = wrong(range(SOME))
    assert not found
    assert sum(result.crashes > 0 for result in results) > SOME // 3


@pytest.mark.parametrize("family", [MANY, BY_DEGREES, MESSAGES, WRITTEN])
def test_other_convs_of_relations(family: int) -> None:
    found, results = wrong(range(4), family=family)
    assert not found
    assert sum(result.crashes > 0 for result in results) > 1


@pytest.mark.slow
@pytest.mark.parametrize("family", [0, MANY, BY_DEGREES, MESSAGES, WRITTEN])
def test_many_seeds(family: int) -> None:
    found, results = wrong(range(SOME, SEEDS), family=family)
    assert not found
    assert sum(result.crashes > 0 for result in results) > len(results) // 2
    assert sum(result.rows for result in results) > 30 * len(results)


def test_a_page_that_a_sweep_leaves_out_is_noticed() -> None:
    """It matters only if a restore reads it and it had changed."""
    found, _ = wrong(range(35, 41), "page")
    kinds = {text.split(":")[0] for text in found.values()}
    assert len(found) > 1
    assert kinds <= {"AssertionError", "LostUpdateError", "IndexError", "BadEpochError"}
