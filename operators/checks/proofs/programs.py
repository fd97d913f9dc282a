"""Facts about messages that are programs: linear in the source, or free of the target, for all numbers or not.

A counterexample is searched first, among small integers in float64; a solver is asked only where none is found. A fact
that does not hold is no wrong declaration, so the opposite is what is answered: with the numbers that show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.convs.evaluator import Evaluator
from freshet.gnn.declarations import DenseLayer, Linear, MessageConv
from freshet.gnn.layers.own.program import DeclaredMessage
from freshet.gnn.oracles.messages import FUNCTIONS
from freshet.gnn.rows import full_pass
from freshet.operators.checks.proofs.solving import LINEAR, NO_TARGET, ProofQuestion, ask, search

READS_TARGET = "the message reads its target"
NOT_LINEAR = "the message is not linear in its source"
_WIDEST = 48  # rows of which a solver answers in 10 s
Array = np.ndarray
_BY_VALUE: dict[str, Callable[..., Array]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply},
    **{"div": np.divide, "max": np.maximum, "min": np.minimum, "atan2": np.arctan2},
    "greater": lambda one, other: np.greater(one, other).astype(np.float64),
    "equal": lambda one, other: np.equal(one, other).astype(np.float64),
    "where": lambda mask, one, other: np.where(mask != 0, one, other),
    **FUNCTIONS,
}


def with_facts(declared: DeclaredMessage, answers: Sequence[ClaimAnswer]) -> list[ClaimAnswer]:
    """Return answers about a conv whose message is a program, with those about the message itself."""
    spec, found = declared.spec, list(answers)
    if "target" in spec.reads:
        found.append(_fact(target_question(declared), READS_TARGET))
    if spec.aggr not in ("sum", "mean"):
        return found
    if spec.is_linear:  # a job relies on it, so that a refutation is one
        return [*(one for one in found if one.claim != LINEAR), _answer(linear_question(declared))]
    if "source" in spec.reads and all(one.claim != LINEAR for one in found):
        found.append(_fact(linear_question(declared), NOT_LINEAR))
    return found


def linear_question(declared: DeclaredMessage) -> ProofQuestion:
    """Return whether the message of a sum of sources' rows is the sum of the messages, whatever else it reads."""
    message, shapes = message_of(declared), dict(_shapes(declared.spec))
    source = shapes.pop("source")
    return ProofQuestion(
        LINEAR,
        {"a": source, "b": source, **shapes},
        lambda a, b, **others: message(source=a + b, **others),
        lambda a, b, **others: message(source=a, **others) + message(source=b, **others),
    )


def target_question(declared: DeclaredMessage) -> ProofQuestion:
    """Return whether the message is the same whatever the target's row is."""
    message, shapes = message_of(declared), dict(_shapes(declared.spec))
    return ProofQuestion(
        NO_TARGET,
        {**shapes, "other": shapes["target"]},
        lambda other, **given: message(**given),
        lambda other, target, **given: message(target=other, **given),
    )


def message_of(declared: DeclaredMessage) -> Callable[..., Array]:
    """Return the message of an edge as a function of what it reads, each (1, width), of floats or of symbols."""
    begin, spec = "program.", declared.spec
    weights = {name.removeprefix(begin): of.astype(np.float64) for name, of in declared.weights.items()}
    evaluator = Evaluator(spec.program, _Numbers(weights), [spec.last])
    return lambda **given: next(evaluator.of(given, 1))


def _shapes(spec: MessageConv) -> Iterator[tuple[str, tuple[int, ...]]]:
    widths = {"source": spec.in_channels, "target": spec.target_width, "weight": 1, "attr": spec.edge_channels}
    return ((name, (1, width)) for name, width in widths.items() if name in spec.reads)


def _fact(question: ProofQuestion, opposite: str) -> ClaimAnswer:
    answer = _answer(question)
    return replace(answer, claim=opposite, answer="proved", cases=0) if answer.answer == "refuted" else answer


def _answer(question: ProofQuestion) -> ClaimAnswer:
    """Return whether the claim is proved or refuted, or how many cases were searched, and why no more can be said."""
    found, failures = search(question), list[str]()
    if found.answer == "refuted":
        return found
    if (widest := max(width for _, width in question.inputs.values())) > _WIDEST:
        return replace(found, case=f"no proof: rows of width {widest}, which is more than {_WIDEST}")
    proof = ask(question, failed=failures.append)
    return replace(found, case="".join(failures[:1])) if proof is None else proof


class _Numbers:
    """Algebra of arrays of symbols, and of float64."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights

    def moved(self, how: Callable[[Sequence[np.ndarray]], np.ndarray], of: Sequence[Array]) -> Array:
        return how(of)

    def constant(self, name: str) -> Callable[[int], Array]:
        return lambda _: self._weights[f"{name}.value"][None]

    def by_head(self, of: Array, heads: int, *, is_mean: bool) -> Array:
        by_head = of.reshape(len(of), heads, -1)
        made: Array = by_head.sum(axis=2) / (by_head.shape[2] if is_mean else 1)
        return made

    def by_value(self, op: str, of: Sequence[Array]) -> Array:
        return _BY_VALUE[op](*of)

    def layer(self, name: str, layer: DenseLayer) -> Callable[[Array], Array]:
        begin = f"{name}."
        weights = {of.removeprefix(begin): w for of, w in self._weights.items() if of.startswith(begin)}
        return lambda of: _linear(weights, of) if isinstance(layer, Linear) else full_pass.apply(layer, weights, of)


def _linear(weights: Mapping[str, Array], of: Array) -> Array:
    made: Array = of @ weights["weight"].T
    return made + weights["bias"] if "bias" in weights else made
