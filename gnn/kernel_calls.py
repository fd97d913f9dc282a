"""Which kernels Python calls and with what types: noted in one process, compiled ahead by others.

Under `NUMBA_DISABLE_JIT=1` kernels run as plain Python, which takes a moment where compiling takes half a minute. With
`FRESHET_NOTE_CALLS=1` each call of a kernel from outside of kernels is then noted, with numba's types of its arguments:
what `python -m gnn.kernel_calls` compiles in as many processes as there are cores.
"""

from __future__ import annotations

import base64
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial, wraps
from importlib import import_module
from typing import Any, NamedTuple

import numba

NOTE_VARIABLE = "FRESHET_NOTE_CALLS"


class Call(NamedTuple):
    """A kernel and the types that it is called with."""

    module: str
    name: str
    types: tuple[Any, ...]

    @property
    def size(self) -> int:
        """How long its compiling takes, roughly: by what it works on."""
        return len(str(self.types))


_noted: dict[Call, None] = {}
_checks = False  # whether direct calls are held against the types of the first one
_thread = threading.local()


def noting() -> bool:
    """Whether kernels that run as plain Python are to be noted in this process."""
    return os.environ.get(NOTE_VARIABLE) == "1"


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a note of each call that comes from outside of kernels."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if getattr(_thread, "inside", False):
            return function(*arguments, **named)
        if named:
            msg = f"{function.__name__}: kernels are called by place from outside, not by {', '.join(named)}"
            raise TypeError(msg)
        types = _types_of(arguments)
        _noted[Call(function.__module__, function.__name__, types)] = None
        _thread.inside = True
        try:
            return function(*arguments)
        finally:
            _thread.inside = False

    return call


def noted_calls() -> list[Call]:
    """All calls so far, each once, in the order of their coming."""
    return list(_noted)


def in_turn(calls: Iterable[Call]) -> list[Call]:
    """The calls with the largest of each package at either end, for processes that take from both ends.

    So two processes rarely compile what the same kernels call.
    """
    ordered = sorted(calls, key=lambda call: call.size, reverse=True)
    first = [call for call in ordered if not call.module.startswith("partitioner")]
    last = [call for call in ordered if call.module.startswith("partitioner")]
    return first + last[::-1]


class Direct:
    """A kernel for one caller, whose arguments have the same types at every call.

    numba looks at every array in every argument, at each call, to find the code for their types: some 10 microseconds
    where a kernel gets whole tables, which is more than most take in a small epoch. Here it does so once. No array may
    be a part of the columns of another one: with one row it is contiguous, and with more it is not.
    After `check_calls`, as in tests, each call is held against the types of the first one.

    Raises:
        TypeError: they differ, and calls are checked.
    """

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self._call = self._first

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        return self._call(*arguments)

    def _first(self, *arguments: Any) -> Any:
        result, types = self._kernel(*arguments), _types_of(arguments)
        found = getattr(self._kernel, "overloads", {}).get(types)  # none where kernels run as plain Python
        if _checks:
            self._call = partial(self._checked, types)
        else:
            self._call = self._kernel if found is None else found.entry_point
        return result

    def _checked(self, types: tuple[Any, ...], *arguments: Any) -> Any:
        if (others := _types_of(arguments)) != types:
            differing = [(one, other) for one, other in zip(types, others, strict=True) if one != other]
            msg = f"{self._kernel.__name__}: types of arguments differ from those of the first call: {differing}"
            raise TypeError(msg)
        return self._kernel(*arguments)


def check_calls(check: bool = True) -> None:
    """Have kernels that are called directly from now on check the types of their arguments."""
    global _checks
    _checks = check


def _types_of(arguments: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(numba.typeof(argument) for argument in arguments)


def encode(call: Call) -> bytes:
    """A line that `decode` reads."""
    return base64.b64encode(pickle.dumps(call)) + b"\n"


def decode(line: bytes) -> Call:
    """The inverse of `encode`; of lines from our own processes only."""
    call: Call = pickle.loads(base64.b64decode(line))
    return call


def compile_call(call: Call) -> bool:
    """Have a kernel ready for these types, from the cache if it is there; returns whether it was compiled."""
    kernel = getattr(import_module(call.module), call.name)
    before = sum(kernel.stats.cache_misses.values())
    kernel.compile(call.types)
    return sum(kernel.stats.cache_misses.values()) > before


def main() -> None:
    """Compile what the lines of stdin say; a line to stdout after each: 1 compiled, 0 was there."""
    gc.set_threshold(500_000, 10, 10)  # the compiler makes much and drops little: a sixth of its time goes to looking
    for line in sys.stdin.buffer:
        print(int(compile_call(decode(line))), flush=True)


if __name__ == "__main__":
    main()
