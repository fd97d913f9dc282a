"""The kernels of Storage: edge changes and replica sync become messages and are merged into the synopses on the spot.

One message per edge, layer and epoch: a deleted edge takes back weight * old source value, a kept one whose source
changed brings weight * (new - old), an added one brings weight * new. So per epoch: `retract` and `reweight` with the
old values, then `spread` (which stores the new ones) over the kept edges, then `attach`. Each first lists some messages
(destination, row, weight) and then merges the list, so that the rows of later messages are on their way from memory
while earlier ones are added.
Source: RIPPLE++ section 3.3.3, with the cures of the digest (sums and counts are kept, edges act in every layer).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.rows import put
from state.kernel import kernel
from state.lists import ListsView, append, remove
from state.prefetch import prefetch, prefetch_row
from state.table import View, touch

# A row this far below the largest term that ever entered it has lost bits, and is recomputed from its edges: 2^-8,
# as a difference of the exponents in the bits of two float32.
CANCELLATION_BITS = np.int32(8 << 23)
INFINITY_BITS = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_AHEAD = 12
_LISTED = 4096  # messages listed before they are merged
_ROWS = 512  # changed rows looked at before their messages are listed
OK, MISSING_EDGE = 0, 1
# Columns of the notes that a row of synopses has, side by side in one cache line.
STAMP, PEAK, LOCAL = 0, 1, 2


class Scratch(NamedTuple):
    """Memory of the kernels: a list of messages, and the changes of source rows."""

    src: np.ndarray  # (_LISTED,) int32: slot of the source, or row of `delta`
    dst: np.ndarray  # (_LISTED,) int32
    weight: np.ndarray  # (_LISTED,) float32
    delta: np.ndarray  # (_ROWS, message_width) float32
    scale: np.ndarray  # (_ROWS,) float32: bound of the values that a row of `delta` is the difference of, -1: unchanged


def make_scratch(width: int) -> Scratch:
    """Scratch memory for messages of that width."""
    lists = (np.empty(_LISTED, np.int32), np.empty(_LISTED, np.int32), np.empty(_LISTED, np.float32))
    return Scratch(*lists, np.empty((_ROWS, width), np.float32), np.empty(_ROWS, np.float32))


class Synopses(NamedTuple):
    """What the kernels get of a Storage."""

    z: View  # (slots, message_width) float32: the replicated value of each source
    s: View  # (slots, message_width) float32: un-normalised sum of the messages of the in-edges in this part
    note: (
        View  # (slots, 4) int32: the last epoch that touched the row; bits of the largest |term| or |sum| since it was
    )
    #             last recomputed (float32); in-edges in this part that carry messages
    out: ListsView  # per source: destinations (and weights)
    inn: ListsView  # per destination: sources (and weights); kept from the first epoch on that needs them
    touched: np.ndarray  # (slots,) int32: rows touched in this epoch, in order
    counter: np.ndarray  # (4,) int64: how many rows are touched; messages merged
    scratch: Scratch
    weighted: bool
    skip_loops: bool
    listed: bool  # whether `inn` is kept


@kernel
def largest(bits: np.ndarray, row: int) -> np.int32:
    """The largest magnitude of a row, as bits: integers order as the floats do, and NaN comes out above infinity."""
    found = np.int32(0)
    for j in range(bits.shape[1]):
        found = max(found, bits[row, j] & _MAGNITUDE)
    return found


@kernel
def _mark(syn: Synopses, row: int, serial: int) -> None:
    """The synopsis of `row` changes in this epoch."""
    if syn.note.data[row, STAMP] != serial:
        touch(syn.note, row)
        syn.note.data[row, STAMP] = serial
        syn.touched[syn.counter[0]] = row
        syn.counter[0] += 1
        touch(syn.s, row)


@kernel
def _merge_changes(syn: Synopses, count: int, serial: int) -> None:
    """Add the listed messages: weight * row of `delta`."""
    s, note, peak = syn.s.data, syn.note.data, syn.note.data.view(np.float32)
    src, dst, weight, delta, scale = (
        syn.scratch.src,
        syn.scratch.dst,
        syn.scratch.weight,
        syn.scratch.delta,
        syn.scratch.scale,
    )
    for i in range(count):
        if i + _AHEAD < count:
            ahead = np.int64(dst[i + _AHEAD])
            prefetch_row(s, ahead)
            prefetch(note, ahead * 4)
        v, r, w = dst[i], src[i], weight[i]
        _mark(syn, v, serial)
        for j in range(s.shape[1]):
            s[v, j] += w * delta[r, j]
        peak[v, PEAK] = max(peak[v, PEAK], abs(w) * scale[r])
    syn.counter[1] += count


@kernel
def _merge_values(syn: Synopses, count: int, serial: int) -> None:
    """Add the listed messages: weight * value of the source."""
    s, z, note, peak = syn.s.data, syn.z.data, syn.note.data, syn.note.data.view(np.float32)
    z_bits, scale = syn.z.data.view(np.int32), syn.scratch.scale
    scale_bits = syn.scratch.scale.view(np.int32)
    src, dst, weight = syn.scratch.src, syn.scratch.dst, syn.scratch.weight
    for i in range(count):
        if i + _AHEAD < count:
            ahead = np.int64(dst[i + _AHEAD])
            prefetch_row(s, ahead)
            prefetch_row(z, np.int64(src[i + _AHEAD]))
            prefetch(note, ahead * 4)
        v, u, w = dst[i], src[i], weight[i]
        _mark(syn, v, serial)
        scale_bits[0] = largest(z_bits, u)
        for j in range(s.shape[1]):
            s[v, j] += w * z[u, j]
        peak[v, PEAK] = max(peak[v, PEAK], abs(w) * scale[0])
    syn.counter[1] += count


@kernel
def _list(syn: Synopses, at: int, src: int, dst: int, weight: float) -> None:
    syn.scratch.src[at] = src
    syn.scratch.dst[at] = dst
    syn.scratch.weight[at] = weight


@kernel
def _prefetch_lists(syn: Synopses, src: np.ndarray, dst: np.ndarray, i: int) -> None:
    """Heads well ahead, the lists themselves (whose place the heads tell) a little later."""
    if i + 16 < len(src):
        prefetch(syn.out.head.data, np.int64(src[i + 16]) * 3)
        prefetch(syn.note.data, np.int64(dst[i + 16]) * 4)
        if syn.listed:
            prefetch(syn.inn.head.data, np.int64(dst[i + 16]) * 3)
    if i + 8 < len(src):
        u, v = src[i + 8], dst[i + 8]
        out, inn = syn.out.head.data, syn.inn.head.data
        prefetch(syn.out.pool.data, np.int64(out[u, 0] + out[u, 1]))
        if syn.listed:
            prefetch(syn.inn.pool.data, np.int64(inn[v, 0] + inn[v, 1]))


@kernel
def retract(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, serial: int) -> int:
    """Deleted edges: take back what they brought, and forget them."""
    count = 0
    for i in range(len(src)):
        _prefetch_lists(syn, src, dst, i)
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not remove(syn.out, u, v, w) or (syn.listed and not remove(syn.inn, v, u, w)):
            return MISSING_EDGE
        touch(syn.note, v)
        syn.note.data[v, LOCAL] -= 1
        _list(syn, count, u, v, -w)
        count += 1
        if count == _LISTED:
            _merge_values(syn, count, serial)
            count = 0
    _merge_values(syn, count, serial)
    return OK


@kernel
def _set_weight(lists: ListsView, row: int, value: int, old: np.float32, new: np.float32) -> bool:
    at, length = lists.head.data[row, 0], lists.head.data[row, 1]
    for i in range(at, at + length):
        if lists.pool.data[i] == value and lists.weight.data[i] == old:
            touch(lists.weight, i)
            lists.weight.data[i] = new
            return True
    return False


@kernel
def reweight(syn: Synopses, src: np.ndarray, dst: np.ndarray, old: np.ndarray, new: np.ndarray, serial: int) -> int:
    """Edges with a new weight: bring the difference, of the old source value."""
    if not syn.weighted:
        return OK
    count = 0
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        if not _set_weight(syn.out, u, v, old[i], new[i]):
            return MISSING_EDGE
        if syn.listed and not _set_weight(syn.inn, v, u, old[i], new[i]):
            return MISSING_EDGE
        _list(syn, count, u, v, new[i] - old[i])
        count += 1
        if count == _LISTED:
            _merge_values(syn, count, serial)
            count = 0
    _merge_values(syn, count, serial)
    return OK


@kernel
def _take_over(syn: Synopses, slots: np.ndarray, rows: np.ndarray, begin: int, end: int) -> None:
    """Store the new source values `rows[begin:end]`; their differences and bounds go to the scratch memory."""
    z, z_bits, row_bits = syn.z.data, syn.z.data.view(np.int32), rows.view(np.int32)
    head, pool, delta, scale = syn.out.head.data, syn.out.pool.data, syn.scratch.delta, syn.scratch.scale
    scale_bits = syn.scratch.scale.view(np.int32)
    for i in range(begin, end):
        if i + _AHEAD < end:
            prefetch_row(z, np.int64(slots[i + _AHEAD]))
            prefetch(head, np.int64(slots[i + _AHEAD]) * 3)
        u, k = slots[i], i - begin
        prefetch(pool, np.int64(head[u, 0]))
        difference, size = np.int32(0), np.int32(0)
        for j in range(z.shape[1]):
            old, new = z_bits[u, j], row_bits[i, j]
            difference |= old ^ new
            size = max(size, max(old & _MAGNITUDE, new & _MAGNITUDE))
        if difference == 0:
            scale[k] = np.float32(-1)
            continue
        scale_bits[k] = size
        touch(syn.z, u)
        for j in range(z.shape[1]):
            delta[k, j] = rows[i, j] - z[u, j]
            z[u, j] = rows[i, j]


@kernel
def spread(syn: Synopses, slots: np.ndarray, rows: np.ndarray, serial: int) -> None:
    """New source values: bring the difference over the kept edges, and store them. Unchanged rows bring nothing.

    Shapes: slots (n,) int32; rows (n, >= message_width) float32, C-contiguous.
    """
    n, head, pool, scale = len(slots), syn.out.head.data, syn.out.pool.data, syn.scratch.scale
    for begin in range(0, n, _ROWS):
        end, count = min(begin + _ROWS, n), 0
        _take_over(syn, slots, rows, begin, end)
        for i in range(begin, end):
            if scale[i - begin] == np.float32(-1):
                continue
            at, length = head[slots[i], 0], head[slots[i], 1]
            for k in range(at, at + length):
                w = syn.out.weight.data[k] if syn.weighted else np.float32(1)
                _list(syn, count, i - begin, pool[k], w)
                count += 1
                if count == _LISTED:
                    _merge_changes(syn, count, serial)
                    count = 0
        _merge_changes(syn, count, serial)


@kernel
def attach(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, start: int, serial: int) -> int:
    """Added edges from index `start` on: bring the full new value. Returns where it stopped, when a pool must grow."""
    n, count, stop = len(src), 0, len(src)
    for i in range(start, n):
        _prefetch_lists(syn, src, dst, i)
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not append(syn.out, u, v, w):
            stop = i
            break
        if syn.listed and not append(syn.inn, v, u, w):
            remove(syn.out, u, v, w)
            stop = i
            break
        touch(syn.note, v)
        syn.note.data[v, LOCAL] += 1
        _list(syn, count, u, v, w)
        count += 1
        if count == _LISTED:
            _merge_values(syn, count, serial)
            count = 0
    _merge_values(syn, count, serial)
    return stop


@kernel
def settle(syn: Synopses, again: np.ndarray) -> int:
    """After all messages: an empty neighbourhood is exactly 0; rows to `recompute` go to `again`. Returns how many."""
    s, s_bits, note, touched = syn.s.data, syn.s.data.view(np.int32), syn.note.data, syn.touched
    count, n = 0, syn.counter[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(s, np.int64(touched[i + _AHEAD]))
            prefetch(note, np.int64(touched[i + _AHEAD]) * 4)
        row = touched[i]
        if note[row, LOCAL] == 0:
            for j in range(s.shape[1]):
                s[row, j] = np.float32(0)
            note[row, PEAK] = 0
            continue
        size = largest(s_bits, row)
        if size >= INFINITY_BITS or size < note[row, PEAK] - CANCELLATION_BITS:
            again[count] = row
            count += 1
        else:
            note[row, PEAK] = max(note[row, PEAK], size)
    return count


@kernel
def list_in_edges(syn: Synopses, source: int, entry: int, done: np.ndarray) -> bool:
    """Build the in-lists from an entry of a source's out-list on; False, and where in `done`, if a pool is full."""
    out = syn.out.head.data
    for u in range(source, len(out)):
        for k in range(entry, out[u, 1]):
            at = out[u, 0] + k
            w = syn.out.weight.data[at] if syn.weighted else np.float32(1)
            if not append(syn.inn, syn.out.pool.data[at], u, w):
                done[0], done[1] = u, k
                return False
        entry = 0
    return True


