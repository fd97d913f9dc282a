"""Proofs about layers that users wrote, where their functions run on symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from freshet.gnn.answers import OF_TWO, ClaimAnswer, is_refuted
from freshet.gnn.own.aggregates import Redone, SoftmaxOf
from freshet.gnn.own.running import RunningLayer
from freshet.operators.checks.aggregates import MERGED, ORDER
from freshet.operators.checks.proofs.solving import ProofQuestion, ask, linear_question, search

_WIDEST = 8  # messages on which a solver answers in time
_ROWS = 5  # of a message that is said to be linear: a function may look at how many it gets
Array = np.ndarray


def with_proofs(running: RunningLayer, answers: Sequence[ClaimAnswer]) -> list[ClaimAnswer]:
    """Return answers that say what a solver proves of two messages, or why it proves nothing, and proofs beside them.

    A proof for two messages is none for more, so such a claim stays searched.
    """
    aggregate, width = running.aggregate, running.widths.message
    if not isinstance(aggregate, Redone):
        return [*answers, *_of_message(running)]
    questions = _of_aggregate(aggregate, width)
    found = [_with_proof(one, questions[one.claim], width) if one.claim in questions else one for one in answers]
    return [*found, *_of_message(running)]


def _with_proof(one: ClaimAnswer, question: ProofQuestion, width: int) -> ClaimAnswer:
    """Return a search with what a solver says of two messages: a proof, a counterexample, or why neither."""
    if one.answer != "searched":
        return one
    notes = [one.case] if one.case else []
    if width > _WIDEST:
        return replace(one, case="; ".join([*notes, f"no proof: messages of width {width}, more than {_WIDEST}"]))
    proof = ask(question, failed=notes.append)
    if proof is not None and proof.answer == "refuted":
        return proof
    return replace(one, case="; ".join(notes if proof is None else [*notes, f"proved {OF_TWO}"]))


def _of_aggregate(aggregate: Redone, width: int) -> dict[str, ProofQuestion]:
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
    width, none = running.widths.source, np.empty((0, 0))
    sums = not isinstance(running.aggregate, SoftmaxOf)
    if not (sums and running.is_of_source and running.layer.has("message")) or width > _WIDEST:
        return []
    blocks = linear_question(lambda rows: running.message(rows, none, none, none), width)
    if is_refuted([search(replace(blocks, inputs=dict.fromkeys(blocks.inputs, (_ROWS, width))))]):
        return []
    answer = ask(linear_question(running.layer.message, width))
    return [answer] if answer is not None and answer.answer == "proved" else []
