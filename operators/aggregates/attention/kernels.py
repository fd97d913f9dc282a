"""Kernels of softmax sums: per row, side and head a shift, D = sum p and N = sum p * value; p = exp(score - shift).

p and p * value are rounded to float32 before they are added in float64, so that these are the exact sums of
aggregates/exact_sums.py: removed messages leave no error, and a row records a loss of precision. The shift of a head is
constant while its messages stay, since the same terms must be added and subtracted. It is set again when a row is
summed again: when a score is far above the shift, when little of the denominator is left, or when the target's term
changes and the score is not additive (recomputed.py).

Of an additive score, LeakyReLU(s_u + t_v), a part sums e^(s_u) and e^(slope s_u) on either side of s_u + t_v = 0, and
the target's factor comes in when the sums are read. If t_v changes, the messages that change sides are moved
(sides.py).

Invariant: D and N of a side are the sums over the in-edges (u, v) of this part whose score is on that side.
Source: docs/design/aggregates.md, Attention; NeutronRT, algorithm 3, for deltas made of old source values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.scores import ADDITIVE, Terms, score_of, side_of
from freshet.kernels.kernel import apart, inner
from freshet.kernels.prefetch import prefetch
from freshet.operators.aggregates.exact_sums import IN_EDGES, LAST_SERIAL, LOSSY, note_loss
from freshet.operators.graph.edge_table import FIRST_NUMBER
from freshet.state.adjacency import ListsRead
from freshet.state.table import View, touch

DELTAS, FLIPPED, SCANNED, AFRESH, REREAD = range(5)  # what is counted: messages, messages, messages, rows, messages
TOUCHED, RENEWED = range(2)  # of the counter
SUSPECT = IN_EDGES  # of a note, which has no use for their number: the last epoch that has the row looked at in its end
AHEAD = 8
_SHIFT = 4  # where shifts begin in the head of a row, in int32: behind the note
LINE_DOUBLES = 8  # float64 of a cache line
_LEAST = 2.0**-80  # of a denominator: what has vanished from float32 beside the shift is nothing beside this


class Attention(NamedTuple):
    """View of a fold of softmax sums for kernels."""

    # (rows of targets, width_of) float64: of a row its head, then its sums: per side and head D, then N; and where they
    # are summed, the edges' terms of each head
    s: View
    note: np.ndarray  # (rows, 2 * width_of) int32: `s` once more, of which every row begins with its head
    reals: np.ndarray  # (rows, 2 * width_of) float32: likewise
    before: int  # columns of `s` before the sums
    near: View  # (rows of sources, heads) float32: of additive scores their terms once more, for scans of in-edges
    renew: np.ndarray  # (rows of targets,) int32: the serial of the last epoch that sums the row again
    touched: np.ndarray  # (rows of targets,) int32
    counter: np.ndarray  # (2,) int64: how many rows are touched, and of them summed afresh
    fresh: np.ndarray  # (2, sums of a row) float64
    flips: np.ndarray  # (n, 4) int32: source, destination, head and edge of messages that are about to change sides
    counts: np.ndarray  # (5,) int64
    terms: Terms


def width_of(sums: int, heads: int, channels: int, more: int, *, additive: bool) -> tuple[int, int]:
    """Return how many float64 a row of `s` has before its sums, of which there are `sums` a channel, and in all.

    `more` are further sums behind those. A row is whole cache lines, and its head lies in the first one where there are
    few heads.
    """
    before = -(-(_SHIFT + 2 * sums + (heads if additive else 0)) // 2)
    return before, -(-(before + sums * (1 + channels) + more) // LINE_DOUBLES) * LINE_DOUBLES


@inner
def sums_of(att: Attention) -> np.int64:
    """Return the number of sums D of a row: one for each side and head."""
    return np.int64(2 * att.terms.heads if att.terms.kind == ADDITIVE else att.terms.heads)


@inner
def loops_at(att: Attention) -> np.int64:
    """Return the place, among the sums of a row, of those of the edges' terms; behind all others."""
    return sums_of(att) * np.int64(1 + att.terms.channels)


