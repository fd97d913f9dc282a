"""The outputs of a sink part for the vertices of one kind.

Where a model returns several kinds, each has outputs, string ids and scalars of its own, so user 7 and item 7 never
meet; of a model that returns one, names of columns and tables have no prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from freshet.operators.graph.tables import with_prefix
from freshet.operators.outcome import Message
from freshet.operators.sink import output as at
from freshet.operators.sink.dealing import Dealt
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.output import Output, SinkPart
from freshet.operators.sink.string_ids import Names
from freshet.operators.telemetry.latency import Latencies
from freshet.operators.telemetry.level import AnyLevel, joint
from freshet.operators.threads import weakly
from freshet.partitioner.ids import STRING
from freshet.state.block_columns import POSITIONS
from freshet.state.codec import Block, views
from freshet.state.table import Table, TableSet

FIRST_ROW = np.zeros(1, np.int64)
SCALARS = 16


class Brought(NamedTuple):
    """Rows of an epoch for one kind in one part, and the blocks with its string ids and with input positions."""

    dealt: Dealt
    shared: list[Block]


class KindOutputs:
    """Outputs that get the rows of one kind in this order, and idle in the other one."""

    def __init__(self, width: int, outputs: Sequence[Output], prefix: str = "") -> None:
        """`prefix` begins the names of the kind's columns and tables where a model returns several kinds."""
        self.width, self.outputs, self.prefix = width, outputs, prefix
        self.levels: dict[str, AnyLevel] = joint(one.levels for one in outputs)
        self._names: Names | None = None

    def keep(self, tables: TableSet, scalars: Table, id_kind: str) -> None:
        """Add the tables that are needed to those of the part; `scalars` are the part's own."""
        mine = with_prefix(tables, self.prefix)
        self.scalars = scalars
        if self.prefix:
            self.scalars = mine.add("scalars", "i8")
            self.scalars.reserve(SCALARS)
        self._names = Names(mine) if id_kind == STRING else None

    def begin(self, latencies: Latencies, clock_ms: Callable[[], float], when_idle: Callable[[], None]) -> None:
        """Begin; `when_idle` is called after the outputs were idle, on the thread that calls `on_idle`."""
        self._when_idle = when_idle
        shared = SinkPart(self.scalars, latencies, clock_ms, weakly(self._on_idle))
        for output in self.outputs:
            output.begin(shared)

    def rows(self, epoch: int, brought: Brought) -> EpochRows:
        """Return the rows of an epoch with their ids, and the input that it ends with."""
        dealt, blocks = brought
        ids: Any = [dealt.keys]
        if self._names is not None:
            gone = self._names.of(dealt.keys[dealt.changed :])
            self._names.remove(dealt.keys[dealt.changed :])
            for block in blocks:
                self._names.put(block.get("m_key"), block.get("m_off"), block.get("m_name"))
            ids = self._names.of(dealt.keys[: dealt.changed]) + gone
        positions = [_positions(block) for block in blocks if "pos_next" in block.columns]
        where = np.concatenate(positions) if len(positions) > 1 else positions[0] if positions else None
        return EpochRows(epoch, ids, dealt.rows, dealt.changed, dealt.dead, where)

    def take(self, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Hand the rows of an epoch to the outputs; messages to send."""
        if self.prefix:
            self.scalars.touch_rows(FIRST_ROW)
            self.scalars.data[at.EPOCH] = rows.epoch
        return [one for output in self.outputs for one in output.take(rows.epoch, keys, rows, control)]

    def figures(self) -> dict[str, Any]:
        """Return the figures of all outputs, and the number of files."""
        found = {"visible": 0, "tail_failures": 0, "files": int(self.scalars.data[at.NUMBER])}
        for output in self.outputs:
            found |= output.figures()
        return found

    def _on_idle(self) -> None:
        for output in reversed(self.outputs):  # the recent changes say what the change log shows
            output.idle()
        self._when_idle()


def blocks_by_kind(blocks: Sequence[Block], kinds: Sequence[KindOutputs]) -> list[list[Block]]:
    """Return the blocks of each kind as they would be of a model that returns it alone."""
    if not kinds[0].prefix:
        return [list(blocks)]
    brought = [views(block) for block in blocks]
    of_all = [one[""] for one in brought if "" in one]
    return [[*of_all, *(one[kind.prefix] for one in brought if kind.prefix in one)] for kind in kinds]


def _positions(block: Block) -> np.ndarray:
    found = np.empty((block.columns["pos_next"].size, len(POSITIONS)), np.int64)
    for place, name in enumerate(POSITIONS):
        found[:, place] = block.columns[name]
    return found
