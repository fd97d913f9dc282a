"""Kernels that merge messages, in the order of their sources, into what a range of destinations keeps of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.scores import ADDITIVE, Terms, score_of
from freshet.kernels.kernel import exp, inner, kernel
from freshet.kernels.prefetch import prefetch_row
from freshet.operators.aggregates.exact_sums import prefetch_sum
from freshet.operators.aggregates.gates.fold import gated_message
from freshet.operators.embed.hot_kernels import Items
from freshet.operators.graph.edge_messages import Messages

_AHEAD = 8


class RangeTask(NamedTuple):
    """What holds for a whole pass: `first` is the vertex of row 0, sources stand from row `base` of the values on."""

    first: int
    base: int
    skip_loops: bool
    weighted: bool


@kernel
def list_messages(items: Items, task: RangeTask, messages: Messages, got: np.ndarray) -> int:
    """List the messages of a chunk to destinations of the range, and count them by destination; returns how many."""
    count = 0
    for u in range(len(items.ends) - 1):
        for e in range(items.ends[u], items.ends[u + 1]):
            row = np.int64(items.dst[e]) - task.first
            if row < 0 or row >= len(got) or (task.skip_loops and items.dst[e] == items.source + u):
                continue
            messages.src[count], messages.dst[count] = task.base + u, row
            messages.weight[count] = items.weight[e] if task.weighted else np.float32(1)
            got[row] += 1
            count += 1
    return count


@inner
def _ask_ahead(s: np.ndarray, z: np.ndarray, messages: Messages, i: int) -> None:
    if i + _AHEAD < len(messages.src):
        prefetch_sum(s, np.int64(messages.dst[i + _AHEAD]))
        prefetch_row(z, np.int64(messages.src[i + _AHEAD]))


@kernel
def merge_sums(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages. Shapes: s (rows, width) float64; z (values, width) float32."""
    for i in range(len(messages.src)):
        _ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(s.shape[1]):
            s[v, j] += np.float64(messages.weight[i] * z[u, j])


@kernel
def merge_moments(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages and their squares. Shapes: s (rows, 2 * width) float64; z (values, width) float32."""
    width = s.shape[1] // 2
    for i in range(len(messages.src)):
        _ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(width):
            m = np.float64(messages.weight[i] * z[u, j])
            s[v, j] += m
            s[v, width + j] += m * m


@kernel
def merge_extrema(s: np.ndarray, z: np.ndarray, messages: Messages, sign: float) -> None:
    """Keep the largest of `sign` times the messages, channel by channel; NaN passes everything.

    Shapes: s (rows, width) float32, -inf where there was none; z (values, width) float32.
    """
    for i in range(len(messages.src)):
        _ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        factor = sign * messages.weight[i]
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m > s[v, j] or m != m:
                s[v, j] = m


@kernel
def merge_gated(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add gated messages.

    Shapes: s (rows, channels) float64; z (values, 3 * channels) float32, the destinations' rows first.
    """
    for i in range(len(messages.src)):
        _ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for c in range(s.shape[1]):
            s[v, c] += gated_message(z, u, v, c)


@inner
def _score(terms: Terms, z: np.ndarray, u: int, v: int, h: int) -> np.float64:
    if terms.kind != ADDITIVE:
        return score_of(terms, z, u, z, v, h)
    both = np.float64(z[u, terms.source + h]) + np.float64(z[v, terms.target + h])
    return both if both > 0 else np.float64(terms.slope) * both


@inner
def _raise_shift(s: np.ndarray, v: int, at: int, channels: int, score: float) -> np.float64:
    """Have a head's sums relative to a score that is larger than all before, as it is written: in float32."""
    shift = np.float64(np.float32(score))
    if s[v, at + 1] != 0:
        factor = exp(s[v, at] - shift)
        for j in range(at + 1, at + 2 + channels):
            s[v, j] *= factor
    s[v, at] = shift
    return shift


@kernel
def merge_softmax(s: np.ndarray, z: np.ndarray, messages: Messages, terms: Terms) -> None:
    """Add messages to softmax sums whose shift is the largest score so far.

    Shapes: s (rows, heads * (channels + 2)) float64, [m | D | N] per head, 0 without messages; z (values, width)
    float32, the destinations' rows first.
    """
    channels = terms.channels
    for i in range(len(messages.src)):
        _ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for h in range(terms.heads):
            at = h * (channels + 2)
            score, shift = _score(terms, z, u, v, h), s[v, at]
            if s[v, at + 1] == 0 or score > shift:
                shift = _raise_shift(s, v, at, channels, score)
            p = exp(score - shift)
            s[v, at + 1] += p
            for c in range(channels):
                s[v, at + 2 + c] += p * np.float64(z[u, h * channels + c])
