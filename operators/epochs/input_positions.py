"""Positions in the input: how far an epoch reaches, and whether one that is cut again has the same events as before.

A cut names events by their number in a lane. Without positions, a source that has lost one (compaction, retention, an
edited file) would shift every later epoch, or leave the next one waiting for ever. With them the job fails and says
where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from freshet.log_lines import warn
from freshet.operators.epochs.cut import UNKNOWN, Cut, Lane, LostCutError, Share, lane_of
from freshet.partitioner.events import Events

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

    def shares_of(self, pieces: Iterable[Events]) -> tuple[Share, ...]:
        """Return the shares of each lane in pieces of lanes, each in order."""
        found: dict[Lane, Share] = {}
        for piece in pieces:
            last = Share(int(piece.source[-1]), int(piece.partition[-1]), len(piece), int(piece.position[-1]))
            lane = self._lane_of(last)
            found[lane] = last if lane not in found else last._replace(events=last.events + found[lane].events)
        return tuple(sorted(found.values()))

    def refuse_changed(self, cut: Cut, pieces: Iterable[Events]) -> None:
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


def last_arrival_ms(pieces: Iterable[Events]) -> int:
    """Return when the last of these events came to the Parser, 0 without any."""
    return max((int(piece.arrival_ms) for piece in pieces), default=0)


def position_columns(events: Events, pieces: Sequence[Events]) -> dict[str, np.ndarray]:
    """Return the positions of an epoch (given whole and in pieces) by source partition: the columns `pos_*`.

    `pos_next` is the offset of the first record that is not covered whole: where the epoch ends within a message of
    many events it is that message's own.
    """
    if len(events) == 0:
        return {}
    code = events.source.astype(np.int64) << 32 | events.partition.astype(np.int64)
    if (code == code[0]).all():
        which, last, counts = code[:1], np.array([len(code) - 1]), np.array([len(code)])
    else:
        which, at, counts = np.unique(code[::-1], return_index=True, return_counts=True)
        last = len(code) - 1 - at
    following = events.position[last].astype(np.int64)
    inside = {one.end_source << 32 | one.end_partition: one.end_position < one.position[-1] for one in pieces}
    return {
        "pos_source": (which >> 32).astype(np.int16),
        "pos_partition": (which & 0xFFFFFFFF).astype(np.int32),
        "pos_next": following - np.array([inside.get(one, False) for one in which.tolist()], np.int64),
        "pos_events": counts.astype(np.int64),
    }
