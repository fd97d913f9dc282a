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
from functools import wraps
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
_thread = threading.local()


def noting() -> bool:
    """Whether kernels that run as plain Python are to be noted in this process."""
    return os.environ.get(NOTE_VARIABLE) == "1"


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a note of each call that comes from outside of kernels."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if getattr(_thread, "inside", False):
            return function(*arguments)
        types = tuple(numba.typeof(argument) for argument in arguments)
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
