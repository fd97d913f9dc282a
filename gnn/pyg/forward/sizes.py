"""Sizes of a graph while a conv is read: they may be handed on as sizes, and nothing else may depend on them.

A conv runs on one graph, and is exported for graphs of any size. So what torch says of a size there is a
`RecordedSize`. It can be handed to torch as a shape, to PyG as num_nodes, size or dim_size, and be added, subtracted
and multiplied. What compares it is noted as a `Guard`: the conv runs once more with sizes that turn the branch the
other way, and must make the same. Anything else is refused, with the line. In the code of torch and PyG it is a number.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import torch

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.places import is_library, place_here

Sizes = Mapping[str, Any]
"""Numbers of vertices, edges and sources of another kind; of what a module counts by itself, by its name."""
_OF_GRAPH = ("vertices", "edges", "sources")
_FEW = range(1, 18)
_LADDER = sorted({*range(34), *(2**k + d for k in range(4, 41) for d in (-1, 0, 1))})
"""Sizes that are tried in turn for one that turns a branch the other way."""
WHAT_TO_DO = "it changes as a job goes on. Nearest: leave it out, or keep a number of your own as a constant"


class Guard(NamedTuple):
    """A comparison of sizes in the user's code, with its place."""

    compare: Callable[[Any, Any], bool]
    left: Any
    right: Any
    place: str

    def holds(self, sizes: Sizes) -> bool:
        """Return the outcome where a graph has these sizes."""
        return bool(self.compare(_value(self.left, sizes), _value(self.right, sizes)))

    def others(self, sizes: Sizes) -> Iterator[Sizes]:
        """Yield sizes with the other outcome: those where it turns, and of a graph without edges."""
        outcome, found = self.holds(sizes), set[tuple[str, ...]]()
        yield from (one for one in self._turns(sizes) if self.holds(one) != outcome)
        for one in self._tried(sizes):
            if (none := without(one)) not in found and self.holds(one) != outcome:
                found.add(none)
                yield one

    def _tried(self, sizes: Sizes) -> Iterator[Sizes]:
        for name in sizes:
            yield from (_consistent({**sizes, name: number}) for number in _LADDER)
        names = [name for name in sizes if name in _OF_GRAPH]
        for number in _LADDER:
            yield _consistent({**sizes, **dict.fromkeys(names, number)})
        for vertices in _FEW:
            for edges in _FEW:
                yield {**sizes, "vertices": vertices, "edges": edges}

    def _turns(self, sizes: Sizes) -> Iterator[Sizes]:
        """Yield sizes around those at which one side passes the other."""
        for name in sizes:

            def side(number: int, name: str = name) -> int:
                at = _consistent({**sizes, name: number})
                off = _value(self.left, at) - _value(self.right, at)
                return (off > 0) - (off < 0)

            sides = [side(number) for number in _LADDER]
            for low, high, before, behind in zip(_LADDER, _LADDER[1:], sides, sides[1:], strict=False):
                if before != behind:
                    while high - low > 1:
                        middle = (low + high) // 2
                        low, high = (middle, high) if side(middle) == before else (low, middle)
                    yield from (_consistent({**sizes, name: n}) for n in (low - 1, low, high, high + 1) if n > 0)


def without(sizes: Sizes) -> tuple[str, ...]:
    """Return what a graph of these sizes has none of: vertices, edges, sources of another kind."""
    return tuple(name for name in _OF_GRAPH if not sizes.get(name, 1))


def _consistent(sizes: Sizes) -> Sizes:
    """Return sizes without edges where there are no vertices at one end of them."""
    none = not all(sizes[name] for name in _OF_GRAPH if name in sizes and name != "edges")
    return {**sizes, "edges": 0} if none else sizes


def _value(one: Any, sizes: Sizes) -> Any:
    return one.of(sizes) if type(one) is RecordedSize else one


class Supposed:
    """Sizes in the place of recorded ones: those of the graph that a conv runs on, but in branches those supposed."""

    def __init__(self, real: Sizes, supposed: Sizes | None = None, guards: list[Guard] | None = None) -> None:
        """Take the sizes of the graph, those that branches see, and where these are noted."""
        self.real, self.supposed = real, real if supposed is None else supposed
        self.guards = list[Guard]() if guards is None else guards
        self.refused: ExportError | None = None

    def refuse(self, what: str) -> NoReturn:
        """Refuse what the user's code does with a size.

        Raises: ExportError, always; it is kept as well, since the user's code may catch it.
        """
        self.refused = self.refused or ExportError(f"{place_here() or 'its forward'}: it {what}, and {WHAT_TO_DO}")
        raise self.refused

    def decide(self, compare: Callable[[Any, Any], bool], left: RecordedSize, right: Any) -> bool:
        """Return the outcome of a comparison in the user's code, and note it where sizes may turn it."""
        guard = Guard(compare, left, right, place_here())
        if any(True for _ in guard.others(self.supposed)):
            self.guards.append(guard)
        return guard.holds(self.supposed)


class Refusing(Supposed):
    """Recorded numbers in a forward that is traced, which has no branches on them."""

    def decide(self, compare: Callable[[Any, Any], bool], left: RecordedSize, right: Any) -> bool:
        """Refuse a comparison.

        Raises: ExportError, always
        """
        self.refuse(f"branches on {left}")


