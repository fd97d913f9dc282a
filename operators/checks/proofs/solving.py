"""Questions to the solver: whether two functions of rows agree for all real numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from freshet.extras import EXTRAS
from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.smallest import VALUES, shown, simpler_rows, smallest
from freshet.operators.checks.proofs.symbols import Facts, Symbols, symbols

Array = np.ndarray
Relation = Callable[[Any, Any], Any]
SECONDS_MAX = 10.0
CASES = 200
_ROUNDING = 1e-9
_WHY_MAX = 200  # characters of an error
_FULL = 0.4  # of the numbers of a case that is to be small


@dataclass(frozen=True)
class ProofQuestion:
    """A claim that `left` and `right` make the same of all inputs for which `given` holds.

    Each gets the inputs as keyword arguments, arrays of symbols or of float64, and so does `given`, which returns a
    list of conditions. `holds` compares two values, by default for equality.
    """

    claim: str
    inputs: Mapping[str, tuple[int, ...]]
    left: Callable[..., Array]
    right: Callable[..., Array]
    given: Callable[..., Sequence[Any]] = lambda **_: ()
    holds: Relation = lambda one, other: one == other
    sign: str = "="


def ask(
    question: ProofQuestion, *, seconds: float = SECONDS_MAX, failed: Callable[[str], object] = lambda _: None
) -> ClaimAnswer | None:
    """Return whether the claim is proved or refuted; None where neither is known, of which `failed` gets the reason.

    The solver may be absent or have no answer in time, and functions may not run on symbols. A counterexample counts
    only if float64 shows it, too: exp is not interpreted.
    """
    if find_spec(EXTRAS["proofs"][0]) is None:
        failed("no proof: z3 is not installed")
        return None
    import z3

    facts, solver = Facts(), z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    inputs = {name: symbols(name, shape, facts) for name, shape in question.inputs.items()}
    try:
        sides = [np.atleast_1d(np.asarray(side(**inputs), object)).ravel() for side in (question.left, question.right)]
        conditions = [np.asarray(one, object).item() for one in question.given(**inputs)]
        goals = [question.holds(one, other) for one, other in zip(*sides, strict=True)]
    except Exception as error:  # a user's function may do anything on arrays of objects
        why = " ".join(str(error).split())[:_WHY_MAX]
        failed(f"no proof: the functions do not run on symbols ({type(error).__name__}: {why})")
        return None
    solver.add(*facts.found, *conditions, z3.Not(z3.And(*[z3.BoolVal(g) if isinstance(g, bool) else g for g in goals])))
    found = solver.check()
    if found == z3.unsat:
        return ClaimAnswer(question.claim, "proved", case="for all real numbers, by z3")
    if found != z3.sat:
        failed(f"no proof: z3 had no answer in {seconds:g} s")
        return None
    shown = _by_floats(question, {name: _numbers(solver.model(), rows) for name, rows in inputs.items()})
    if shown is None:
        failed("no proof: z3 has a counterexample that float64 does not show")
    return shown


def search(question: ProofQuestion, *, cases: int = CASES, seed: int = 0) -> ClaimAnswer:
    """Return whether the claim is refuted by some small integers; the first cases have many zeros."""

    def is_refuted_by(numbers: Mapping[str, Array]) -> bool:
        return _by_floats(question, numbers) is not None

    rng = np.random.default_rng(seed)
    for k in range(cases):
        numbers = {name: rng.choice(VALUES, shape) for name, shape in question.inputs.items()}
        if k < cases // 2:
            numbers = {name: np.where(rng.random(rows.shape) < _FULL, rows, 0.0) for name, rows in numbers.items()}
        if is_refuted_by(numbers):
            found = _by_floats(question, smallest(numbers, _simpler, partial(map, is_refuted_by)))
            assert found is not None  # as the smallest one is refuted, too
            return replace(found, cases=k + 1)
    return ClaimAnswer(question.claim, "searched", cases)


def _simpler(numbers: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    for name, rows in numbers.items():
        for row in simpler_rows(tuple(rows.ravel().tolist())):
            yield {**numbers, name: np.array(row).reshape(rows.shape)}


def _numbers(model: Any, rows: Symbols) -> Array:
    """Return the values of symbols in a counterexample."""
    found = np.zeros(rows.shape)
    for at in np.ndindex(*rows.shape):
        value = model.eval(np.asarray(rows[at], object).item(), model_completion=True)
        value = value.approx(20) if hasattr(value, "approx") else value
        found[at] = float(value.as_fraction())
    return found


def _by_floats(question: ProofQuestion, numbers: Mapping[str, Array]) -> ClaimAnswer | None:
    """Return the refutation by these numbers, where float64 shows it."""
    with np.errstate(all="ignore"):
        if not all(bool(one) for one in question.given(**numbers)):
            return None
        left, right = (np.atleast_1d(side(**numbers)).ravel() for side in (question.left, question.right))
        near = np.abs(left - right) <= _ROUNDING * (1 + np.abs(left) + np.abs(right))
        near |= np.isnan(left) & np.isnan(right)
        holds = [bool(question.holds(one, other)) for one, other in zip(left, right, strict=True)]
    if (near | np.array(holds)).all():
        return None
    lines = [f"{name} {shown(rows.ravel())}" for name, rows in numbers.items()]
    lines.append(f"{shown(left + 0.0)} {question.sign} {shown(right + 0.0)} does not hold")
    return ClaimAnswer(question.claim, "refuted", case="\n".join(lines))
