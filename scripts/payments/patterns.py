"""Payments as columns, and the patterns of laundering among them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_HOUR_MS = 3_600_000
_LIMIT = 10_000  # sums from here on have to be reported


@dataclass(frozen=True)
class Transfers:
    """Payments. Shapes: src, dst (n,) int64 accounts; amount (n,) float64; at_ms (n,) int64."""

    src: np.ndarray
    dst: np.ndarray
    amount: np.ndarray
    at_ms: np.ndarray

    def __len__(self) -> int:
        return self.src.size

    def take(self, rows: np.ndarray) -> Transfers:
        """Return these payments."""
        return Transfers(self.src[rows], self.dst[rows], self.amount[rows], self.at_ms[rows])

    def in_order(self) -> Transfers:
        """Return the payments by time."""
        return self.take(np.argsort(self.at_ms, kind="stable"))


def join(parts: Sequence[Transfers]) -> Transfers:
    """Return the payments of all parts."""
    names = "src", "dst", "amount", "at_ms"
    return Transfers(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


Edges = list[tuple[int, int, float, float]]  # payer, payee (numbers among the members), amount, hours after the begin
Pattern = Callable[[int, np.random.Generator], Edges]


def cycle(size: int, rng: np.random.Generator) -> Edges:
    """Return money that goes around and comes back, less a fee at each step."""
    amount, at, edges = rng.uniform(5_000, 50_000), 0.0, []
    for i in range(size):
        edges.append((i, (i + 1) % size, amount, at))
        amount, at = amount * rng.uniform(0.95, 0.99), at + rng.uniform(1, 6)
    return edges


def fan_in(size: int, rng: np.random.Generator) -> Edges:
    """Return sums below the limit from many accounts to one."""
    return [(i, 0, rng.uniform(0.9, 0.999) * _LIMIT, rng.uniform(0, 36)) for i in range(1, size)]


def fan_out(size: int, rng: np.random.Generator) -> Edges:
    """Return sums below the limit from one account to many."""
    return [(0, i, rng.uniform(0.9, 0.999) * _LIMIT, rng.uniform(0, 36)) for i in range(1, size)]


def layers(size: int, rng: np.random.Generator) -> Edges:
    """Return money that goes from one account through layers of two to another."""
    rows = [[0], *([i, i + 1] for i in range(1, size - 2, 2)), [size - 1]]
    edges, amount, at = [], rng.uniform(20_000, 80_000), 0.0
    for some, others in itertools.pairwise(rows):
        parts = len(some) * len(others)
        edges += [(a, b, amount / parts * rng.uniform(0.9, 1.1), at + rng.uniform(0, 3)) for a in some for b in others]
        amount, at = amount * rng.uniform(0.95, 0.99), at + rng.uniform(3, 8)
    return edges


PATTERNS: dict[str, tuple[Pattern, tuple[int, int]]] = {
    "cycle": (cycle, (4, 9)),
    "fan_in": (fan_in, (9, 20)),
    "fan_out": (fan_out, (9, 20)),
    "layers": (layers, (8, 13)),
}


def make_patterns(members: np.ndarray, span_ms: int, rng: np.random.Generator) -> Transfers:
    """Return patterns over these accounts, each in one of them, evenly over the time."""
    made: list[Transfers] = []
    kinds, at = list(PATTERNS.values()), 0
    while True:
        pattern, (least, most) = kinds[len(made) % len(kinds)]
        size = int(rng.integers(least, most))
        if at + size > members.size:
            return join(made) if made else Transfers(*(np.empty(0, kind) for kind in ("i8", "i8", "f8", "i8")))
        here = members[at : at + size]
        payer, payee, amount, hours = map(np.array, zip(*pattern(size, rng), strict=True))
        begin = rng.integers(0, span_ms)
        made.append(Transfers(here[payer], here[payee], amount, (begin + hours * _HOUR_MS).astype(np.int64)))
        at += size
