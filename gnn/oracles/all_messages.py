"""Products and quantiles of the messages of a vertex, with how large an error of 1 in each value is."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import Quantile

Array = np.ndarray

_FLOAT32 = np.finfo(np.float32)


def of_all(kind: Quantile | str, messages: Array, scale: Array, step: float) -> tuple[Array, Array]:
    """Return the product or quantile of messages, and its scale.

    Shapes: messages, scale (n, width) float64, n at least 1; results (width,)
    """
    return _quantile(kind, messages, scale, step) if isinstance(kind, Quantile) else _product(messages, scale, step)


def of_none(kind: Quantile | str) -> float:
    """Return the product or quantile of no messages."""
    return kind.fill_value if isinstance(kind, Quantile) else 1.0


def _product(messages: Array, scale: Array, step: float) -> tuple[Array, Array]:
    """Return the product, which moves the most where all messages grow; PyG's runs over where a part of it does."""
    parts, exponent = messages, np.zeros(messages.shape[1], np.int64)
    while True:  # in pairs, so that no part of it leaves float64's range
        parts, more = np.frexp(parts)
        exponent += more.sum(axis=0)
        if len(parts) == 1:
            break
        odd = parts[len(parts) // 2 * 2 :]
        parts = np.concatenate([parts[: len(parts) - len(odd) : 2] * parts[1::2], odd])
    rows, size = np.ldexp(parts[0], exponent), np.abs(messages)
    grown, largest = (np.exp2(np.log2(of).sum(axis=0)) for of in (size + step * (scale + size), np.maximum(size, 1)))
    off = np.maximum((grown - np.abs(rows)) / step, np.abs(rows)) + float(_FLOAT32.tiny) * largest
    return rows, np.where(largest <= float(_FLOAT32.max), off, np.inf)


def _quantile(of: Quantile, messages: Array, scale: Array, step: float) -> tuple[Array, Array]:
    """Return the quantile, which moves the most where all messages grow, or all get smaller."""
    rows, off = _at(of, messages), step * (scale + np.abs(messages))
    moved = np.maximum(_at(of, messages + off) - rows, rows - _at(of, messages - off)) / step
    return rows, np.maximum(moved, np.abs(rows))


def _at(of: Quantile, messages: Array) -> Array:
    ordered, place = np.sort(messages, axis=0), float(np.float32(of.q)) * (len(messages) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    if of.interpolation in ("lower", "higher"):  # of which the other one may be NaN
        return low if of.interpolation == "lower" else high
    share = 0.5 if of.interpolation == "midpoint" else place - np.floor(place)
    return np.where(low == high, low, (1 - share) * low + share * high)