@kernel
def recompute(syn: Synopses, rows: np.ndarray) -> None:
    """The synopses of these touched rows from their in-edges in this part."""
    s, z, z_bits, s_bits = syn.s.data, syn.z.data, syn.z.data.view(np.int32), syn.s.data.view(np.int32)
    note, peak = syn.note.data, syn.note.data.view(np.float32)
    scale, scale_bits = syn.scratch.scale, syn.scratch.scale.view(np.int32)
    for row in rows:
        for j in range(s.shape[1]):
            s[row, j] = np.float32(0)
        bound = np.float32(0)
        at, length = syn.inn.head.data[row, 0], syn.inn.head.data[row, 1]
        for k in range(at, at + length):
            w = syn.inn.weight.data[k] if syn.weighted else np.float32(1)
            u = syn.inn.pool.data[k]
            scale_bits[0] = largest(z_bits, u)
            bound = max(bound, abs(w) * scale[0])
            for j in range(s.shape[1]):
                s[row, j] += w * z[u, j]
        peak[row, PEAK] = bound
        note[row, PEAK] = max(note[row, PEAK] & _MAGNITUDE, largest(s_bits, row))


@kernel
def merge_epoch(
    syn: Synopses,
    deleted: tuple[np.ndarray, np.ndarray, np.ndarray],
    reweighted: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    slots: np.ndarray,
    rows: np.ndarray,
    own: View,
    has_own: bool,
    added: tuple[np.ndarray, np.ndarray, np.ndarray],
    serial: int,
    again: np.ndarray,
    result: np.ndarray,
) -> None:
    """All of an epoch whose source values came in one block, in one call: what follows the interpreter lock is waiting.

    `result` gets the status, how many edges are attached (all, or a pool must grow and the rest is still to be done),
    and how many rows are to be recomputed.
    """
    result[0] = retract(syn, deleted[0], deleted[1], deleted[2], serial)
    if result[0] != OK:
        return
    result[0] = reweight(syn, reweighted[0], reweighted[1], reweighted[2], reweighted[3], serial)
    if result[0] != OK:
        return
    spread(syn, slots, rows, serial)
    if has_own:
        put(own, slots, rows, syn.z.data.shape[1])
    start = 0
    result[1] = attach(syn, added[0], added[1], added[2], start, serial)
    if result[1] == len(added[0]):
        result[2] = settle(syn, again)
