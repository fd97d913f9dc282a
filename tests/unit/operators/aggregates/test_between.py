"""Stores of every aggregate between two sets of rows, held against a recomputation after each epoch."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.gnn.synopses.of_messages import Synopsis
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.sums.store import SumStore
from tests.support.stages.between import Between, Related, play, related, specs

CASES = {f"{name}-{form}": case for name, spec in specs().items() for form, case in related(spec).items()}


def aggregates(kept: Between, states: np.ndarray) -> np.ndarray:
    """What UPDATE reads: states of a softmax may differ in their shifts alone."""
    return kept.relation.synopsis.read(states, kept.in_edges())


@pytest.mark.parametrize(("parts", "slots"), [(1, (37, 6)), (2, (37, 6)), (2, (5, 40))])
@pytest.mark.parametrize("name", CASES)
def test_it_is_what_a_recomputation_makes_of_the_edges_and_rows(name: str, parts: int, slots: tuple[int, int]) -> None:
    kept = Between.of(*CASES[name], parts, slots)
    before, checked = kept.read(), []

    def check(touched: np.ndarray) -> None:
        nonlocal before
        part, _, dst, _ = kept.ends()
        wanted = np.bincount(part * slots[1] + dst, minlength=parts * slots[1])
        np.testing.assert_array_equal(kept.in_edges(), wanted)
        got, want = aggregates(kept, kept.read()), aggregates(kept, kept.want())
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        changed = kept.every()[(kept.read() != before).any(axis=1)]
        assert set(changed.tolist()) <= set(touched.tolist()), "what has changed is said"
        assert set(touched.tolist()) <= set(kept.every().tolist())
        before = kept.read()
        checked.append(len(kept.edges))

    play(kept, parts + slots[0], 12, check)
    assert len(checked) == 12 and min(checked) > 0
    assert isinstance(kept.store, FoldStore | SumStore)
    ends = sorted((part, src, dst) for part, src, dst, _ in kept.edges)
    for at, lists, out in ((kept.sources, kept.store.lists.out, 1), (kept.targets, kept.store.lists.inn, -1)):
        rows, slots, _ = lists.entries()
        below = (1 << at.shift) - 1
        found = zip((rows >> at.shift).tolist(), (rows & below).tolist(), slots.tolist(), strict=True)
        assert sorted((part, *(of, other)[::out]) for part, of, other in found) == ends, "lists hold slots of the part"
    assert (kept.sources.shift == kept.targets.shift) == (parts == 1), "parts are numbered in other strides"


@pytest.mark.parametrize("name", ["sum-rows", "gat-columns", "gatv2-attr-rows"])
def test_each_end_is_cleared_by_its_own_slots(name: str) -> None:
    kept = Between.of(*CASES[name], 2, (20, 5))
    play(kept, 1, 4, lambda _: None)
    kept.apply({}, {}, {})
    store = kept.store
    assert isinstance(store, FoldStore | SumStore)
    assert store.z.data.any()
    kept.store.clear(np.arange(len(store.z.data), dtype=np.int32), np.empty(0, np.int32))
    assert not store.z.data.any()
    if isinstance(store, FoldStore) and store.q is not store.z:
        assert store.q.data.any()
        kept.store.clear(np.empty(0, np.int32), kept.every())
        assert not store.q.data.any()


def test_between_them_they_have_every_form_of_ends() -> None:
    forms = {type(relation.synopsis).__name__ for relation, _ in CASES.values()}
    assert forms == {
        "InvertibleSynopsis", "MonotonicSynopsis", "MomentsSynopsis", "ProductSynopsis", "GatedSynopsis",
        "SoftmaxSynopsis", "EdgeSoftmaxSynopsis", "NetworkSynopsis",
    }  # fmt: skip
    narrow = {name.removesuffix("-columns") for name in CASES if name.endswith("-columns")}
    assert {"gat", "gatv2", "transformer", "gates", "network"} <= narrow
    cases: list[tuple[Related, Synopsis]] = list(CASES.values())
    assert any(relation.target_width for relation, _ in cases) and any(
        not relation.target_width for relation, _ in cases
    )
