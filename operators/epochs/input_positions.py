"""Positions in the input: how far an epoch reaches, and whether one that is cut again has the same events as before.

A cut names events by their number in a lane. Without positions, a source that has lost one (compaction, retention, an
edited file) would shift every later epoch, or leave the next one waiting for ever. With them the job fails and says
where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from freshet.log_lines import warn
from freshet.operators.epochs.cut import UNKNOWN, Cut, Lane, LostCutError, Share, lane_of
from freshet.partitioner.events import EventRange

SAY_EVERY_MS = 30_000
_WHAT_TO_DO = (
    "the source has lost or changed records since (compaction, retention, an edited file): "
    "bring it back as it was, or start afresh from a snapshot"
)


class InputPositions:
    """Writes positions into cuts, and compares them when an epoch is cut again.

    Args:
        names: the sources, by index.
        topics: those (by index) whose partitions are lanes of their own.
    """

    def __init__(self, names: Sequence[str], topics: frozenset[int]) -> None:
        self._names, self._topics = names, topics

    def shares_of(self, pieces: Iterable[EventRange]) -> tuple[Share, ...]:
        """Return the shares of each lane in pieces of lanes, each in order."""
        found: dict[Lane, Share] = {}
        for piece in pieces:
            events, at = piece.events, piece.stop - 1
            last = Share(int(events.source[at]), int(events.partition[at]), piece.size, int(events.position[at]))
            lane = self._lane_of(last)
            found[lane] = last if lane not in found else last._replace(events=last.events + found[lane].events)
        return tuple(sorted(found.values()))

    def refuse_changed(self, cut: Cut, pieces: Iterable[EventRange]) -> None:
        """Make sure that these are the events of the cut.

        Raises:
            LostCutError: they end elsewhere than those that it was made of.
        """
        found = self.shares_of(pieces)
        if found == cut.shares:
            return
        now = {self._lane_of(share): share for share in found}
        for share in cut.shares:
            got = now.get(self._lane_of(share), share)
            if share.position != UNKNOWN and got[:2] + got[3:] != share[:2] + share[3:]:
                msg = (
                    f"epoch {cut.epoch} ended with {share.events} events of {self._name(share)} before position "
                    f"{share.position:,} when it was cut; now the same number ends in {self._name(got)} before "
                    f"position {got.position:,}: {_WHAT_TO_DO}"
                )
                raise LostCutError(msg)

    def refuse_passed(self, cut: Cut, waiting: Mapping[Lane, int], read_up_to: Mapping[Lane, tuple[int, int]]) -> None:
        """Make sure that the events of a cut can still come.

        `waiting`: how many events of each lane are here; `read_up_to`: the source that a lane has been read up to, and
        the position in it.

        Raises:
            LostCutError: a lane has been read past the end of the epoch, and its events were not there.
        """
        for share in cut.shares:
            lane = self._lane_of(share)
            here, at = waiting.get(lane, 0), read_up_to.get(lane, (UNKNOWN, UNKNOWN))
            if here < share.events and share.position != UNKNOWN and at >= (share.source, share.position):
                msg = (
                    f"epoch {cut.epoch} had {share.events} events of {self._name(share)} up to position "
                    f"{share.position:,} when it was cut; now it has {here} of them, and has been read up to position "
                    f"{at[1]:,}: {_WHAT_TO_DO}"
                )
                raise LostCutError(msg)

    def describe_missing(self, cut: Cut, waiting: Mapping[Lane, int]) -> str:
        """Describe the events that a cut waits for."""
        lacks = [
            f"{share.events - here} of {share.events} events of {self._name(share)}, up to position {share.position:,}"
            for share in cut.shares
            if (here := waiting.get(self._lane_of(share), 0)) < share.events
        ]
        return f"epoch {cut.epoch} was cut before the restart and lacks " + "; ".join(lacks or ["events"])

    def _lane_of(self, share: Share) -> Lane:
        return lane_of(share.source, share.partition, self._topics)

    def _name(self, share: Share) -> str:
        name = self._names[share.source] if share.source < len(self._names) else f"source {share.source}"
        return f"{name}, partition {share.partition}" if share.source in self._topics else name


class Patience:
    """Says every half minute what the next epoch waits for, as long as it waits."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or warn
        self._since_ms: float | None = None
        self._epoch = 0

    def remind(self, epoch: int, now_ms: float, what: Callable[[], str]) -> None:
        """The epoch can't be sealed yet, for it waits for `what`."""
        if self._since_ms is None or self._epoch != epoch:
            self._since_ms, self._epoch = now_ms, epoch
        elif now_ms - self._since_ms >= SAY_EVERY_MS:
            self._since_ms = now_ms
            self._say(f"{what()}; it goes on when they come")


def last_arrival_ms(pieces: Iterable[EventRange]) -> int:
    """Return when the last of these events came to the Parser, 0 without any."""
    return max((int(piece.events.arrival_ms) for piece in pieces), default=0)


def position_columns(pieces: Sequence[EventRange]) -> dict[str, np.ndarray]:
    """Return the positions of an epoch by source partition, both ascending: the columns `pos_*`.

    `pos_next` is the offset of the first record that is not covered whole: where the epoch ends within a message of
    many events it is that message's own.
    """
    found: dict[Lane, tuple[int, int]] = {}  # the position of the last event, and how many events there are
    inside: dict[Lane, bool] = {}
    for piece in pieces:
        for lane, last, events in _ends_in(piece):
            found[lane] = last, events + found.get(lane, (0, 0))[1]
        source, partition, inside[source, partition] = piece.end
    if not found:
        return {}
    lanes = sorted(found)
    return {
        "pos_source": np.array([source for source, _ in lanes], np.int16),
        "pos_partition": np.array([partition for _, partition in lanes], np.int32),
        "pos_next": np.array([found[lane][0] - inside.get(lane, False) for lane in lanes], np.int64),
        "pos_events": np.array([found[lane][1] for lane in lanes], np.int64),
    }


def _ends_in(piece: EventRange) -> Iterator[tuple[Lane, int, int]]:
    """Yield the source partitions of a piece, each with the position of its last event and the number of events."""
    events, (start, stop) = piece.events, piece[1:]
    source, partition = events.source[start:stop], events.partition[start:stop]
    if stop - start == 1 or ((source == source[0]).all() and (partition == partition[0]).all()):
        yield (int(source[0]), int(partition[0])), int(events.position[stop - 1]), stop - start
        return
    code = source.astype(np.int64) << 32 | partition.astype(np.int64)
    which, at, counts = np.unique(code[::-1], return_index=True, return_counts=True)
    last = events.position[stop - 1 - at]
    for one, position, count in zip(which.tolist(), last.tolist(), counts.tolist(), strict=True):
        yield (one >> 32, one & 0xFFFFFFFF), position, count
