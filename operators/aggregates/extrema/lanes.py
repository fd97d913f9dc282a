"""channels.py for 16 channels at a time, in vector instructions.

A kernel's loop over channels that writes to arrays asks first whether those overlap, which takes three times as long as
the work on the channels of a cache line does: 9 ns where `merge` takes 3. So these are written in LLVM's vectors, which
it has instructions for on any processor. Where kernels run as plain Python, for debugging, they are those of
channels.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from freshet.operators.aggregates.extrema import channels as extrema_channels
from freshet.operators.aggregates.extrema.channels import NOTHING
from freshet.operators.aggregates.intrinsics import Vectors, for_kernels

LANES = 16
_FLOAT, _INT, _SHORT = ir.FloatType(), ir.IntType(32), ir.IntType(16)


def _all(value: float, kind: ir.Type) -> Any:
    """A number in every lane."""
    return ir.Constant(ir.VectorType(kind, LANES), [kind(value)] * LANES)


class _Lanes(Vectors):
    """Instructions on 16 channels."""

    LANES, ALIGN = LANES, 2

    def message(self, array: int, at: int, factor: int) -> Any:
        """The factor times the values, + 0."""
        return self.product(self.load(self.place(array, at, _FLOAT)), self.args[factor])

    def product(self, values: Any, factor: Any) -> Any:
        return self.build.fadd(self.build.fmul(values, self.all(factor)), _all(0.0, _FLOAT))

    def is_nan(self, values: Any) -> Any:
        return self.build.fcmp_unordered("uno", values, values)

    def equal(self, a: Any, b: Any) -> Any:
        return self.build.fcmp_ordered("==", a, b)

    def better(self, message: Any, best: Any) -> Any:
        """Return where the message is above the extremum, or NaN."""
        return self.build.or_(self.build.fcmp_ordered(">", message, best), self.is_nan(message))

    def any(self, lanes: Any) -> Any:
        return self.build.icmp_unsigned("!=", self.build.bitcast(lanes, _SHORT), _SHORT(0))

    def count(self, lanes: Any) -> Any:
        return self.build.zext(self.build.ctpop(self.build.bitcast(lanes, _SHORT)), ir.IntType(64))

    def saturating(self, name: str, a: Any, b: Any) -> Any:
        """Add or subtract shorts, to 65,535 (MOST_HOLDERS) and 0 at the most."""
        kind = ir.FunctionType(a.type, [a.type, a.type])
        function = cgutils.get_or_insert_function(self.build.module, kind, f"llvm.{name}.sat.v{LANES}i16")
        return self.build.call(function, [a, b])


def _passes(_: Any, z: Any, at: Any, factor: Any, s: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        worse = lanes.build.fcmp_ordered("<", lanes.message(0, 1, 2), lanes.load(lanes.place(3, 4, _FLOAT)))
        return lanes.any(lanes.build.not_(worse))

    return types.boolean(z, types.int64, types.float32, s, types.int64), generate


def _count_off(_: Any, z: Any, at: Any, factor: Any, s: Any, holders: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        m, many = lanes.message(0, 1, 2), lanes.place(4, 5, _SHORT)
        held = lanes.equal(m, lanes.load(lanes.place(3, 5, _FLOAT)))
        left = lanes.saturating("usub", lanes.load(many), lanes.build.zext(held, _all(0, _SHORT).type))
        lanes.store(lanes.build.select(lanes.is_nan(m), _all(0, _SHORT), left), many)
        return lanes.count(held)

    return types.int64(z, types.int64, types.float32, s, holders, types.int64), generate


def _count_on(_: Any, z: Any, at: Any, factor: Any, s: Any, holders: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build, m = lanes.build, lanes.message(0, 1, 2)
        extrema, many = lanes.place(3, 5, _FLOAT), lanes.place(4, 5, _SHORT)
        best = lanes.load(extrema)
        better, equal, shorts = lanes.better(m, best), lanes.equal(m, best), _all(0, _SHORT).type
        lanes.store(build.select(better, m, best), extrema)
        alone = build.zext(build.not_(lanes.is_nan(m)), shorts)
        more = lanes.saturating("uadd", lanes.load(many), build.zext(equal, shorts))
        lanes.store(build.select(better, alone, more), many)
        first = build.and_(equal, lanes.equal(m, _all(float(NOTHING), _FLOAT)))
        return lanes.any(build.or_(better, first))

    return types.boolean(z, types.int64, types.float32, s, holders, types.int64), generate


def _merge(_: Any, z: Any, at: Any, factor: Any, best: Any, found: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build, m = lanes.build, lanes.message(0, 1, 2)
        extrema, many = lanes.place(3, 5, _FLOAT), lanes.place(4, 5, _INT)
        most = lanes.load(extrema)
        better = lanes.better(m, most)
        more = build.add(lanes.load(many), build.zext(lanes.equal(m, most), _all(0, _INT).type))
        lanes.store(build.select(better, m, most), extrema)
        lanes.store(build.select(better, _all(1, _INT), more), many)

    return types.void(z, types.int64, types.float32, best, found, types.int64), generate


def _merge_four(
    _: Any, z: Any, places: Any, first: Any, factors: Any, factor: Any, best: Any, found: Any, to: Any
) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build, word, messages = lanes.build, ir.IntType(64), []
        for i in range(4):
            at = build.load(lanes.element(1, build.add(lanes.args[2], word(i)), word))
            values = lanes.load(lanes.element(0, at, ir.VectorType(_FLOAT, LANES)))
            number = build.load(lanes.element(3, build.add(lanes.args[4], word(i)), _FLOAT))
            messages.append(lanes.product(values, number))
        extrema, many = lanes.place(5, 7, _FLOAT), lanes.place(6, 7, _INT)
        most, number = lanes.load(extrema), lanes.load(many)
        top = messages[0]
        for m in messages[1:]:  # a NaN stays: nothing is above it
            top = build.select(lanes.better(m, top), m, top)
        better = lanes.better(top, most)
        number = build.select(better, _all(0, _INT), number)
        most = build.select(better, top, most)
        for m in messages:
            number = build.add(number, build.zext(lanes.equal(m, most), number.type))
        number = build.select(lanes.is_nan(most), _all(1, _INT), number)
        lanes.store(most, extrema)
        lanes.store(number, many)

    kinds = places, types.int64, factors, types.int64, best, found, types.int64
    return types.void(z, *kinds), generate


def _put(_: Any, best: Any, found: Any, at: Any, s: Any, holders: Any, to: Any) -> Any:
    def generate(*given: Any) -> Any:
        lanes = _Lanes(*given)
        build, extrema, many = lanes.build, lanes.place(3, 5, _FLOAT), lanes.place(4, 5, _SHORT)
        new, number = lanes.load(lanes.place(0, 2, _FLOAT)), lanes.load(lanes.place(1, 2, _INT))
        old, had = lanes.load(extrema), lanes.load(many)
        exposed = build.icmp_unsigned("==", had, _all(0, _SHORT))
        most = _all(extrema_channels.MOST_HOLDERS, _INT)
        few = build.select(build.icmp_signed("<", number, most), number, most)
        same = build.or_(lanes.equal(new, old), build.and_(lanes.is_nan(new), lanes.is_nan(old)))
        lanes.store(build.select(exposed, new, old), extrema)
        lanes.store(build.select(exposed, build.trunc(few, had.type), had), many)
        return lanes.any(build.and_(exposed, build.not_(same)))

    return types.boolean(best, found, types.int64, s, holders, types.int64), generate


def _merge_four_plainly(*args: Any) -> None:
    z, places, first, factors, factor, *found = args
    for i in range(4):
        extrema_channels.merge(z, int(places[first + i]), factors[factor + i], *found, LANES)


passes = for_kernels(_passes, partial(extrema_channels.passes, channels=LANES))
count_off = for_kernels(_count_off, partial(extrema_channels.count_off, channels=LANES))
count_on = for_kernels(_count_on, partial(extrema_channels.count_on, channels=LANES))
merge = for_kernels(_merge, partial(extrema_channels.merge, channels=LANES))
# merge_four(z, places, first, factors, factor, ...): `merge` of four messages, with places and factors from lists.
merge_four = for_kernels(_merge_four, _merge_four_plainly)
put = for_kernels(_put, partial(extrema_channels.put, channels=LANES))
