"""Update of extrema and their numbers of holders by a message, channel by channel.

Arrays are C-contiguous, and places in them are those of flat elements. A message is a factor times values of z, and
+ 0, which makes -0 0. Kernels take these for the channels that lanes.py leaves.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner

MOST_HOLDERS = 65535
NOTHING = np.float32(-np.inf)


@inner
def passes(z: np.ndarray, at: int, factor: float, s: np.ndarray, to: int, channels: int) -> bool:
    """Return whether a message is as good as the extrema in any channel, or NaN."""
    values, extrema, passing = z.reshape(-1), s.reshape(-1), np.int32(0)
    for i in range(channels):
        passing |= np.int32(not (factor * values[at + i] + np.float32(0) < extrema[to + i]))
    return passing != 0


@inner
def count_off(
    z: np.ndarray, at: int, factor: float, s: np.ndarray, holders: np.ndarray, to: int, channels: int
) -> np.int64:
    """Count off what a message holds; returns how many channels that is."""
    values, extrema, many, held = z.reshape(-1), s.reshape(-1), holders.reshape(-1), np.int64(0)
    for i in range(channels):
        m, left = factor * values[at + i] + np.float32(0), np.int32(many[to + i])
        equal = np.int32(m == extrema[to + i])
        held += np.int64(equal)
        left -= equal & np.int32(left > 0)
        many[to + i] = np.uint16(left if m == m else np.int32(0))
    return held


@inner
def count_on(z: np.ndarray, at: int, factor: float, s: np.ndarray, holders: np.ndarray, to: int, channels: int) -> bool:
    """Merge a message; whether an extremum has other bits, or may have come to be."""
    values, extrema, many, altered = z.reshape(-1), s.reshape(-1), holders.reshape(-1), np.int32(0)
    for i in range(channels):
        m, best = factor * values[at + i] + np.float32(0), extrema[to + i]
        better, equal = np.int32((m > best) | (m != m)), np.int32(m == best)
        altered |= better | (equal & np.int32(m == NOTHING))  # -inf may be the first message
        extrema[to + i] = m if better else best
        more = min(np.int32(many[to + i]) + equal, np.int32(MOST_HOLDERS))
        many[to + i] = np.uint16(np.int32(m == m) if better else more)
    return altered != 0


@inner
def merge(z: np.ndarray, at: int, factor: float, best: np.ndarray, found: np.ndarray, to: int, channels: int) -> None:
    """Merge a message into extrema under computation, with the number of messages that attain each."""
    values = z.reshape(-1)
    for i in range(channels):
        m, most = factor * values[at + i] + np.float32(0), best[to + i]
        better, more = (m > most) | (m != m), found[to + i] + np.int32(m == most)
        best[to + i] = m if better else most
        found[to + i] = np.int32(1) if better else more


@inner
def put(
    best: np.ndarray, found: np.ndarray, at: int, s: np.ndarray, holders: np.ndarray, to: int, channels: int
) -> bool:
    """Have channels that nobody holds be what was found; whether any of them has other bits than before."""
    extrema, many, altered = s.reshape(-1), holders.reshape(-1), False
    for i in range(channels):
        if many[to + i] == 0:
            old, new = extrema[to + i], best[at + i]
            altered |= not (new == old or (new != new and old != old))
            extrema[to + i], many[to + i] = new, np.uint16(min(found[at + i], np.int32(MOST_HOLDERS)))
    return altered
