"""The order in which a run took its input in, as `epochs/` records it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from freshet.job.errors import UsageError
from freshet.operators.sink.change_log_reader import Positions


class Piece(NamedTuple):
    """Share of an epoch in one partition of a source: its number of events, and the position after them."""

    epoch: int
    source: str
    partition: int
    next_offset: int
    events: int


def input_order(positions: Positions, sources: Sequence[str]) -> Iterator[Piece]:
    """The pieces by epoch, within it by source (in the order given) and partition.

    Raises: UsageError when the run read from something that is none of the sources.
    """
    unknown = sorted(set(positions.source.tolist()) - set(sources))
    if unknown:
        msg = f"--events: the run read {', '.join(unknown)}; give what it read"
        raise UsageError(msg)
    rank = {name: k for k, name in enumerate(sources)}
    ranks = np.array([rank[name] for name in positions.source.tolist()], np.int64)
    order = np.lexsort((positions.partition, ranks, positions.epoch))
    columns = (positions.epoch, positions.source, positions.partition, positions.next_offset, positions.events)
    return map(Piece, *(column[order].tolist() for column in columns))
