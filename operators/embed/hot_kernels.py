"""Kernels of the hot store: what a chunk of sources needs, who makes room, adding messages, and who is finished.

A chunk's items are, for each of its sources in turn, the source's own visit and then its out-edges. A *piece* of a
chunk is a run of items whose destinations fit in the hot store together: it is looked through (`collect`), given room
(`choose_victims`, then `take_slots`), added up (`merge`) and settled (`settle`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_wide_row

NOT_STARTED, HOT, COLD, COMPLETED = 0, 1, 2, 3
NEEDED = 8  # by the piece: a bit beside one of these
_STATE = 7
MIN_PENDING, LRU, RANDOM, NEXT_USE = 0, 1, 2, 3
SCORES = 4096  # buckets; vertices that wait for more messages than that are alike
# Places of `counts`: free slots, slots in a bucket, the lowest bucket that may have one, draws of RANDOM; and where a
# piece ends: the source (by its place in the chunk), whether its own visit is done, the edge.
FREE, LINKED, LOWEST, DRAWS, AT_SOURCE, AT_OWN, AT_EDGE = 0, 1, 2, 3, 4, 5, 6
COUNTS = 7
_AHEAD = 8


class Hot(NamedTuple):
    """The destinations of a pass, and the slots that hold some of them.

    Shapes: pending (n,) int32, messages to come, an own row among them; state (n,) uint8; where (n,) int32, the hot or
    the cold slot; use (n,) int32, the next source that sends to it (NEXT_USE alone, else (0,)); rows (slots, columns)
    float64, the sum, then the own row as float32; vertex, before, after, bucket, free (slots,) int32, -1 for none;
    heads, tails (SCORES,) int32; counts (COUNTS,) int64.
    """

    pending: np.ndarray
    state: np.ndarray
    where: np.ndarray
    use: np.ndarray
    rows: np.ndarray
    vertex: np.ndarray
    before: np.ndarray
    after: np.ndarray
    bucket: np.ndarray
    free: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    counts: np.ndarray


class Task(NamedTuple):
    """Constants of a pass: `first` is the vertex whose row is 0 in `Hot`, `sources` the number of senders."""

    first: int
    sources: int
    skip_loops: bool
    own: bool
    """A vertex waits for its own row, too."""
    own_from: int
    """The own row's first column in what is sent."""
    own_width: int
    weighted: bool
    policy: int


class Items(NamedTuple):
    """A chunk of sources.

    Shapes: ends (n + 1,) int64, where each source's edges begin in dst; dst (m,) int32; weight (m,) float32 and
    following (m,) int32, the next source of the same destination, or (0,); sent (n, width) float32.
    """

    source: int
    again: bool
    """The first source's own visit was in an earlier chunk."""
    ends: np.ndarray
    dst: np.ndarray
    weight: np.ndarray
    following: np.ndarray
    sent: np.ndarray


@inner
def _unlink(hot: Hot, slot: int) -> None:
    before, after, bucket = hot.before[slot], hot.after[slot], hot.bucket[slot]
    if before >= 0:
        hot.after[before] = after
    else:
        hot.heads[bucket] = after
    if after >= 0:
        hot.before[after] = before
    else:
        hot.tails[bucket] = before
    hot.bucket[slot] = -1
    hot.counts[LINKED] -= 1


@inner
def _link(hot: Hot, slot: int, bucket: int) -> None:
    """Put a slot at the end of a bucket."""
    last = hot.tails[bucket]
    hot.before[slot], hot.after[slot], hot.bucket[slot] = last, -1, bucket
    if last >= 0:
        hot.after[last] = slot
    else:
        hot.heads[bucket] = slot
    hot.tails[bucket] = slot
    hot.counts[LOWEST] = min(hot.counts[LOWEST], bucket)
    hot.counts[LINKED] += 1


