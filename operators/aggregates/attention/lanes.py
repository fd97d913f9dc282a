"""Operations on softmax sums, for eight channels at a time in vector instructions.

A compiled loop over channels first tests whether its arrays overlap, and processes the channels past a multiple of
sixteen one by one: for 40 channels these take as long as all the others. So these operations are written in LLVM's
vectors. If kernels run as plain Python, for debugging, the loops in `_Plain` replace them. Arrays are C-contiguous, and
places in them are those of flat elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from freshet.operators.aggregates.intrinsics import Vectors, for_kernels

LANES = 8
_FLOAT, _DOUBLE, _WORD = ir.FloatType(), ir.DoubleType(), ir.IntType(64)


class _Lanes(Vectors):
    """Instructions on 8 channels."""

    LANES, ALIGN = LANES, 4

    def values(self, array: int, at: int, kind: ir.Type) -> Any:
        return self.load(self.place(array, at, kind))

    def write(self, value: Any, array: int, at: int) -> None:
        self.store(value, self.place(array, at, value.type.element))

    def wide(self, values: Any) -> Any:
        return self.build.fpext(values, self.of(_DOUBLE))

    def narrow(self, values: Any) -> Any:
        return self.build.fptrunc(values, self.of(_FLOAT))

    def terms(self, factor: int, array: int, at: int) -> Any:
        """Terms of a message: a factor times values, rounded."""
        return self.wide(self.build.fmul(self.all(self.args[factor]), self.values(array, at, _FLOAT)))

    def share(self, array: int, at: int, factor: int) -> Any:
        """Sums times a factor, rounded."""
        return self.narrow(self.build.fmul(self.values(array, at, _DOUBLE), self.all(self.args[factor])))

    def plus(self, values: Any) -> Any:
        """Values + 0, which makes -0 0."""
        return self.build.fadd(self.all(_FLOAT(0.0)), values)

    def inexact(self, before: Any, term: Any, after: Any) -> Any:
        """Like exact_sums.inexact."""
        build = self.build
        of_term = build.fcmp_unordered("!=", build.fsub(after, before), term)
        return build.or_(of_term, build.fcmp_unordered("!=", build.fsub(after, term), before))

    def bits(self, lanes: Any) -> Any:
        """A bit for each lane."""
        return self.build.zext(self.build.bitcast(lanes, ir.IntType(LANES)), _WORD)


def _add(_: Any, s: Any, to: Any, rows: Any, at: Any, p: Any, sign: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        term = lanes.build.fmul(lanes.terms(4, 2, 3), lanes.all(lanes.args[5]))
        before = lanes.values(0, 1, _DOUBLE)
        after = lanes.build.fadd(before, term)
        lanes.write(after, 0, 1)
        return lanes.bits(lanes.inexact(before, term, after))

    return types.int64(s, types.int64, rows, types.int64, types.float32, types.float64), generate


def _replace(_: Any, s: Any, to: Any, old: Any, at: Any, p: Any, new: Any, place: Any, q: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build, gone, come = lanes.build, lanes.terms(4, 2, 3), lanes.terms(7, 5, 6)
        term, before = build.fsub(come, gone), lanes.values(0, 1, _DOUBLE)
        after = build.fadd(before, term)
        lanes.write(after, 0, 1)
        rounded = lanes.inexact(come, build.fneg(gone), term)
        return lanes.bits(build.or_(lanes.inexact(before, term, after), rounded))

    kinds = types.int64, old, types.int64, types.float32, new, types.int64, types.float32
    return types.int64(s, *kinds), generate


def _read_one(_: Any, s: Any, first: Any, factor: Any, out: Any, at: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        lanes.write(lanes.plus(lanes.share(0, 1, 2)), 3, 4)

    return types.void(s, types.int64, types.float64, out, types.int64), generate


def _read_two(_: Any, s: Any, first: Any, factor: Any, second: Any, more: Any, out: Any, at: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        lanes.write(lanes.build.fadd(lanes.plus(lanes.share(0, 1, 2)), lanes.share(0, 3, 4)), 5, 6)

    kinds = types.int64, types.float64, types.int64, types.float64, out, types.int64
    return types.void(s, *kinds), generate


def _blend(_: Any, agg: Any, first: Any, theirs: Any, own: Any, at: Any, ours: Any, out: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build = lanes.build
        read = build.fmul(lanes.wide(lanes.values(0, 1, _FLOAT)), lanes.all(lanes.args[2]))
        more = build.fmul(lanes.wide(lanes.values(3, 4, _FLOAT)), lanes.all(lanes.args[5]))
        lanes.write(lanes.narrow(build.fadd(read, more)), 6, 7)

    kinds = types.int64, types.float64, own, types.int64, types.float64, out, types.int64
    return types.void(agg, *kinds), generate


class _Plain:
    """The same operations, one channel after the other."""

    @staticmethod
    def rounds(before: Any, term: Any, after: Any) -> int:
        """Like exact_sums.inexact."""
        return int(after - before != term or after - term != before)

    @staticmethod
    def add(s: Any, to: int, rows: Any, at: int, p: Any, sign: float) -> int:
        s, rows, lossy = s.reshape(-1), rows.reshape(-1), 0
        for i in range(LANES):
            term, before = np.float64(p * rows[at + i]) * sign, s[to + i]
            s[to + i] = before + term
            lossy |= _Plain.rounds(before, term, s[to + i]) << i
        return lossy

    @staticmethod
    def replace(s: Any, to: int, old: Any, at: int, p: Any, new: Any, place: int, q: Any) -> int:
        s, old, new, lossy = s.reshape(-1), old.reshape(-1), new.reshape(-1), 0
        for i in range(LANES):
            gone, come, before = np.float64(p * old[at + i]), np.float64(q * new[place + i]), s[to + i]
            term = come - gone
            s[to + i] = before + term
            lossy |= (_Plain.rounds(before, term, s[to + i]) | _Plain.rounds(come, -gone, term)) << i
        return lossy

    @staticmethod
    def read_one(s: Any, first: int, factor: float, out: Any, at: int) -> None:
        out[at : at + LANES] = np.float32(0) + np.float32(s.reshape(-1)[first : first + LANES] * factor)

    @staticmethod
    def read_two(s: Any, first: int, factor: float, second: int, more: float, out: Any, at: int) -> None:
        _Plain.read_one(s, first, factor, out, at)
        out[at : at + LANES] += np.float32(s.reshape(-1)[second : second + LANES] * more)

    @staticmethod
    def blend(agg: Any, first: int, theirs: float, own: Any, at: int, ours: float, out: Any, to: int) -> None:
        read = np.float64(agg[first : first + LANES]) * theirs
        out[to : to + LANES] = np.float32(read + np.float64(own.reshape(-1)[at : at + LANES]) * ours)


# add(s, to, rows, at, p, sign): add sign * (p * values) to sums; the lanes in which that is not exact, a bit each.
add = for_kernels(_add, _Plain.add)
# replace(s, to, old, at, p, new, place, q): add q * new values - p * old ones, each rounded; likewise.
replace = for_kernels(_replace, _Plain.replace)
# read_one(s, first, factor, out, at): write sums times a factor.
read_one = for_kernels(_read_one, _Plain.read_one)
# read_two(s, first, factor, second, more, out, at): the sums of two sides, each times its factor.
read_two = for_kernels(_read_two, _Plain.read_two)
# blend(agg, first, theirs, own, at, ours, out, to): values times a factor and own ones times another.
blend = for_kernels(_blend, _Plain.blend)
