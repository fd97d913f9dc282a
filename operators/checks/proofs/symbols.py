"""Arrays of symbols: numpy functions run on them, and leave expressions of z3 behind.

exp is not interpreted, but for what it does to sums: exp(a + b) is exp(a) exp(b), and exp(a) is above 0. What a solver
says with it is shown by floats, too, before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
