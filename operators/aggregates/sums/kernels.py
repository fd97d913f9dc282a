"""Kernels that keep the sums of a Storage: changed edges and source values become messages, merged on the spot.

An epoch has one message per edge and layer that it changes:

- a deleted edge takes back weight * old source value (`delete_edges`);
- an edge with a new weight takes the old message back and brings the new one, of the old value (`reweight_edges`);
- a kept edge whose source changed brings weight * (new - old value) (`update_sources`, which stores the new value);
- an added edge brings weight * new value (`add_edges`).

That is also the order of the calls. Each kernel first lists messages (destination, row, weight) and then merges the
list, so that the rows of later messages are on their way from memory while earlier ones are added.
Source: RIPPLE++ section 3.3.3; other than there, sums and counts are kept, and edges act in every layer.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row, prefetch_wide_row
from freshet.operators.aggregates.exact_sums import (
    IN_EDGES,
    add_delta,
    add_message,
    add_message_change,
    inexact,
    mark,
    note_loss,
)
from freshet.operators.aggregates.finishing import Behind, Candidates
from freshet.operators.aggregates.sums.synopses import MESSAGES_AT_ONCE, ROWS_AT_ONCE, Synopses, scrub, settle
from freshet.operators.aggregates.sums.updates import update_behind
from freshet.operators.graph.both_ends import lacks_index_of_edges, link, reweigh, tag_at, unlink
from freshet.operators.graph.edge_changes import Reweighted, SomeEdges
from freshet.operators.graph.row_kernels import put
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import View, touch

_WITHOUT_SIGN = np.int32(0x7FFFFFFF)
_ALL_CHANNELS = 0xFFFFFFFF
_AHEAD = 12  # messages between asking for a row and using it
SCRUBBED_PER_EPOCH = 2  # rows that the scrubber looks at in an epoch, parts by turns: 170,000 in some minutes
OK, MISSING_EDGE = 0, 1
BEGIN, BEGIN_INDEXED = -1, -2  # of `merge_epoch`, in place of how many edges are added


@inner
def _merge_message_changes(syn: Synopses, count: int, slots: np.ndarray, begin: int, serial: int) -> None:
    """Add the listed messages of changed sources, `slots[begin:]`: weight * (new value - old value)."""
    s, z, note, scratch = syn.s.data, syn.z.data, syn.note.data, syn.scratch
    src, dst, weight = scratch.src, scratch.dst, scratch.weight
    for i in range(count):
        if i + _AHEAD < count:
            ahead = np.int64(dst[i + _AHEAD])
            prefetch_wide_row(s, ahead)
            prefetch(note, ahead * 4)
        v, r = dst[i], src[i]
        mark(syn, v, serial)
        if syn.weighted:
            lossy = add_message_change(s, v, scratch.old, r, z, slots[begin + r], weight[i])
        else:
            lossy = add_delta(s, v, scratch.delta, r)
            if scratch.inexact[r]:
                lossy = np.int64(_ALL_CHANNELS)
        if lossy:
            note_loss(s, note, v, lossy, 2.0 * abs(weight[i]) * scratch.scale[r])


@inner
def _merge_messages(syn: Synopses, count: int, serial: int) -> None:
    """Add the listed messages: weight * value of their source."""
    s, z, note = syn.s.data, syn.z.data, syn.note.data
    src, dst, weight = syn.scratch.src, syn.scratch.dst, syn.scratch.weight
    for i in range(count):
        if i + _AHEAD < count:
            ahead = np.int64(dst[i + _AHEAD])
            prefetch_wide_row(s, ahead)
            prefetch_row(z, np.int64(src[i + _AHEAD]))
            prefetch(note, ahead * 4)
        mark(syn, dst[i], serial)
        lossy = add_message(s, dst[i], z, src[i], weight[i])
        if lossy:
            note_loss(s, note, dst[i], lossy, 0.0)


@inner
def _list_message(syn: Synopses, at: int, src: int, dst: int, weight: float) -> None:
    """Put a message on the list, at place `at`."""
    syn.scratch.src[at] = src
    syn.scratch.dst[at] = dst
    syn.scratch.weight[at] = weight


@inner
def _prefetch_adjacency(syn: Synopses, src: np.ndarray, dst: np.ndarray, i: int) -> None:
    """Ask for the lists of edges further on: first for their heads, then for the ends that the heads point to."""
    if i + 16 < len(src):
        prefetch(syn.out.head.data, np.int64(src[i + 16]) * 3)
        prefetch(syn.note.data, np.int64(dst[i + 16]) * 4)
        prefetch(syn.inn.head.data, np.int64(dst[i + 16]) * 3)
    if i + 8 < len(src):
        u, v = src[i + 8], dst[i + 8]
        prefetch(syn.out.pool.data, place_of(syn.out, u) + syn.out.head.data[u, 1])
        prefetch(syn.inn.pool.data, place_of(syn.inn, v) + syn.inn.head.data[v, 1])


@inner
def delete_edges(syn: Synopses, deleted: SomeEdges, serial: int) -> int:
    """Take back what deleted edges brought, and forget the edges; returns OK or MISSING_EDGE."""
    src, dst, weight, tags = deleted
    for begin in range(0, len(src), MESSAGES_AT_ONCE):
        count = 0
        for i in range(begin, min(begin + MESSAGES_AT_ONCE, len(src))):
            _prefetch_adjacency(syn, src, dst, i)
            u, v = src[i], dst[i]
            if syn.skip_loops and u == v:
                continue
            w = weight[i] if syn.weighted else np.float32(1)
            if not unlink(syn.out, syn.inn, u, v, w, tag_at(syn.out, tags, i)):
                return MISSING_EDGE
            touch(syn.note, v)
            syn.note.data[v, IN_EDGES] -= 1
            _list_message(syn, count, u, v, -w)
            count += 1
        _merge_messages(syn, count, serial)
    return OK


@inner
def reweight_edges(syn: Synopses, reweighted: Reweighted, serial: int) -> int:
    """Replace the messages of edges that get a new weight; returns OK or MISSING_EDGE."""
    src, dst, old, new, tags = reweighted
    edges = MESSAGES_AT_ONCE // 2
    for begin in range(0, len(src) if syn.weighted else 0, edges):
        count = 0
        for i in range(begin, min(begin + edges, len(src))):
            u, v = src[i], dst[i]
            if syn.skip_loops and u == v:
                continue
            if not reweigh(syn.out, syn.inn, u, v, old[i], new[i], tag_at(syn.out, tags, i)):
                return MISSING_EDGE
            _list_message(syn, count, u, v, -old[i])
            _list_message(syn, count + 1, u, v, new[i])
            count += 2
        _merge_messages(syn, count, serial)
    return OK


@inner
def _replace_values(syn: Synopses, slots: np.ndarray, at: np.ndarray, rows: np.ndarray, begin: int, end: int) -> None:
    """Store the new source values `rows[at[begin:end]]`; what changes by that goes to the scratch memory."""
    z, z_bits, row_bits = syn.z.data, syn.z.data.view(np.int32), rows.view(np.int32)
    head, pool, scratch = syn.out.head.data, syn.out.pool.data, syn.scratch
    scale, scale_bits = scratch.scale, scratch.scale.view(np.int32)
    for i in range(begin, end):
        if i + _AHEAD < end:
            prefetch_row(z, np.int64(slots[i + _AHEAD]))
            prefetch(head, np.int64(slots[i + _AHEAD]) * 3)
        u, k, row = slots[i], i - begin, at[i]
        prefetch(pool, place_of(syn.out, u))
        difference, size = np.int32(0), np.int32(0)
        for j in range(z.shape[1]):
            old, new = z_bits[u, j], row_bits[row, j]
            difference |= old ^ new
            size = max(size, max(old & _WITHOUT_SIGN, new & _WITHOUT_SIGN))
        if difference == 0:
            scale[k] = np.float32(-1)
            continue
        scale_bits[k] = size
        touch(syn.z, u)
        if syn.weighted:
            for j in range(z.shape[1]):
                scratch.old[k, j] = z[u, j]
        else:
            scratch.inexact[k] = _keep_delta(z, u, rows, row, scratch.delta, k)
        for j in range(z.shape[1]):
            z[u, j] = rows[row, j]


@inner
def _keep_delta(z: np.ndarray, u: int, rows: np.ndarray, i: int, delta: np.ndarray, k: int) -> bool:
    """Write the new value less the old one to `delta[k]`; returns whether that was rounded."""
    rough = np.int64(0)
    for j in range(z.shape[1]):
        old, new = np.float64(z[u, j]), np.float64(rows[i, j])
        grown = new - old
        delta[k, j] = grown
        rough |= inexact(new, -old, grown)
    return bool(rough != 0)


@inner
def update_sources(syn: Synopses, slots: np.ndarray, at: np.ndarray, rows: np.ndarray, serial: int) -> None:
    """Store the new source values `rows[at]`, and bring what they differ by over the kept edges.

    Unchanged rows bring nothing. Shapes: slots, at (n,) int32; rows (m, >= message_width) float32, C-contiguous.
    """
    n, head, pool, scale = len(slots), syn.out.head.data, syn.out.pool.data, syn.scratch.scale
    for begin in range(0, n, ROWS_AT_ONCE):
        end, count = min(begin + ROWS_AT_ONCE, n), 0
        _replace_values(syn, slots, at, rows, begin, end)
        for i in range(begin, end):
            if scale[i - begin] == np.float32(-1):
                continue
            base, first = base_of(syn.out, slots[i]), place_of(syn.out, slots[i])
            for k in range(first, first + head[slots[i], 1]):
                w = syn.out.weight.data[k] if syn.weighted else np.float32(1)
                _list_message(syn, count, i - begin, base + pool[k], w)
                count += 1
                if count == MESSAGES_AT_ONCE:
                    _merge_message_changes(syn, count, slots, begin, serial)
                    count = 0
        _merge_message_changes(syn, count, slots, begin, serial)


@inner
def add_edges(syn: Synopses, added: SomeEdges, start: int, serial: int) -> int:
    """Add edges from index `start` on and bring their messages; returns where it stopped, as pools may have to grow."""
    src, dst, weight, tags = added
    n, stop = len(src), len(src)
    for begin in range(start, n, MESSAGES_AT_ONCE):
        count = 0
        for i in range(begin, min(begin + MESSAGES_AT_ONCE, n)):
            _prefetch_adjacency(syn, src, dst, i)
            u, v = src[i], dst[i]
            if syn.skip_loops and u == v:
                continue
            w = weight[i] if syn.weighted else np.float32(1)
            if not link(syn.out, syn.inn, u, v, w, tag_at(syn.out, tags, i)):
                stop = i
                break
            touch(syn.note, v)
            syn.note.data[v, IN_EDGES] += 1
            _list_message(syn, count, u, v, w)
            count += 1
        _merge_messages(syn, count, serial)
        if stop < n:
            break
    return stop


@inner
def end_epoch(
    syn: Synopses, serial: int, due: tuple[int, int], totals: np.ndarray, again: np.ndarray, found: np.ndarray
) -> int:
    """Scrub some of the rows that are due and settle all touched ones; returns how many are to be recomputed."""
    part, turn = due
    if 0 <= part < len(totals) and totals[part] > 0:
        first = part << syn.inn.shift if part > 0 else part
        scrub(syn, first, (turn * SCRUBBED_PER_EPOCH) % totals[part], SCRUBBED_PER_EPOCH, totals[part], serial, found)
    return settle(syn, again)


@kernel
def merge_epoch(
    syn: Synopses,
    deleted: SomeEdges,
    reweighted: Reweighted,
    sources: tuple[np.ndarray, np.ndarray, np.ndarray],
    selves: tuple[np.ndarray, np.ndarray],
    own: View,
    has_own: bool,
    added: SomeEdges,
    at: int,
    serial: int,
    due: tuple[int, int],
    totals: np.ndarray,
    again: np.ndarray,
    found: np.ndarray,
    behind: Behind,
    candidates: Candidates,
    result: np.ndarray,
) -> None:
    """Merge an epoch, all in one call: each call waits for the interpreter lock.

    `sources` are slots, places and rows (see `update_sources`), `selves` slots and rows of own inputs, in the columns
    after the message's. `due` is the part that the scrubber looks at, if it is here, and how often it has done so;
    `totals` the rows of each part. `result` gets the status, how many edges are added (all, or a pool must grow and the
    epoch goes on in another call, with that number for `at`: it is BEGIN at first), and how many rows are to be
    recomputed. BEGIN_INDEXED comes back, with nothing changed, where the index of a long list is missing. UPDATE
    follows (`update_behind`) where no row is to be recomputed before.
    """
    if at == BEGIN and lacks_index_of_edges(syn.out, syn.inn, deleted, reweighted):
        result[0], result[1] = OK, BEGIN_INDEXED
        return
    if at < 0:
        result[0] = delete_edges(syn, deleted, serial)
        if result[0] != OK:
            return
        result[0] = reweight_edges(syn, reweighted, serial)
        if result[0] != OK:
            return
        update_sources(syn, sources[0], sources[1], sources[2], serial)
        if has_own:
            put(own, selves[0], selves[1], syn.z.data.shape[1])
    result[1] = add_edges(syn, added, max(at, 0), serial)
    if result[1] == len(added[0]):
        result[2] = end_epoch(syn, serial, due, totals, again, found)
        if result[2] == 0:
            update_behind(syn, behind, candidates)


@kernel
def link_edges(syn: Synopses, added: SomeEdges, start: int) -> int:
    """Add edges from index `start` on, without their messages; returns where it stopped, as pools may have to grow."""
    src, dst, weight, tags = added
    n = len(src)
    for i in range(start, n):
        _prefetch_adjacency(syn, src, dst, i)
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not link(syn.out, syn.inn, u, v, w, tag_at(syn.out, tags, i)):
            return i
        touch(syn.note, v)
        syn.note.data[v, IN_EDGES] += 1
    return n


@kernel
def sum_edges(syn: Synopses, added: SomeEdges, first: int, last: int, serial: int) -> None:
    """Bring the messages of those added edges whose destinations are the rows from `first` up to `last`.

    The sums and notes of `syn` are those of these rows alone, and what it lists as touched counts from `first`.
    """
    src, dst, weight, _ = added
    count = 0
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if v < first or v >= last or (syn.skip_loops and u == v):
            continue
        _list_message(syn, count, u, v - first, weight[i] if syn.weighted else np.float32(1))
        count += 1
        if count == MESSAGES_AT_ONCE:
            _merge_messages(syn, count, serial)
            count = 0
    _merge_messages(syn, count, serial)


@kernel
def settle_epoch(syn: Synopses, again: np.ndarray) -> int:
    """Settle all touched sums, where nothing is scrubbed; returns how many are to be recomputed."""
    return settle(syn, again)


@kernel
def clear_rows(z: View, s: View, note: View, sources: np.ndarray, targets: np.ndarray) -> None:
    """Zero these rows of the tables of sources and of targets."""
    for row in sources:
        touch(z, row)
        for j in range(z.data.shape[1]):
            z.data[row, j] = 0
    for row in targets:
        touch(s, row)
        touch(note, row)
        for j in range(s.data.shape[1]):
            s.data[row, j] = 0
        for j in range(note.data.shape[1]):
            note.data[row, j] = 0
