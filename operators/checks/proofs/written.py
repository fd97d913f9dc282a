"""Proofs about layers that users wrote, where their functions run on symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.own.aggregates import Redone
from freshet.gnn.own.running import RunningLayer
from freshet.operators.checks.aggregates import MERGED, ORDER
from freshet.operators.checks.proofs.decoupling import linear_question
from freshet.operators.checks.proofs.solving import ProofQuestion, ask

_WIDEST = 8  # messages on which a solver answers in time
_OF_TWO = "for two messages of any real numbers, by z3"
Array = np.ndarray


def with_proofs(running: RunningLayer, answers: Sequence[ClaimAnswer]) -> list[ClaimAnswer]:
    """Return answers in which proofs stand for searches where there are any; the same without z3."""
    if find_spec("z3") is None:
        return list(answers)
    aggregate = running.aggregate
    questions = _of_aggregate(aggregate, running.widths.message) if isinstance(aggregate, Redone) else {}
    found = []
    for one in answers:
        failures = list[str]()
        asked = one.answer == "searched" and one.claim in questions
        proof = ask(questions[one.claim], failed=failures.append) if asked else None
        if proof is not None and proof.answer == "proved":
            one = replace(one, answer="proved", case=_OF_TWO)
        found.append(replace(one, case=failures[0]) if failures else one)
    return [*found, *_of_message(running)]


def _of_aggregate(aggregate: Redone, width: int) -> dict[str, ProofQuestion]:
    if width > _WIDEST:
        return {}

    def read(state: Array) -> Array:
        return aggregate.read(state[None])

    inputs: dict[str, tuple[int, ...]] = {"m": (2, width)}
    found = {
        ORDER.claim: ProofQuestion(
            ORDER.claim, inputs, lambda m: read(aggregate.fold(m)), lambda m: read(aggregate.fold(m[::-1]))
        )
    }
    if aggregate.merge is not None:
        found[MERGED.claim] = ProofQuestion(
            MERGED.claim, inputs,
            lambda m: read(aggregate.merge(aggregate.fold(m[:1]), aggregate.fold(m[1:]))),
            lambda m: read(aggregate.fold(m)),
        )  # fmt: skip
    return found


def _of_message(running: RunningLayer) -> list[ClaimAnswer]:
    """Return whether a message of its source alone is linear in it, where a solver says so; it is no claim."""
    width = running.widths.source
    if not running.is_of_source or not running.layer.has("message") or width > _WIDEST:
        return []
    answer = ask(linear_question(running.layer.message, width))
    return [answer] if answer is not None and answer.answer == "proved" else []
