"""Records of the kernels that Python calls and of their types: noted in one process, compiled ahead by others.

Under `NUMBA_DISABLE_JIT=1` kernels run as plain Python, which takes a moment where compiling takes half a minute. With
`FRESHET_NOTE_CALLS=1` each call of a kernel from outside of kernels is then noted, with numba's types of its arguments:
what `python -m freshet.kernels.kernel_calls` compiles in as many processes as there are cores.
"""

from __future__ import annotations

import base64
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from itertools import zip_longest
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import _dispatcher

NOTE_VARIABLE = "FRESHET_NOTE_CALLS"
CHECKED_FIRST, CHECK_EACH = 32, 1024  # direct calls whose types are compared: the first ones, then one in each 1,024


class Call(NamedTuple):
    """A kernel and the types that it is called with."""

    module: str
    name: str
    types: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Rough estimate of the compile time: the length of the argument types."""
        return len(str(self.types))


_noted: dict[Call, None] = {}
_types_by_fingerprint: dict[bytes | None, tuple[Any, ...]] = {}
_checks = False  # whether every direct call is compared with the types of the first one
_thread = threading.local()


def noting() -> bool:
    """Return whether this process notes kernels that run as plain Python."""
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
    first = [call for call in ordered if not call.module.startswith("freshet.partitioner")]
    last = [call for call in ordered if call.module.startswith("freshet.partitioner")]
    return first + last[::-1]


class Direct:
    """A kernel for one caller, whose arguments have the same types at every call.

    numba looks at every array in every argument, at each call, to find the code for their types: some 10 microseconds
    where a kernel gets whole tables, which is more than most take in a small epoch. Here the code is found once, and
    arrays of another type or layout would make it read and write at wrong places. So the types are compared with those
    of the first call at the next 31 calls, then at each 1,024th; after `check_calls`, as in tests, at every call. No
    array may be a part of the columns of another one: with one row it is contiguous, and with more it is not.

    Raises:
        TypeError: the types differ at a call that is checked; the kernel has not run.
    """

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self._call: Callable[..., Any] = kernel
        self._types: tuple[Any, ...] | None = None
        self._until_check = 0  # calls
        self._checked = 0  # calls

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        if self._until_check:
            self._until_check -= 1
            return self._call(*arguments)
        if self._types is None:
            return self._first(*arguments)
        self._check(arguments)
        return self._call(*arguments)

    def _first(self, *arguments: Any) -> Any:
        result = self._kernel(*arguments)
        self._types, self._checked = _types_of(arguments), 1
        found = getattr(self._kernel, "overloads", {}).get(self._types)  # none where kernels run as plain Python
        self._call = self._kernel if found is None else found.entry_point
        return result

    def _check(self, arguments: tuple[Any, ...]) -> None:
        assert self._types is not None
        if (others := _types_of(arguments)) != self._types:
            pairs = zip_longest(self._types, others)
            differing = [(place, one, other) for place, (one, other) in enumerate(pairs) if one != other]
            name = getattr(self._kernel, "__name__", self._kernel)
            msg = f"{name}: arguments differ in type from those of the first call (place, expected, got): {differing}"
            raise TypeError(msg)
        self._checked += 1
        self._until_check = 0 if _checks or self._checked < CHECKED_FIRST else CHECK_EACH - 1


def check_calls(check: bool = True) -> None:
    """Have kernels that are called directly check the types of their arguments at every call."""
    global _checks
    _checks = check


def _types_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return numba's types; those of a fingerprint, which is made in a hundredth of the time, are found once."""
    try:
        fingerprint = _dispatcher.compute_fingerprint(arguments) if _shows_in_fingerprint(arguments) else None
    except NotImplementedError:  # of text, for one
        fingerprint = None
    types = _types_by_fingerprint.get(fingerprint)
    if types is None:
        types = tuple(numba.typeof(argument) for argument in arguments)
        if fingerprint is not None:
            _types_by_fingerprint[fingerprint] = types
    return types


def _shows_in_fingerprint(value: Any) -> bool:
    """Return whether a type alone has its fingerprint, which shows neither byte order nor the sign of integers."""
    if isinstance(value, tuple):
        return all(map(_shows_in_fingerprint, value))
    if isinstance(value, np.ndarray):
        return value.dtype.isnative
    return not isinstance(value, int) or value.bit_length() < 64


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
