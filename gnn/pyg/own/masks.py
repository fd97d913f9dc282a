"""Notes of comparisons: of what edges carry and of constants, which are the same numbers in every job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from freshet.gnn.pyg.own.edges import finite_of
from freshet.gnn.pyg.own.recorder import Note, Noted, NotedValue, Operation, Recorder, axis_of, tracked
from freshet.gnn.pyg.own.values import Over, Value, constant

_COMPARES = (
    "compares rows, or numbers that are computed, which jump where float32 and float64 part, and a message of Freshet "
    "has no branches on them. Compared may be attributes and weights of edges as they came. Nearest: what changes "
    "steadily, as torch.relu, torch.maximum or torch.clamp"
)


def is_mask(value: Value) -> bool:
    """Return whether a value is 1 or 0 everywhere, by what edges carry alone."""
    if value.op in ("greater", "equal"):
        return True
    return value.op in ("mul", "max", "take") and all(map(is_mask, value.of))


def _as_came(value: Value) -> bool:
    """Return whether a value has the same bits in every job: what edges carry, a constant, or a mask of these."""
    if value.op == "take":
        return all(map(_as_came, value.of))
    if value.op == "attr" and value.of:  # attributes of added self-loops, of which sums are rounded
        return value.of[0].name in ("max", "min")
    return value.op in ("attr", "weight", "constant") or value.is_types or is_mask(value)


def _operands(rec: Recorder, call: Operation, tensors: Any) -> tuple[list[Value], Over, int]:
    """Return values as they meet in an operation, whose rows these are, and the dimension that counts them."""
    over = tracked(rec, call)[1].value.over
    axis = axis_of(rec, call, over)
    numbers = [one.float() if _is_constant_mask(rec, one) else one for one in tensors]
    return [rec.operand(call, one, call.result.shape, axis, over) for one in numbers], over, axis


def _is_constant_mask(rec: Recorder, one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.dtype == torch.bool and rec.find(one) is None


def _made(op: str, of: list[Value], over: Over, place: str) -> Value:
    return Value(op, max(one.width for one in of), over, tuple(of), place)


def _not(value: Value, over: Over, place: str) -> Value:
    return _made("equal", [value, constant(np.zeros(1), place)], over, place)


def _compared(op: str, *, swaps: bool = False, negates: bool = False, or_equal: bool = False) -> Note:
    """Return how a comparison is noted: by `op`, of both sides the other way round, or equal, or not so."""

    def note(rec: Recorder, call: Operation) -> NotedValue:
        sides, over, axis = _operands(rec, call, call.args[:2])
        if not all(map(_as_came, sides)):
            call.refuse(f"{call.name} {_COMPARES}")
        made = _made(op, sides[::-1] if swaps else sides, over, call.place)
        if or_equal:
            made = _made("max", [made, _made("equal", sides, over, call.place)], over, call.place)
        return NotedValue(_not(made, over, call.place) if negates else made, axis)

    return note


def _equal(rec: Recorder, call: Operation) -> Noted:
    noted = rec.find(call.args[0])
    if noted is not None and not _as_came(noted.value) and not isinstance(call.args[1], torch.Tensor):
        if call.args[1] in (0, float("inf")):  # as degrees are, for what is infinite there
            return noted.then("infinite" if call.args[1] else "zero", call.place)
    return _compared("equal")(rec, call)


def _infinite(rec: Recorder, call: Operation) -> NotedValue:
    return tracked(rec, call)[1].then("infinite", call.place)


def _sign(rec: Recorder, call: Operation) -> NotedValue:
    (value,), over, axis = _operands(rec, call, call.args[:1])
    if not _as_came(value):
        call.refuse(f"{call.name} {_COMPARES}")
    none = constant(np.zeros(1), call.place)
    sides = [_made("greater", of, over, call.place) for of in ([value, none], [none, value])]
    return NotedValue(_made("sub", sides, over, call.place), axis)


def _joined(op: str) -> Note:
    def note(rec: Recorder, call: Operation) -> NotedValue:
        masks, over, axis = _operands(rec, call, call.args[: 1 if op == "not" else 2])
        if not all(is_mask(one) or one.op == "constant" for one in masks):
            call.refuse(f"{call.name} of something other than masks")
        return NotedValue(_not(masks[0], over, call.place) if op == "not" else _made(op, masks, over, call.place), axis)

    return note


def _picked(rec: Recorder, call: Operation, mask: Any, one: Any, other: Any) -> NotedValue:
    """Note what is `one` where a mask is 1, else `other`."""
    noted, of_other = rec.find(mask), rec.find(other)
    if noted is not None and of_other is not None and _is_zero(rec, one):
        if (finite := finite_of(of_other, noted.value, call.place)) is not None:
            return finite
    if noted is not None and not is_mask(noted.value):
        call.refuse("it changes those rows that a mask picks, and Freshet has no branches on rows")
    of, over, axis = _operands(rec, call, (mask, one, other))
    return NotedValue(_made("where", of, over, call.place), axis)


def _is_zero(rec: Recorder, one: Any) -> bool:
    return not (bool(one.any()) if isinstance(one, torch.Tensor) else one) and rec.find(one) is None


def _where(rec: Recorder, call: Operation) -> NotedValue:
    if len(call.args) < 3:
        call.refuse("where with one argument gives the numbers of vertices or edges")
    return _picked(rec, call, *call.args[:3])


def _masked_fill(rec: Recorder, call: Operation) -> NotedValue:
    rows, mask, fill = call.args[:3]
    return _picked(rec, call, mask, fill, rows)


def _index_put(rec: Recorder, call: Operation) -> NotedValue:
    rows, masks, fill = call.args[:3]
    if call.options.get("accumulate") or (len(call.args) > 3 and call.args[3]):
        call.refuse("it adds to those rows that a mask picks, and Freshet has no branches on rows")
    if len(masks) != 1 or masks[0] is None or masks[0].dtype != torch.bool or rec.find(masks[0]) is None:
        call.refuse("it changes those rows that an index picks, and Freshet has no branches on rows")
    with rec:
        mask = masks[0].view(*masks[0].shape, *[1] * (rows.dim() - masks[0].dim()))
    return _picked(rec, call, mask, fill, rows)


def _nan_to_num(rec: Recorder, call: Operation) -> Noted:
    """Note 0 for what is infinite, or 0 times that, in products of powers of degrees and of what edges have.

    A sum of ones is 0 or above, so its powers are numbers or infinite.
    """
    names = ("self", "nan", "posinf", "neginf")
    given = dict(zip(names, call.args, strict=False)) | dict(call.options)
    noted = rec.find(given["self"])
    if noted is None or any((given.get(name) if name != "nan" else given.get(name) or 0) != 0 for name in names[1:]):
        return rec.taken_apart(call)
    finite = _finite(noted.value, call.place)
    return rec.taken_apart(call) if finite is None else NotedValue(finite, noted.axis)


def _finite(value: Value, place: str) -> Value | None:
    """Return a value with 0 where it is infinite or no number; None where that may be elsewhere."""
    if value.op in ("weight", "attr", "constant"):
        return value
    if value.op == "mul":
        of = [_finite(one, place) for one in value.of]
        return None if None in of else replace(value, of=tuple(one for one in of if one is not None))
    inner = value.of[0] if value.op == "sqrt" else value
    exponent = -0.5 if value.op == "sqrt" else -1.0
    if inner.op == "div" and inner.of[0].op == "constant" and (inner.of[0].arrays["value"] == 1).all():
        base = inner.of[1]
    elif value.op == "power" and value.arrays["exponent"][0] < 0:
        base, exponent = value.of[0], float(value.arrays["exponent"][0])
    else:
        return None
    degree = base.of[0] if base.op == "gather" else base
    if degree.op != "out_degree" and not _is_count(degree):
        return None
    power = Value("power", 1, degree.over, (degree,), place, arrays={"exponent": np.array([exponent], np.float64)})
    made = Value("finite", 1, degree.over, (power,), place)
    return replace(base, of=(made,), place=place) if base.op == "gather" else made


def _is_count(value: Value) -> bool:
    if value.op != "aggregate" or value.name != "sum" or value.width != 1:
        return False
    return value.of[0].op == "constant" and bool((value.of[0].arrays["value"] > 0).all())


MASK_NOTES: dict[str, Note] = {
    "nan_to_num": _nan_to_num,
    "gt": _compared("greater"),
    "lt": _compared("greater", swaps=True),
    "ge": _compared("greater", or_equal=True),
    "le": _compared("greater", swaps=True, or_equal=True),
    "eq": _equal,
    "ne": _compared("equal", negates=True),
    "isinf": _infinite,
    **dict.fromkeys(("sign", "sgn"), _sign),
    **{f"{kind}_{name}": _joined(op) for kind in ("bitwise", "logical") for name, op in
       (("and", "mul"), ("or", "max"), ("not", "not"))},
    "where": _where,
    "masked_fill": _masked_fill,
    "index_put": _index_put,
}  # fmt: skip
