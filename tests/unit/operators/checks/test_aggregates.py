"""Aggregates by themselves: every built-in one passes, and wrong ones are caught by two messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from freshet.gnn.answers import ClaimAnswer, is_refuted
from freshet.gnn.smallest import smallest
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import InvertibleSynopsis, MonotonicSynopsis
from freshet.gnn.synopses.redone import RedoneSynopsis
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis
from freshet.operators.aggregates.exact_sums import merge_partial_sums
from freshet.operators.aggregates.registry import AGGREGATES, aggregate_of
from freshet.operators.checks.aggregates import FULL_PASS, MERGED, ORDER, TAKING_BACK, check_aggregate
from freshet.operators.checks.between import Related
from freshet.operators.checks.cases import MessageCase, OneMessage, smaller
from freshet.operators.checks.exporting import builtin_relations
from freshet.operators.checks.kept import KeptAggregate

BUILTIN = builtin_relations()


@pytest.mark.parametrize("name", BUILTIN)
def test_every_builtin_aggregate_passes(name: str) -> None:
    answers = check_aggregate(KeptAggregate.of(BUILTIN[name]), per_size=24)
    assert not is_refuted(answers), "\n".join(map(str, answers))
    synopsis = BUILTIN[name].synopsis
    claims = [ORDER, TAKING_BACK] + ([MERGED] if synopsis.merges else [])
    claims += [] if BUILTIN[name].edge.attributes or synopsis.needs_all else [FULL_PASS]
    assert [one.claim for one in answers] == [law.claim for law in claims]
    assert all(one.answer == "searched" and one.cases == 96 for one in answers)


def test_they_are_all_of_the_registry() -> None:
    inside = {type(factor) for one in BUILTIN.values() for factor in getattr(one.synopsis, "factors", ())}
    inside |= {type(one.synopsis.inner) for one in BUILTIN.values() if isinstance(one.synopsis, NetworkSynopsis)}
    of_users = {RedoneSynopsis}  # test_layers.py has some
    assert {type(one.synopsis) for one in BUILTIN.values()} | inside | of_users == set(AGGREGATES)


SOFTMAX = Related(2, 2, SoftmaxSynopsis(Score("dot", 1, 1, 1, 1, 2)))


class WithoutDenominator(SoftmaxSynopsis):
    """Reads N, and not N / D."""

    def read(self, state: np.ndarray, count: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(state[:, 2:])


@dataclass(frozen=True)
class LargestBySums(InvertibleSynopsis):
    """A maximum that is declared invertible, and so kept as a sum."""

    def whole(self, messages: np.ndarray, dst: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return MonotonicSynopsis("max").whole(messages, dst, targets)


@dataclass(frozen=True)
class MeanWithoutCount(InvertibleSynopsis):
    """A mean whose parts send means, which are averaged: how many messages each has is forgotten."""

    def whole(self, messages: np.ndarray, dst: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sums = super().whole(messages, dst, targets)
        return sums / np.maximum(np.bincount(dst, minlength=len(targets)), 1)[:, None].astype(np.float32)


def of_class(synopsis: Any, kind: type, **changes: Any) -> tuple[Related, Any]:
    """A relation whose synopsis is kept as those of that class are."""
    return Related(changes.pop("width", 1), 0, synopsis), replace(AGGREGATES[kind], **changes)


def without_denominator() -> tuple[Related, Any]:
    synopsis = WithoutDenominator(SOFTMAX.synopsis.score)  # type: ignore[attr-defined]
    return replace(SOFTMAX, synopsis=synopsis), AGGREGATES[SoftmaxSynopsis]


def forgotten_shift() -> tuple[Related, Any]:
    return SOFTMAX, replace(aggregate_of(SOFTMAX.synopsis), merger=lambda _: merge_partial_sums)


WRONG: dict[str, Callable[[], tuple[Related, Any]]] = {
    "a mean that forgets its count": lambda: of_class(MeanWithoutCount("sum"), InvertibleSynopsis),
    "a merge that adds": lambda: of_class(
        MonotonicSynopsis("max"), MonotonicSynopsis, merger=lambda _: merge_partial_sums
    ),
    "a merge that forgets the shift": forgotten_shift,
    "a softmax without its denominator": without_denominator,
    "a maximum declared invertible": lambda: of_class(LargestBySums("sum"), InvertibleSynopsis),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_refuted_by_two_messages(name: str) -> None:
    relation, aggregate = WRONG[name]()
    refuted = [one for one in check_aggregate(KeptAggregate.of(relation, aggregate)) if one.answer == "refuted"]
    assert refuted
    for one in refuted:
        assert 1 <= one.case.count("message ") <= 2, str(one)
        assert "but all messages at once make" in one.case


def test_what_was_found_is_shown_with_both_results() -> None:
    relation, aggregate = WRONG["a merge that adds"]()
    (answer,) = [one for one in check_aggregate(KeptAggregate.of(relation, aggregate)) if one.answer == "refuted"]
    assert str(answer).splitlines()[0] == "states of parts merge into that of the whole: refuted"
    assert answer.case.splitlines() == [
        "message [0]",
        "message [-1], in part 1",
        "after epoch 1: [-1], but all messages at once make [0]",
    ]
    assert answer.as_json() == {"claim": answer.claim, "answer": "refuted", "case": answer.case}
    assert ClaimAnswer("it holds", "searched", 1234).words == "searched 1,234 cases"


def test_a_case_is_made_smaller_as_long_as_it_fails() -> None:
    big = MessageCase(
        (OneMessage((2.0, -2.0), 2.0, (1.0,), part=1, comes=2, goes=3, then=(1.0, 1.0)), OneMessage((0.0, -1.0))),
        (2.0,),
        (1.0,),
    )
    assert smallest(big, smaller, lambda cases: [True] * len(cases)) == MessageCase((), (0.0,))
    second = smallest(big, smaller, lambda cases: [any(one.row[1] < 0 for one in case.messages) for case in cases])
    assert second == MessageCase((OneMessage((0.0, -1.0)),), (0.0,))
    assert not list(smaller(MessageCase((), (0.0,))))