@inner
def _score(hot: Hot, task: Task, row: int, source: int) -> int:
    """The bucket of a vertex after a piece that ended with `source`: the lowest is evicted first."""
    if task.policy == MIN_PENDING:
        return min(hot.pending[row] - 1, SCORES - 1)
    if task.policy == NEXT_USE:
        use = np.int64(hot.use[row])
        if task.own and row + task.first > source:
            use = min(use, np.int64(row) + task.first)
        return SCORES - 1 - min(SCORES - 1, int(use) * SCORES // max(task.sources, 1))
    return 0  # in the order of their last visits


@inner
def _need(hot: Hot, row: int, need: np.ndarray, count: int) -> int:
    """Put a row on the list if it is not there; returns the list's length, -1 where it is full."""
    state = hot.state[row]
    if state & NEEDED:
        return count
    if count == len(need):
        return -1
    if state == HOT:
        _unlink(hot, np.int64(hot.where[row]))
    hot.state[row] = state | NEEDED
    need[count] = row
    return count + 1


@inner
def _visits_itself(hot: Hot, task: Task, row: int) -> bool:
    """Return whether a source's own visit is an item: its row is waited for, or nothing at all is."""
    return 0 <= row < len(hot.pending) and (
        task.own or (hot.pending[row] == 0 and (hot.state[row] & _STATE) == NOT_STARTED)
    )


@inner
def _stop(hot: Hot, source: int, own: int, edge: int) -> None:
    hot.counts[AT_SOURCE], hot.counts[AT_OWN], hot.counts[AT_EDGE] = source, own, edge


@kernel
def collect(hot: Hot, task: Task, items: Items, source: int, own: int, edge: int, need: np.ndarray) -> int:
    """List the rows that the piece from (source, own, edge) on needs; where it ends stands in `counts` then.

    Rows that are hot leave their buckets. Returns how many are needed.
    """
    count, sources = 0, len(items.ends) - 1
    for u in range(source, sources):
        if u > source:
            own, edge = 0, int(items.ends[u])
        row = items.source + u - task.first
        if not own and not (u == 0 and items.again) and _visits_itself(hot, task, row):
            more = _need(hot, row, need, count)
            if more < 0:
                _stop(hot, u, 0, edge)
                return count
            count = more
        for e in range(edge, items.ends[u + 1]):
            if e + _AHEAD < len(items.dst):
                prefetch(hot.state, max(np.int64(0), np.int64(items.dst[e + _AHEAD]) - task.first))
            row = int(items.dst[e]) - task.first
            if row < 0 or row >= len(hot.pending) or (task.skip_loops and items.dst[e] == items.source + u):
                continue
            more = _need(hot, row, need, count)
            if more < 0:
                _stop(hot, u, 1, e)
                return count
            count = more
    _stop(hot, sources, 0, len(items.dst))
    return count


@kernel
def choose_victims(hot: Hot, task: Task, victims: np.ndarray) -> None:
    """Take slots out of their buckets until `victims` is full: (n,) int32 rows, in the order of the policy.

    Invariant: as many are in buckets; none of those is needed by the piece.
    """
    slots = np.uint64(len(hot.vertex))
    for k in range(len(victims)):
        if task.policy == RANDOM:
            hot.counts[DRAWS] += 1
            z = np.uint64(hot.counts[DRAWS]) * np.uint64(0x9E3779B97F4A7C15)  # SplitMix64
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            slot = int(np.int64((z ^ (z >> np.uint64(31))) % slots))
            while hot.bucket[slot] < 0:
                slot = slot + 1 if slot + 1 < len(hot.vertex) else 0
        else:
            while hot.heads[hot.counts[LOWEST]] < 0:
                hot.counts[LOWEST] += 1
            slot = int(hot.heads[hot.counts[LOWEST]])
        _unlink(hot, slot)
        victims[k] = hot.vertex[slot]


@kernel
def make_cold(hot: Hot, victims: np.ndarray, cold: np.ndarray) -> None:
    """The victims' rows are in these cold slots now: their hot slots are free."""
    for i in range(len(victims)):
        row = victims[i]
        slot = hot.where[row]
        hot.state[row], hot.where[row] = COLD, cold[i]
        hot.vertex[slot] = -1
        hot.free[hot.counts[FREE]] = slot
        hot.counts[FREE] += 1


@kernel
def take_slots(hot: Hot, rows: np.ndarray, slots: np.ndarray) -> None:
    """Give a free slot to each of these needed rows, and list the slots."""
    for i in range(len(rows)):
        hot.counts[FREE] -= 1
        slot = hot.free[hot.counts[FREE]]
        slots[i] = slot
        hot.where[rows[i]], hot.vertex[slot] = slot, rows[i]
        hot.state[rows[i]] = HOT | NEEDED


@inner
def _add(rows: np.ndarray, slot: int, sent: np.ndarray, u: int, width: int, weight: float) -> None:
    for j in range(width):
        rows[slot, j] += np.float64(weight * sent[u, j])


@inner
def _keep_own(hot: Hot, task: Task, bits: np.ndarray, items: Items, u: int, row: int) -> None:
    """The visit of a source at its own slot."""
    slot, width = np.int64(hot.where[row]), 2 * hot.rows.shape[1] - 2 * ((task.own_width + 1) // 2)
    for j in range(task.own_width):
        bits[slot, width + j] = items.sent[u, task.own_from + j]
    if task.own:
        hot.pending[row] -= 1


@kernel
def merge(hot: Hot, task: Task, items: Items, source: int, own: int, edge: int) -> None:
    """Add the messages of the piece from (source, own, edge) to where `collect` stopped, in their order."""
    stop, stop_own, stop_edge = hot.counts[AT_SOURCE], hot.counts[AT_OWN], hot.counts[AT_EDGE]
    rows, bits, sources = hot.rows, hot.rows.view(np.float32), len(items.ends) - 1
    width = rows.shape[1] - (task.own_width + 1) // 2
    for u in range(source, min(stop + 1, sources)):
        if u > source:
            own, edge = 0, int(items.ends[u])
        row = items.source + u - task.first
        if u == stop and not stop_own:
            return
        if not own and not (u == 0 and items.again) and _visits_itself(hot, task, row):
            _keep_own(hot, task, bits, items, u, row)
        end = stop_edge if u == stop else items.ends[u + 1]
        for e in range(edge, end):
            if e + _AHEAD < len(items.dst):
                ahead = np.int64(items.dst[e + _AHEAD]) - task.first
                if 0 <= ahead < len(hot.where) and (hot.state[ahead] & _STATE) == HOT:
                    prefetch_wide_row(rows, np.int64(hot.where[ahead]))
            row = int(items.dst[e]) - task.first
            if row < 0 or row >= len(hot.pending) or (task.skip_loops and items.dst[e] == items.source + u):
                continue
            weight = items.weight[e] if task.weighted else np.float32(1)
            _add(rows, np.int64(hot.where[row]), items.sent, u, width, weight)
            hot.pending[row] -= 1
            if task.policy == NEXT_USE:
                hot.use[row] = items.following[e]


@kernel
def settle(
    hot: Hot,
    task: Task,
    need: np.ndarray,
    at: int,
    source: int,
    block: tuple[np.ndarray, np.ndarray, np.ndarray],
    room: int,
) -> tuple[int, int]:
    """After a piece, move finished rows to the block from place `room` on, and the others to their buckets.

    Shapes: block is vertices (g,) int32, sums (g, width) float32, own rows (g, own_width) float32.
    Returns how far it came in `need` from `at` on (the block may be full), and the block's rows then.
    """
    vertices, sums, owns = block
    bits, width = hot.rows.view(np.float32), sums.shape[1]
    for i in range(at, len(need)):
        row = need[i]
        slot = np.int64(hot.where[row])
        if hot.pending[row] > 0:
            hot.state[row] = HOT
            _link(hot, slot, _score(hot, task, row, source))
            continue
        if room == len(vertices):
            return i, room
        vertices[room] = row + task.first
        for j in range(width):
            sums[room, j] = np.float32(hot.rows[slot, j])
        for j in range(task.own_width):
            owns[room, j] = bits[slot, 2 * width + j]
        room += 1
        hot.state[row] = COMPLETED
        hot.vertex[slot] = -1
        hot.free[hot.counts[FREE]] = slot
        hot.counts[FREE] += 1
    return len(need), room
