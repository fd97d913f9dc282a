"""Questions to the solver: whether two functions of rows agree for all real numbers.

numpy functions run on arrays of symbols, and leave expressions of z3 behind. exp is not interpreted, but for what it
does to sums: exp(a + b) is exp(a) exp(b), and exp(a) is above 0. What a solver says with it is shown by floats, too,
before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from freshet.extras import EXTRAS
from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.smallest import VALUES, shown, simpler_rows, smallest

Expression = Any  # of z3, which has no types


@dataclass
class Facts:
    """Knowledge of the values of functions that z3 does not interpret; each is an expression that holds."""

    found: list[Expression] = field(default_factory=list)

    def exp(self, x: Expression) -> Expression:
        """Return the exponential of x, of a sum as a product."""
        import z3

        x = _real(x)
        if z3.is_rational_value(x) and x.as_fraction() == 0:
            return z3.RealVal(1)
        if z3.is_add(x):
            return _product(self.exp(one) for one in x.children())
        if z3.is_sub(x):
            first, *others = x.children()
            return self.exp(first) / _product(self.exp(one) for one in others)
        if z3.is_app_of(x, z3.Z3_OP_UMINUS):
            return 1 / self.exp(x.children()[0])
        if z3.is_app_of(x, z3.Z3_OP_ITE):
            condition, one, other = x.children()
            return z3.If(condition, self.exp(one), self.exp(other))
        value = z3.Function("exp", z3.RealSort(), z3.RealSort())(x)
        self.found.append(value > 0)
        return value

    def sqrt(self, x: Expression) -> Expression:
        """Return the root of x, which is not negative."""
        import z3

        x = _real(x)
        root = z3.Function("sqrt", z3.RealSort(), z3.RealSort())(x)
        self.found += [root >= 0, z3.Implies(x >= 0, root * root == x)]
        return root

    def functions(self) -> dict[Any, Callable[..., Expression]]:
        """Return what numpy's functions of values do to symbols, where Python's operators do not say it."""
        import z3

        return {
            np.exp: self.exp,
            np.sqrt: self.sqrt,
            np.maximum: lambda a, b: z3.If(_real(a) >= _real(b), _real(a), _real(b)),
            np.minimum: lambda a, b: z3.If(_real(a) <= _real(b), _real(a), _real(b)),
            np.absolute: lambda a: z3.If(_real(a) >= 0, _real(a), -_real(a)),
            np.square: lambda a: a * a,
            np.greater: lambda a, b: _real(a) > _real(b),
            np.greater_equal: lambda a, b: _real(a) >= _real(b),
            np.less: lambda a, b: _real(a) < _real(b),
            np.less_equal: lambda a, b: _real(a) <= _real(b),
            np.equal: lambda a, b: _real(a) == _real(b),
            np.tanh: lambda a: (self.exp(a) - self.exp(-_real(a))) / (self.exp(a) + self.exp(-_real(a))),
        }


class Symbols(np.ndarray):
    """An array of expressions.

    A function that asks for the truth of one, as np.sort does, cannot run on it, and raises a Z3Exception.
    """

    facts: Facts

    def __array_finalize__(self, of: Any) -> None:
        self.facts = getattr(of, "facts", None) or Facts()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options.pop("out", None)
        options.pop("casting", None)
        arrays = [np.asarray(of, object) if isinstance(of, np.ndarray) else _plain(of) for of in inputs]
        own = self.facts.functions().get(ufunc)
        if own is not None:
            options = {name: value for name, value in options.items() if name in ("axis", "keepdims")}
            ufunc = np.frompyfunc(own, ufunc.nin, 1)
        elif method == "reduce":
            options.pop("dtype", None)
        return self._wrapped(getattr(ufunc, method)(*arrays, **options))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.where:
            import z3

            choose = np.frompyfunc(lambda c, a, b: z3.If(c, _real(a), _real(b)), 3, 1)
            return self._wrapped(choose(*(np.asarray(one, object) for one in args)))
        return self._wrapped(super().__array_function__(function, types, args, kwargs))

    def __getitem__(self, at: Any) -> Any:
        return self._wrapped(super().__getitem__(at))

    def _wrapped(self, made: Any) -> Any:
        if isinstance(made, list | tuple):
            return type(made)(self._wrapped(one) for one in made)
        wrapped = np.asarray(made, object).view(Symbols)
        wrapped.facts = self.facts
        return wrapped


def symbols(name: str, shape: Sequence[int], facts: Facts) -> Symbols:
    """Return an array of real numbers of which nothing is known."""
    import z3

    made = np.empty(tuple(shape), object)
    for at in np.ndindex(*shape):
        made[at] = z3.Real("_".join([name, *map(str, at)]))
    found = made.view(Symbols)
    found.facts = facts
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _real(value: Any) -> Expression:
    import z3

    return value if isinstance(value, z3.ExprRef) else z3.RealVal(value)


def _product(factors: Any) -> Expression:
    found = None
    for one in factors:
        found = one if found is None else found * one
    return found


Array = np.ndarray
Relation = Callable[[Any, Any], Any]
LINEAR = "the message is linear in its source"
"""So it is kept by differences, m(x') - m(x) = m(x' - x)."""
NO_TARGET = "the message does not read its target"
"""So it is not computed again when that changes."""
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


def linear_question(message: Callable[[Array], Array], width: int) -> ProofQuestion:
    """Return whether a message of a row is linear in it: then a sum of messages is kept by differences of rows."""
    shapes: dict[str, tuple[int, ...]] = {"a": (1, width), "b": (1, width)}
    return ProofQuestion(LINEAR, shapes, lambda a, b: message(a + b), lambda a, b: message(a) + message(b))
