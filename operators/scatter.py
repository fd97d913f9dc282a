"""The kernels of Storage: edge changes and replica sync become messages and are merged into the synopses on the spot.

One message per edge, layer and epoch: a deleted edge takes back weight * old source value, a kept one whose source
changed brings weight * (new - old), an added one brings weight * new. So per epoch: `retract` and `reweight` with the
old values, then `spread` (which stores the new ones) over the kept edges, then `attach`. Each first lists its messages
(destination, row, weight) and then merges the list, so that the rows of later messages are on their way from memory
while earlier ones are added.
Source: RIPPLE++ section 3.3.3, with the cures of the digest (sums and counts are kept, edges act in every layer).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from state.lists import ListsView, append, remove
from state.prefetch import prefetch, prefetch_row
from state.table import View, touch

# A row this far below the largest term that ever entered it has lost bits, and is recomputed from its edges: 2^-8,
# as a difference of the exponents in the bits of two float32.
CANCELLATION_BITS = np.int32(8 << 23)
INFINITY_BITS = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_AHEAD = 12
OK, MISSING_EDGE = 0, 1


class Synopses(NamedTuple):
    """What the kernels get of a Storage."""

    z: View  # (slots, message_width) float32: the replicated value of each source
    s: View  # (slots, message_width) float32: un-normalised sum of the messages of the in-edges in this part
    s_bits: np.ndarray  # the data of `s` as int32
    peak: View  # (slots,) float32: largest |term| or |sum| since the row was last recomputed
    local: View  # (slots,) int32: in-edges in this part that carry messages
    out: ListsView  # per source: destinations (and weights)
    inn: ListsView  # per destination: sources (and weights)
    stamp: np.ndarray  # (slots,) int64: the last epoch that touched the row
    touched: np.ndarray  # (slots,) int32: rows touched in this epoch, in order
    counter: np.ndarray  # (4,) int64: how many rows are touched; messages merged
    weighted: bool
    skip_loops: bool


@njit(nogil=True, cache=True)
def largest(bits: np.ndarray, row: int) -> np.int32:
    """The largest magnitude of a row, as bits: integers order as the floats do, and NaN comes out above infinity."""
    found = np.int32(0)
    for j in range(bits.shape[1]):
        found = max(found, bits[row, j] & _MAGNITUDE)
    return found


@njit(nogil=True, cache=True)
def magnitudes(rows: np.ndarray, which: np.ndarray) -> np.ndarray:
    """The largest magnitude of each of these rows."""
    bits, found = rows.view(np.int32), np.empty(len(which), np.int32)
    for i in range(len(which)):
        if i + _AHEAD < len(which):
            prefetch_row(rows, which[i + _AHEAD])
        found[i] = largest(bits, which[i])
    return found.view(np.float32)


@njit(nogil=True, cache=True)
def merge(
    syn: Synopses,
    dst: np.ndarray,
    rows: np.ndarray,
    which: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray,
    serial: int,
) -> None:
    """Add `weight[i] * rows[which[i]]` to the synopsis of `dst[i]`, in order; `scale[which[i]]` bounds the row."""
    s, peak, stamp, touched = syn.s.data, syn.peak.data, syn.stamp, syn.touched
    n, width, count = len(dst), syn.s.data.shape[1], syn.counter[0]
    for i in range(min(_AHEAD, n)):
        prefetch_row(s, dst[i])
    for i in range(n):
        if i + _AHEAD < n:
            ahead = np.int64(dst[i + _AHEAD])
            prefetch_row(s, ahead)
            prefetch(stamp, ahead)
            prefetch(peak, ahead)
        v, r, w = dst[i], which[i], weight[i]
        if stamp[v] != serial:
            stamp[v] = serial
            touched[count] = v
            count += 1
            touch(syn.s, v)
            touch(syn.peak, v)
        for j in range(width):
            s[v, j] += w * rows[r, j]
        peak[v] = max(peak[v], abs(w) * scale[r])
    syn.counter[0] = count
    syn.counter[1] += n


@njit(nogil=True, cache=True)
def _merge_edges(
    syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, count: int, serial: int
) -> None:
    """The full source values of these edges."""
    rows = np.empty((count, syn.z.data.shape[1]), np.float32)
    which = np.arange(count)
    z = syn.z.data
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_row(z, src[i + _AHEAD])
        u = src[i]
        for j in range(rows.shape[1]):
            rows[i, j] = z[u, j]
    merge(syn, dst[:count], rows, which, weight[:count], magnitudes(rows, which), serial)


@njit(nogil=True, cache=True)
def _prefetch_lists(syn: Synopses, src: np.ndarray, dst: np.ndarray, i: int) -> None:
    """Heads well ahead, the lists themselves (whose place the heads tell) a little later."""
    if i + 16 < len(src):
        prefetch(syn.out.head.data, np.int64(src[i + 16]) * 3)
        prefetch(syn.inn.head.data, np.int64(dst[i + 16]) * 3)
    if i + 8 < len(src):
        u, v = src[i + 8], dst[i + 8]
        out, inn = syn.out.head.data, syn.inn.head.data
        prefetch(syn.out.pool.data, np.int64(out[u, 0] + out[u, 1]))
        prefetch(syn.inn.pool.data, np.int64(inn[v, 0] + inn[v, 1]))


@njit(nogil=True, cache=True)
def retract(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, serial: int) -> int:
    """Deleted edges: take back what they brought, and forget them."""
    n = len(src)
    us, vs, ws = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    count = 0
    for i in range(n):
        _prefetch_lists(syn, src, dst, i)
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not remove(syn.out, u, v, w) or not remove(syn.inn, v, u, w):
            return MISSING_EDGE
        touch(syn.local, v)
        syn.local.data[v] -= 1
        us[count], vs[count], ws[count] = u, v, -w
        count += 1
    _merge_edges(syn, us, vs, ws, count, serial)
    return OK


@njit(nogil=True, cache=True)
def _set_weight(lists: ListsView, row: int, value: int, old: np.float32, new: np.float32) -> bool:
    at, length = lists.head.data[row, 0], lists.head.data[row, 1]
    for i in range(at, at + length):
        if lists.pool.data[i] == value and lists.weight.data[i] == old:
            touch(lists.weight, i)
            lists.weight.data[i] = new
            return True
    return False


@njit(nogil=True, cache=True)
def reweight(syn: Synopses, src: np.ndarray, dst: np.ndarray, old: np.ndarray, new: np.ndarray, serial: int) -> int:
    """Edges with a new weight: bring the difference, of the old source value."""
    if not syn.weighted:
        return OK
    n = len(src)
    us, vs, ws = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    count = 0
    for i in range(n):
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        if not _set_weight(syn.out, u, v, old[i], new[i]) or not _set_weight(syn.inn, v, u, old[i], new[i]):
            return MISSING_EDGE
        us[count], vs[count], ws[count] = u, v, new[i] - old[i]
        count += 1
    _merge_edges(syn, us, vs, ws, count, serial)
    return OK


@njit(nogil=True, cache=True)
def _take_over(syn: Synopses, slots: np.ndarray, rows: np.ndarray, delta: np.ndarray, scale: np.ndarray) -> int:
    """Store the new source values; their differences go to `delta`. Returns how many messages the changed ones send.

    `scale` of an unchanged row is -1.
    """
    z, z_bits, row_bits = syn.z.data, syn.z.data.view(np.int32), rows.view(np.int32)
    head, width, n = syn.out.head.data, syn.z.data.shape[1], len(slots)
    scale_bits = scale.view(np.int32)
    total = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(z, slots[i + _AHEAD])
            prefetch(head, np.int64(slots[i + _AHEAD]) * 3)
        u = slots[i]
        difference, size = np.int32(0), np.int32(0)
        for j in range(width):
            old, new = z_bits[u, j], row_bits[i, j]
            difference |= old ^ new
            size = max(size, max(old & _MAGNITUDE, new & _MAGNITUDE))
        if difference == 0:
            scale[i] = np.float32(-1)
            continue
        scale_bits[i] = size
        touch(syn.z, u)
        for j in range(width):
            delta[i, j] = rows[i, j] - z[u, j]
            z[u, j] = rows[i, j]
        total += head[u, 1]
    return total


@njit(nogil=True, cache=True)
def spread(syn: Synopses, slots: np.ndarray, rows: np.ndarray, serial: int) -> None:
    """New source values: bring the difference over the kept edges, and store them. Unchanged rows bring nothing.

    Shapes: slots (n,) int32; rows (n, >= message_width) float32, C-contiguous.
    """
    n = len(slots)
    delta, scale = np.empty((n, syn.z.data.shape[1]), np.float32), np.empty(n, np.float32)
    total = _take_over(syn, slots, rows, delta, scale)
    dst, which, weight = np.empty(total, np.int32), np.empty(total, np.int32), np.ones(total, np.float32)
    head, pool = syn.out.head.data, syn.out.pool.data
    count = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(pool, np.int64(head[slots[i + _AHEAD], 0]))
        if scale[i] == np.float32(-1):
            continue
        at, length = head[slots[i], 0], head[slots[i], 1]
        for k in range(at, at + length):
            dst[count] = pool[k]
            which[count] = i
            if syn.weighted:
                weight[count] = syn.out.weight.data[k]
            count += 1
    merge(syn, dst, delta, which, weight, scale, serial)


@njit(nogil=True, cache=True)
def attach(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, start: int, serial: int) -> int:
    """Added edges from index `start` on: bring the full new value. Returns where it stopped, when a pool must grow."""
    n = len(src)
    us, vs, ws = np.empty(n - start, np.int32), np.empty(n - start, np.int32), np.empty(n - start, np.float32)
    count, stop = 0, n
    for i in range(start, n):
        _prefetch_lists(syn, src, dst, i)
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not append(syn.out, u, v, w):
            stop = i
            break
        if not append(syn.inn, v, u, w):
            remove(syn.out, u, v, w)
            stop = i
            break
        touch(syn.local, v)
        syn.local.data[v] += 1
        us[count], vs[count], ws[count] = u, v, w
        count += 1
    _merge_edges(syn, us, vs, ws, count, serial)
    return stop


@njit(nogil=True, cache=True)
def recompute(syn: Synopses, row: int) -> None:
    """The synopsis of one row from its in-edges in this part."""
    s, z = syn.s.data, syn.z.data
    touch(syn.s, row)
    touch(syn.peak, row)
    s[row, :] = np.float32(0)
    z_bits = z.view(np.int32)
    at, length = syn.inn.head.data[row, 0], syn.inn.head.data[row, 1]
    scale = np.empty(1, np.int32)
    peak = np.float32(0)
    for k in range(at, at + length):
        w = syn.inn.weight.data[k] if syn.weighted else np.float32(1)
        u = syn.inn.pool.data[k]
        scale[0] = largest(z_bits, u)
        peak = max(peak, abs(w) * scale.view(np.float32)[0])
        for j in range(s.shape[1]):
            s[row, j] += w * z[u, j]
    syn.peak.data[row] = peak


@njit(nogil=True, cache=True)
def settle(syn: Synopses) -> int:
    """After all messages: an empty neighbourhood is exactly 0; rows that lost bits or are not finite are recomputed."""
    peak_bits, local, touched = syn.peak.data.view(np.int32), syn.local.data, syn.touched
    recomputed, n = 0, syn.counter[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch_row(syn.s.data, touched[i + _AHEAD])
            prefetch(local, np.int64(touched[i + _AHEAD]))
        row = touched[i]
        if local[row] == 0:
            syn.s.data[row, :] = np.float32(0)
            peak_bits[row] = 0
            continue
        size = largest(syn.s_bits, row)
        if size >= INFINITY_BITS or size < peak_bits[row] - CANCELLATION_BITS:
            recompute(syn, row)
            recomputed += 1
            size = largest(syn.s_bits, row)
        peak_bits[row] = max(peak_bits[row] & _MAGNITUDE, size)
    return recomputed


@njit(nogil=True, cache=True)
def also(rows: np.ndarray, stamp: np.ndarray, serial: int, out: np.ndarray, count: int) -> int:
    """Append to `out[:count]` those rows that are not stamped yet; returns the new count."""
    for row in rows:
        if stamp[row] != serial:
            stamp[row] = serial
            out[count] = row
            count += 1
    return count
