"""The kernels of Storage: edge changes and replica sync become messages and are merged into the synopses on the spot.

One message per edge, layer and epoch: a deleted edge takes back weight * old source value, a kept one whose source
changed brings weight * (new - old), an added one brings weight * new. So per epoch: `retract` and `reweight` with the
old values, then `spread` (which stores the new ones) over the kept edges, then `attach`.
Source: RIPPLE++ section 3.3.3, with the cures of the digest (sums and counts are kept, edges act in every layer).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from state.lists import ListsView, append, remove
from state.table import View, touch

# A row this far below the largest term that ever entered it has lost bits, and is recomputed from its edges.
CANCELLATION = np.float32(2.0**-8)
OK, MISSING_EDGE = 0, 1


class Synopses(NamedTuple):
    """What the kernels get of a Storage."""

    z: View  # (slots, message_width) float32: the replicated value of each source
    s: View  # (slots, message_width) float32: un-normalised sum of the messages of the in-edges in this part
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
def mark(syn: Synopses, row: int, serial: int) -> None:
    """Say that the synopsis of `row` changes in this epoch."""
    if syn.stamp[row] != serial:
        syn.stamp[row] = serial
        syn.touched[syn.counter[0]] = row
        syn.counter[0] += 1
        touch(syn.s, row)
        touch(syn.peak, row)


@njit(nogil=True, cache=True)
def _scale(row: np.ndarray) -> np.float32:
    largest = np.float32(0)
    for value in row:
        largest = max(largest, abs(value))
    return largest


@njit(nogil=True, cache=True)
def _add(syn: Synopses, dst: int, row: np.ndarray, weight: np.float32, scale: np.float32, serial: int) -> None:
    mark(syn, dst, serial)
    target = syn.s.data[dst]
    for j in range(target.shape[0]):
        target[j] += weight * row[j]
    syn.peak.data[dst] = max(syn.peak.data[dst], abs(weight) * scale)
    syn.counter[1] += 1


@njit(nogil=True, cache=True)
def retract(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, serial: int) -> int:
    """Deleted edges: take back what they brought, and forget them."""
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not remove(syn.out, u, v, w) or not remove(syn.inn, v, u, w):
            return MISSING_EDGE
        row = syn.z.data[u]
        _add(syn, v, row, -w, _scale(row), serial)
        touch(syn.local, v)
        syn.local.data[v] -= 1
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
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        if not _set_weight(syn.out, u, v, old[i], new[i]) or not _set_weight(syn.inn, v, u, old[i], new[i]):
            return MISSING_EDGE
        row = syn.z.data[u]
        scale = _scale(row)
        _add(syn, v, row, np.float32(new[i] - old[i]), scale, serial)
    return OK


@njit(nogil=True, cache=True)
def spread(syn: Synopses, slots: np.ndarray, rows: np.ndarray, serial: int) -> None:
    """New source values: bring the difference over the kept edges, and store them. Unchanged rows bring nothing."""
    width = syn.z.data.shape[1]
    delta = np.empty(width, np.float32)
    for i in range(len(slots)):
        u = slots[i]
        value = syn.z.data[u]
        changed = False
        for j in range(width):
            delta[j] = rows[i, j] - value[j]
            changed |= not (rows[i, j] == value[j])
        if not changed:
            continue
        scale = max(_scale(value), _scale(rows[i, :width]))
        touch(syn.z, u)
        for j in range(width):
            value[j] = rows[i, j]
        at, length = syn.out.head.data[u, 0], syn.out.head.data[u, 1]
        for k in range(at, at + length):
            w = syn.out.weight.data[k] if syn.weighted else np.float32(1)
            _add(syn, syn.out.pool.data[k], delta, w, scale, serial)


@njit(nogil=True, cache=True)
def attach(syn: Synopses, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, start: int, serial: int) -> int:
    """Added edges from index `start` on: bring the full new value. Returns where it stopped, when a pool must grow."""
    for i in range(start, len(src)):
        u, v = src[i], dst[i]
        if syn.skip_loops and u == v:
            continue
        w = weight[i] if syn.weighted else np.float32(1)
        if not append(syn.out, u, v, w):
            return i
        if not append(syn.inn, v, u, w):
            remove(syn.out, u, v, w)
            return i
        row = syn.z.data[u]
        _add(syn, v, row, w, _scale(row), serial)
        touch(syn.local, v)
        syn.local.data[v] += 1
    return len(src)


@njit(nogil=True, cache=True)
def recompute(syn: Synopses, row: int) -> None:
    """The synopsis of one row from its in-edges in this part."""
    target = syn.s.data[row]
    touch(syn.s, row)
    touch(syn.peak, row)
    target[:] = np.float32(0)
    peak = np.float32(0)
    at, length = syn.inn.head.data[row, 0], syn.inn.head.data[row, 1]
    for k in range(at, at + length):
        w = syn.inn.weight.data[k] if syn.weighted else np.float32(1)
        value = syn.z.data[syn.inn.pool.data[k]]
        peak = max(peak, abs(w) * _scale(value))
        for j in range(target.shape[0]):
            target[j] += w * value[j]
    syn.peak.data[row] = peak


@njit(nogil=True, cache=True)
def settle(syn: Synopses) -> int:
    """After all messages: an empty neighbourhood is exactly 0; rows that lost bits or are not finite are recomputed."""
    recomputed = 0
    for i in range(syn.counter[0]):
        row = syn.touched[i]
        target = syn.s.data[row]
        if syn.local.data[row] == 0:
            target[:] = np.float32(0)
            syn.peak.data[row] = np.float32(0)
            continue
        total = np.float32(0)
        largest = np.float32(0)
        for value in target:
            total += value - value  # NaN as soon as one is not finite
            largest = max(largest, abs(value))
        if total != np.float32(0) or not (largest >= CANCELLATION * syn.peak.data[row]):
            recompute(syn, row)
            recomputed += 1
        syn.peak.data[row] = max(syn.peak.data[row], largest)
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
