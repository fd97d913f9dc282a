"""The topology of an epoch by kind and relation; without kinds it has one section, whose prefix is empty."""

from __future__ import annotations

from collections.abc import Iterable

from freshet.operators.storage.travelling import share_of, together
from freshet.state.block_columns import TOPOLOGY, TRAVELLING, Columns
from freshet.state.codec import Block, Header

_TRAVELLING = frozenset(TRAVELLING)
EPOCH = ""  # the prefix of what is of no kind or relation: control values and positions
NO_RECORDS = Block(Header(TOPOLOGY))


class EpochTopology:
    """The topology of an epoch, by kind and relation."""

    def __init__(self, brought: Iterable[dict[str, Block]]) -> None:
        """Take those of the epoch's blocks that have it; the blocks are given by prefix (see `codec.views`)."""
        found = [views for views in brought if EPOCH in views and "ctl" in views[EPOCH].columns]
        self.sections = found[0]
        if len(found) > 1:
            prefixes = dict.fromkeys(prefix for views in found for prefix in views)
            self.sections = {prefix: together([one[prefix] for one in found if prefix in one]) for prefix in prefixes}

    def of(self, prefix: str) -> Block:
        """Return the records of a kind or relation."""
        return self.sections.get(prefix, NO_RECORDS)

    def share(self, here: range, there: range) -> Columns:
        """Return the travelling columns for a task with the parts `there`; `here` are those of the own task."""
        found: Columns = {}
        for prefix, section in self.sections.items():
            if here != there:
                found |= prefixed(prefix, share_of(section, here, there))
                continue
            for name, column in section.columns.items():
                if name in _TRAVELLING:
                    found[prefix + name] = column
        return found


def prefixed(prefix: str, columns: Columns) -> Columns:
    """Return the columns with this at the beginning of their names."""
    return {prefix + name: column for name, column in columns.items()} if prefix else columns
