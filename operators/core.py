"""Interface of an operator's core: blocks in, messages out, and tables between epochs; no engine, clock or I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from freshet.operators.outcome import Message
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.level import AnyLevel
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.memory.pager import Pager
from freshet.state.sweep import Sweeper, Sweepers
from freshet.state.table import TableSet


class Core:
    """Base of all cores; a `Stage` drives it.

    Invariant: what `apply` returns and leaves in the tables depends on the tables and the blocks alone.
    """

    tables: TableSet
    levels: Mapping[str, AnyLevel] = {}
    """What waits in it."""

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Act on the blocks of an epoch."""
        raise NotImplementedError

    def after_restore(self) -> None:
        """Rebuild derived state."""

    def close(self, write: bool = True) -> None:
        """Finish what it does in the background; `write=False`: after a failure, drop it."""

    def sweeper(self, images: Sequence[Path | None] | None, epoch: int) -> Sweeper | Sweepers:
        """Return the object that makes its tables durable, at this epoch; `images` are those of its parts."""
        return Sweeper(self.tables, images, epoch=epoch)

    def keep_within(self, pager: Pager) -> None:
        """Have tables in files where the process is short of memory; before anything is restored."""
        self.tables.keep_within(pager)

    @property
    def pager(self) -> Pager | None:
        """Memory for tables, where that is limited."""
        return self.tables.pager

    def tables_of(self, place: int) -> tuple[TableSet, int]:
        """The tables of the part with this place in the task, and which part of them it is."""
        return self.tables, place

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables."""
        return self.tables.nbytes

    @property
    def figures(self) -> Figures:
        """Figures for metrics."""
        return Figures() if self.sums is None else Figures({"redone_rows": self.sums["recomputed"]})

    @property
    def sums(self) -> SumReport | None:
        """Report on its sums, if it keeps any."""
        return None