class RecordedSize(torch.SymInt):
    """A size of the graph, or another number that changes from call to call.

    It passes for an int with isinstance, and with torch where an int is a size.
    """

    def __init__(self, of: Callable[[Sizes], int], text: str, supposed: Supposed) -> None:
        """Take how it is made of sizes, and what it is called."""
        self.of, self.text, self.supposed = of, text, supposed

    __class__ = property(lambda self: int)

    def refuse(self) -> NoReturn:
        """Refuse what computes with it.

        Raises: ExportError, always
        """
        self.supposed.refuse(f"computes with {self.text}")

    @property
    def real(self) -> int:
        """The number that it is in this run."""
        return self.of(self.supposed.real)

    def __repr__(self) -> str:
        """Return what it is called, since its digits are those of this run."""
        return self.text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Return what it is called."""
        return self.text

    def __getattr__(self, name: str) -> Any:
        """Refuse what torch's own sizes could do beside, and what numpy asks of a number in the user's code."""
        if name == "node" or (name[0] != "_" and not _of_library(sys._getframe(1))):
            self.refuse()
        raise AttributeError(name)

    def __hash__(self) -> int:
        """Refuse as torch does: no key of a dict may depend on it."""
        if not _of_library(sys._getframe(1)):
            self.supposed.refuse(f"looks something up by {self.text}")
        msg = f"unhashable: {self.text}"
        raise TypeError(msg)

    def __deepcopy__(self, memo: Any) -> RecordedSize:
        """Return itself."""
        return self

    def _number(self) -> int:
        """Return the number for a library's code; for the user's it would be one that differs from graph to graph."""
        if not _of_library(sys._getframe(1)):
            self.supposed.refuse(f"makes a plain number of {self.text}")
        return self.real

    def __int__(self) -> int:
        """Return the number, in a library's code."""
        return self._number()

    def __index__(self) -> int:
        """Return the number, in a library's code."""
        return self._number()

    def __float__(self) -> float:
        """Return the number, in a library's code."""
        return float(self._number())

    def __bool__(self) -> bool:
        """Return whether it is above 0."""
        return self._compared(operator.ne, 0)

    def bit_length(self) -> int:
        """Return the number of bits, in a library's code."""
        return self._number().bit_length()

    def __pos__(self) -> RecordedSize:
        """Return itself."""
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __neg__(self) -> RecordedSize:
        """Return it below 0."""
        return RecordedSize(lambda sizes: -self.of(sizes), f"-{self.text}", self.supposed)

    def __abs__(self) -> RecordedSize:
        """Return it above 0."""
        return RecordedSize(lambda sizes: abs(self.of(sizes)), f"abs({self.text})", self.supposed)

    def __round__(self, ndigits: int | None = None) -> RecordedSize:
        """Return itself."""
        return self

    def _compared(self, compare: Callable[[Any, Any], bool], other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        if _of_library(sys._getframe(1)):
            return compare(self.real, _value(other, self.supposed.real))
        return self.supposed.decide(compare, self, other)

    def _made(self, symbol: str, compute: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
        """Return what arithmetic makes; of quotients those that are whole at any size."""
        if not isinstance(one, int) or not isinstance(other, int):
            if not isinstance(one, int | float) or not isinstance(other, int | float):
                return NotImplemented
        elif symbol in "+-*" or (symbol in ("//", "%") and self._is_whole(one, other)):
            text = f"({one} {symbol} {other})"
            if symbol == "%":
                return 0
            return RecordedSize(lambda sizes: compute(_value(one, sizes), _value(other, sizes)), text, self.supposed)
        if _of_library(sys._getframe(1)):
            return compute(_value(one, self.supposed.real), _value(other, self.supposed.real))
        self.supposed.refuse(f"computes with {self.text} ({one} {symbol} {other})")

    def _is_whole(self, one: Any, other: Any) -> bool:
        real = self.supposed.real
        tried = (_consistent({name: number * (k + 2) + k for k, name in enumerate(real)}) for number in _FEW)
        pairs = [(_value(one, sizes), _value(other, sizes)) for sizes in (real, *tried)]
        return all(below and above % below == 0 for above, below in pairs)


def _comparing(compare: Callable[[Any, Any], bool]) -> Any:
    return lambda self, other: self._compared(compare, other)


def _computing(symbol: str, compute: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    return (
        lambda self, other: self._made(symbol, compute, self, other),
        lambda self, other: self._made(symbol, compute, other, self),
    )


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(RecordedSize, f"__{_name}__", _comparing(getattr(operator, _name)))
for _name, _symbol in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**",
                       "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^"}.items():  # fmt: skip
    _compute = getattr(operator, _name + "_" * (_name in ("and", "or")))
    _there, _back = _computing(_symbol, _compute)
    setattr(RecordedSize, f"__{_name}__", _there)
    setattr(RecordedSize, f"__r{_name}__", _back)


def _of_library(frame: Any) -> bool:
    """Return whether the code that computes with a size is torch's, PyG's or this package's."""
    while frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return is_library(frame)
