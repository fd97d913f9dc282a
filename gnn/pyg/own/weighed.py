"""Sums of messages that a softmax weighs: what is linear around one is done behind the sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.own.simplify import ends_of, factors, spread_of
from freshet.gnn.pyg.own.values import Value, take


def behind_sum(value: Value, message: Value) -> Value | None:
    """Return the sum of a message with what is linear in it done behind, one step of it; None where nothing is.

    Raises: ExportError for another aggregate than a sum.
    """
    if value.name != "sum":
        msg = f"{value.place}: messages weighed by softmax are aggregated by {value.name!r}; supported: add"
        raise ExportError(msg)

    def summed(of: Value) -> Value:
        of = replace(of, over=value.of[0].over) if of.over == "every" else of
        return Value("aggregate", of.width, "vertices", (of,), value.place, name="sum")

    arrays, place = message.arrays, message.place
    if message.op == "linear" and "bias" not in arrays:
        return Value("linear", message.width, "vertices", (summed(message.of[0]),), place, arrays=arrays)
    if message.op in ("add", "sub"):
        return Value(message.op, message.width, "vertices", tuple(map(summed, message.of)), place)
    found = [one for one in factors(message) if spread_of(one, "softmax") is not None]
    if message.op == "take" and not found and len(message.of) == 1:
        return take([summed(message.of[0])], arrays["which"], arrays["column"], "vertices", place)
    return None


def weighed(value: Value, message: Value) -> tuple[int, Value, Value]:
    """Return the heads, the scores and the values of a message that is a softmax times something.

    Raises: ExportError for another message.
    """
    width = message.width
    found = [(one, spread) for one in factors(message) if (spread := spread_of(one, "softmax")) is not None]
    rest = [one for one in factors(message) if one not in [factor for factor, _ in found]]
    if len(found) != 1 or any("softmax" in ends_of(one) for one in rest):
        msg = f"{message.place or value.place}: Freshet takes a message that is a softmax times something"
        raise ExportError(msg)
    softmax, columns = found[0][1]
    scores, heads = softmax.of[0], softmax.width
    if "softmax" in ends_of(scores):
        msg = f"{softmax.place}: a softmax of a softmax is no function of a message that Freshet knows"
        raise ExportError(msg)
    if width % heads or columns.tolist() != np.repeat(np.arange(heads), width // heads).tolist():
        scores, heads = take([scores], np.zeros(width, np.int64), columns, "edges", softmax.place), width
    if not rest:
        rest = [Value("constant", width, "every", place=value.place, arrays={"value": np.ones(width, np.float32)})]
    product = rest[0]
    for one in rest[1:]:
        product = Value("mul", max(product.width, one.width), "edges", (product, one), value.place)
    if product.width != width:
        product = take([product], np.zeros(width, np.int64), np.zeros(width, np.int64), "edges", value.place)
    return heads, scores, product