@inner
def sums_terms(att: Attention) -> bool:
    """Return whether a row has sums of the edges' terms, of each head."""
    return att.fresh.shape[1] > loops_at(att)


@inner
def note_loss_of(att: Attention, row: int, lossy: int, size: float) -> None:
    """Note what an addition to the sums of a row may have lost (see `exact_sums.note_loss`).

    The sums are cut out here, since a part of columns may not be handed over (see `Direct`).
    """
    sums = att.s.data[:, att.before : att.before + att.fresh.shape[1]]
    note_loss(sums, att.note, row, lossy, size)


@inner
def denominator_of(att: Attention, row: int, k: int) -> np.float64:
    """D of side and head `k`."""
    return att.s.data[row, att.before + k * (1 + att.terms.channels)]


@inner
def shift_at(att: Attention, k: int) -> np.int64:
    """Return the place, in a row of `reals`, of the shift of side and head `k`."""
    return np.int64(_SHIFT + k)


@inner
def held_at(att: Attention, k: int) -> np.int64:
    """Return the place, in a row of `note`, of the number of messages of side and head `k`."""
    return np.int64(_SHIFT + sums_of(att) + k)


@inner
def target_at(att: Attention, h: int) -> np.int64:
    """Return the place, in a row of `reals`, of the target's term of head `h`, for additive scores."""
    return np.int64(_SHIFT + 2 * sums_of(att) + h)


@inner
def prefetch_head(att: Attention, row: int) -> None:
    """Ask for what a row has before its sums, and for the first of them."""
    prefetch(att.s.data, np.int64(row) * att.s.data.shape[1])
    for j in range(LINE_DOUBLES, att.before, LINE_DOUBLES):
        prefetch(att.s.data, np.int64(row) * att.s.data.shape[1] + j)


class EdgeTerms(NamedTuple):
    """Terms of additive scores from attributes of edges: one of each head, which joins that of the source."""

    read: bool  # whether they do
    attr: np.ndarray  # (rows of edges, width) float32
    w: np.ndarray  # (heads, width) float64
    numbers: np.ndarray  # (entries of the lists of in-edges,) int32: bits of the edges' numbers (graph/edge_table.py)
    stride: int  # rows of edges in a part
    away: np.ndarray  # (rows of edges,) uint8: 1 for those whose attributes change in the epoch; (0,) if none do


class InEdges(NamedTuple):
    """View of a Storage's edges and values for kernels."""

    z: np.ndarray  # (rows of sources, message_width) float32
    q: np.ndarray  # (rows of targets, width) float32: what scores read of targets
    in_edges: np.ndarray  # (rows of targets,) int32
    inn: ListsRead
    terms: EdgeTerms


@inner
def edges_before(edges: InEdges, v: int) -> np.int64:
    """Return what is added to the bits of a number, of an edge to v, to have its row."""
    return np.int64(v >> edges.inn.shift) * edges.terms.stride - FIRST_NUMBER


@inner
def edge_of(edges: InEdges, numbers: np.ndarray, i: int, v: int) -> np.int64:
    """Return the row of the edge to v of which `numbers[i]` are the bits of its number; 0 where none is read."""
    return edges_before(edges, v) + np.int64(numbers[i]) if edges.terms.read else np.int64(0)


@inner
def _dot(attr: np.ndarray, w: np.ndarray, e: int, h: int) -> np.float64:
    """Return the term of an edge in a head. Unsigned: see `exact_sums.add_term`."""
    total, row, head = np.float64(0), np.uint64(e), np.uint64(h)
    for c in range(np.uint64(w.shape[1])):
        total += np.float64(attr[row, c]) * w[head, c]
    return total


