"""The kernels of shared memory as plain Python, on a memory that decides when each store is seen and each load happens.

The kernels themselves run, not a copy of what they do: their Python functions, with atomics that tell the memory. A
writer is run once, and its stores are written down; then they become visible in one of the orders that its releases
and fences allow. A reader's loads each happen at a moment that its acquires and fences allow: an acquire lets no later
load happen before it, a fence no earlier load after it.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from freshet.state.served.layout import ROW_HEAD, T_RING_AT, T_ROW_WORDS, T_ROWS_AT

Kernels = dict[str, Callable[..., Any]]
Word = tuple[str, int]  # "words" or "floats", and where
LOADS_MAX = 2_000  # of a read
PLAIN, RELEASE, FENCE = "plain", "release", "fence"


class Store(NamedTuple):
    """What a kernel of the writer has stored, or a fence."""

    word: Word
    value: Any
    kind: str


def load_acquire(mem: Any, at: int) -> Any:
    return mem.load_acquire(int(at))


def store_release(mem: Any, at: int, value: int) -> None:
    mem.store_release(int(at), value)


class Fences:
    """The fences of kernels that run on `memory`, which have no argument that would say where."""

    def __init__(self) -> None:
        self.memory: Any = None

    def __call__(self) -> None:
        self.memory.fence()


def plain_kernels(fences: Fences, *modules: ModuleType, **instead: Any) -> dict[str, Kernels]:
    """The kernels of modules by the names of those, in plain Python and calling each other so.

    `instead`: names that kernels find in place of what their modules have; `FUNCTION__NAME` for one function alone.
    """
    known: dict[str, Any] = {"load_acquire": load_acquire, "store_release": store_release}
    known |= {"fence_acquire": fences, "fence_release": fences, "prefetch": lambda *_: None}
    everywhere = {name: value for name, value in instead.items() if "__" not in name}
    made: dict[tuple[str, str], FunctionType] = {}
    for module in modules:
        for name, value in vars(module).items():
            function = getattr(value, "py_func", value)
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                found = dict(vars(module))
                made[module.__name__, name] = FunctionType(function.__code__, found, name, function.__defaults__)
    for (_, function_name), function in made.items():
        alone = {
            name.partition("__")[2]: value
            for name, value in instead.items()
            if name.partition("__")[0] == function_name and "__" in name
        }
        calls = {name: one for (_, name), one in made.items() if name in function.__globals__}
        seen = {name: value for name, value in known.items() if name in function.__globals__}
        function.__globals__.update(calls | seen | everywhere | alone)
    result: dict[str, Kernels] = {}
    for (module_name, name), function in made.items():
        result.setdefault(module_name.rpartition(".")[2], {})[name] = function
    return result


class Recording:
    """The writer's memory: its kernels run on it one store after the other, which are written down."""

    def __init__(self, words: np.ndarray) -> None:
        self.words, self.stores = words.copy(), list[Store]()
        self.floats = _Floats(self, self.words.view(np.float32))

    def __getitem__(self, at: int) -> Any:
        return self.words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._store(at, value, PLAIN)

    def store_release(self, at: int, value: int) -> None:
        self._store(at, value, RELEASE)

    def load_acquire(self, at: int) -> Any:
        return self.words[at]

    def fence(self) -> None:
        self.stores.append(Store(("", 0), None, FENCE))

    def _store(self, at: int, value: int, kind: str) -> None:
        self.words[at] = value
        if self._is_of_vector(at):  # a copy of two numbers at once, which may be seen one by one
            for half in (2 * at, 2 * at + 1):
                self.floats[half] = self.floats[half]
        else:
            self.stores.append(Store(("words", int(at)), self.words[at], kind))

    def _is_of_vector(self, at: int) -> bool:
        for name in (T_ROWS_AT, T_RING_AT):
            if self.words[name] <= at < self.words[name + 1]:
                return bool((at - self.words[name]) % self.words[T_ROW_WORDS] >= ROW_HEAD)
        return False


class _Floats:
    """The same memory as float32."""

    def __init__(self, memory: Recording, floats: np.ndarray) -> None:
        self._memory, self._floats = memory, floats

    def __getitem__(self, at: int) -> Any:
        return self._floats[at]

    def __setitem__(self, at: int, value: float) -> None:
        self._floats[at] = value
        self._memory.stores.append(Store(("floats", int(at)), self._floats[at], PLAIN))


def visible_order(stores: list[Store], rng: random.Random) -> list[Store]:
    """One of the orders in which the stores may become visible."""
    left, found = list(stores), list[Store]()
    while left:
        ready, fenced, words = [], False, set[Word]()
        for at, store in enumerate(left):
            waits = at > 0 if store.kind != PLAIN else fenced or store.word in words
            if not waits:
                ready.append(at)
            fenced |= store.kind == FENCE
            words.add(store.word)
            if fenced:
                break
        found.append(left.pop(rng.choice(ready)))
    return [store for store in found if store.kind != FENCE]


class EndlessError(RuntimeError):
    """A read that does not end."""


class Beside:
    """The reader's memory, beside a writer whose stores become visible in the order given, in bursts.

    Time is how many of them are visible. `low` and `high` are between which moments a load may happen.
    """

    def __init__(self, words: np.ndarray, stores: list[Store], rng: random.Random) -> None:
        """The writer may have done something before the reader begins, also everything."""
        self._words, self._rng, self._end = words, rng, len(stores)
        self._times: dict[Word, list[int]] = {}
        self._values: dict[Word, list[Any]] = {}
        for time, store in enumerate(stores, 1):
            self._times.setdefault(store.word, []).append(time)
            self._values.setdefault(store.word, []).append(store.value)
        self._loads = 0
        self._seen: dict[Word, int] = {}  # of one word a later load sees no earlier store
        self._low = rng.choice((0, rng.randrange(self._end + 1), self._end))
        self._high = self._later()
        self._floats = words.view(np.float32)
        self.floats = _Loads(self)

    def __getitem__(self, at: int) -> Any:
        return self.load(("words", int(at)), self._words)

    def load_acquire(self, at: int) -> Any:
        self._low = self._moment(("words", at))
        return self._value(("words", at), self._low, self._words)

    def fence(self) -> None:
        self._low = self._high
        self._high = self._later()

    def load(self, word: Word, base: np.ndarray) -> Any:
        if word not in self._times:
            return base[word[1]]
        return self._value(word, self._moment(word), base)

    def load_float(self, at: int) -> Any:
        return self.load(("floats", int(at)), self._floats)

    def _moment(self, word: Word) -> int:
        self._loads += 1
        if self._loads > LOADS_MAX:
            raise EndlessError
        first = max(self._low, self._seen.get(word, 0))
        self._seen[word] = found = self._rng.randint(first, max(first, self._high))
        return found

    def _value(self, word: Word, time: int, base: np.ndarray) -> Any:
        at = bisect.bisect_right(self._times.get(word, ()), time)
        return self._values[word][at - 1] if at else base[word[1]]

    def _later(self) -> int:
        return min(self._end, self._low + self._rng.choice((0, 0, 1, 2, 4, 8, 16, 64)))


class _Loads:
    """The same memory as float32, from a place on."""

    def __init__(self, memory: Beside, first: int = 0) -> None:
        self._memory, self._first = memory, first

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):  # nothing is loaded by it
            return _Loads(self._memory, self._first + int(at.start))
        return self._memory.load_float(self._first + at)