@inner
def term_of(edges: InEdges, e: int, h: int) -> np.float64:
    """Return the term of an edge in a head."""
    return _dot(edges.terms.attr, edges.terms.w, e, h)


@apart
def _joined(source: np.float32, attr: np.ndarray, w: np.ndarray, e: int, h: int) -> np.float32:
    """Return a source's term with that of an edge; a function of its own, so that scores without stay short."""
    return np.float32(np.float64(source) + _dot(attr, w, e, h))


@inner
def source_in(att: Attention, edges: InEdges, rows: np.ndarray, u: int, e: int, h: int) -> np.float32:
    """Return the term that an additive score has of row u of `rows`, and of the edge."""
    term = rows[u, att.terms.source + h]
    return _joined(term, edges.terms.attr, edges.terms.w, e, h) if edges.terms.read else term


@inner
def score_on(
    att: Attention, source: float, rows: np.ndarray, u: int, q: np.ndarray, v: int, h: int, side: int
) -> np.float64:
    """The score of an edge from row u of `rows` to v; of an additive one the source's part of it on that side.

    `source` is what `source_in` returns.
    """
    if att.terms.kind == ADDITIVE:
        # a factor of 1 and no branch, which would be guessed wrong every other time
        return np.float64(source) * (np.float64(1) if side else np.float64(att.terms.slope))
    return score_of(att.terms, rows, u, q, v, h)


@inner
def side_in(att: Attention, source: float, v: int, h: int) -> np.int64:
    """Return the side of a message to v, with the source's term."""
    if att.terms.kind != ADDITIVE:
        return np.int64(0)
    return side_of(att.terms, source, att.reals[v, target_at(att, h)])


@inner
def suspect_where(att: Attention, row: int, condition: bool, serial: int) -> None:
    """Mark the row, under a condition, for the end of the epoch: its sums may have to be cleared or summed again.

    The mark is written in either case, to a cache line that is loaded already: a call for the few rows, or a branch,
    takes a tenth longer for all of them.
    """
    att.note[row, SUSPECT] = np.int32(serial) if condition else att.note[row, SUSPECT]


@inner
def renew(att: Attention, row: int, serial: int) -> None:
    """Mark the row to be summed again at the end of the epoch."""
    if att.renew[row] != serial:
        att.renew[row] = serial
        att.counter[RENEWED] += 1
        suspect_where(att, row, True, serial)


@inner
def is_renewed(att: Attention, row: int, serial: int) -> bool:
    """Return whether the row will be summed again; in most epochs none is, so that nothing has to be read."""
    return att.counter[RENEWED] > 0 and att.renew[row] == serial


@inner
def little_is_left(denominator: float) -> bool:
    """Return whether the denominator of messages is small relative to its shift, or not finite."""
    return not denominator >= _LEAST


@inner
def mark(att: Attention, row: int, serial: int) -> None:
    """Note that the sums of `row` change in this epoch."""
    if att.note[row, LAST_SERIAL] != serial:
        touch(att.s, row)
        att.note[row, LAST_SERIAL] = serial
        att.touched[att.counter[TOUCHED]] = row
        att.counter[TOUCHED] += 1
        suspect_where(att, row, att.note[row, LOSSY] != 0, serial)


@inner
def places_of(att: Attention, k: int, h: int) -> tuple[np.uint64, np.uint64]:
    """Return where the sums of a side begin in a row of `s`, and the values of a head in a row of z.

    Unsigned: see `exact_sums.add_term`.
    """
    return np.uint64(att.before + k * (1 + att.terms.channels)), np.uint64(h * att.terms.channels)


@apart
def clear_side(att: Attention, row: int, k: int) -> None:
    """Sums without messages are exactly 0."""
    first, _ = places_of(att, k, np.int64(0))
    for c in range(np.uint64(1 + att.terms.channels)):
        att.s.data[row, first + c] = 0.0
    att.reals[row, shift_at(att, k)] = np.float32(0)
