"""The Sink of a task: one act an epoch for all its parts, each of which has files and tables of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from freshet.operators.core import Core
from freshet.operators.outcome import Message
from freshet.operators.sink.core import Sink
from freshet.operators.sink.dealing import control_of, deal
from freshet.operators.sink.kind_outputs import Brought, blocks_by_kind
from freshet.operators.sink.output import Output
from freshet.operators.storage.head import names_of
from freshet.operators.storage.travelling import some_of
from freshet.operators.telemetry.figures import Figures, all_figures
from freshet.operators.telemetry.level import joint
from freshet.state.block_columns import POSITIONS, Columns
from freshet.state.codec import Block
from freshet.state.memory.pager import Pager
from freshet.state.sweep import Sweepers
from freshet.state.table import TableSet


def of_task(sinks: Sequence[Sink], of: int) -> Sink | TaskSink:
    """Return the Sink of a task with these parts, of `parts` in all."""
    return sinks[0] if len(sinks) == 1 else TaskSink(sinks, of)


class TaskSink(Core):
    """The Sinks of several parts, the next ones of all (`of`)."""

    def __init__(self, sinks: Sequence[Sink], of: int) -> None:
        self.sinks, self._of = sinks, of
        self._name = f"sinks {sinks[0].part} to {sinks[-1].part}"
        self.levels = joint(sink.levels for sink in sinks)

    @property
    def outlets(self) -> list[dict[str, Output]]:
        """The outlets of all parts, in order, by the prefix of their kind."""
        return [outlets for sink in self.sinks for outlets in sink.outlets]

    def sweeper(self, images: Sequence[Path | None] | None, epoch: int) -> Sweepers:
        """Return the object that makes the tables of every part durable."""
        return Sweepers([sink.tables for sink in self.sinks], images, epoch)

    def keep_within(self, pager: Pager) -> None:
        """Have tables of every part in files where the process is short of memory."""
        for sink in self.sinks:
            sink.keep_within(pager)

    @property
    def pager(self) -> Pager | None:
        """Memory for tables, where that is limited."""
        return self.sinks[0].pager

    def tables_of(self, place: int) -> tuple[TableSet, int]:
        """The tables of the part with this place in the task."""
        return self.sinks[place].tables, 0

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables of all parts."""
        return sum(sink.tables.nbytes for sink in self.sinks)

    @property
    def figures(self) -> Figures:
        """Figures of all parts together."""
        return all_figures(sink.figures for sink in self.sinks)

    def after_restore(self) -> None:
        """Forget what an epoch before the restore left behind."""
        for sink in self.sinks:
            sink.after_restore()

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Deal an epoch to the parts, and have each take over its rows; see Sink."""
        for sink in self.sinks:
            sink.check()
        control = control_of(self._name, epoch, blocks)
        kinds, brought = self.sinks[0].kinds, list[list[Brought]]()
        for kind, some in zip(kinds, blocks_by_kind(blocks, kinds), strict=True):
            dealt = deal(self._name, epoch, some, kind.width, len(self.sinks))
            shared = [block for block in some if "m_name" in block.columns or "pos_next" in block.columns]
            pairs = zip(self.sinks, dealt, strict=True)
            brought.append(
                [Brought(one, [self._share_of(block, sink.part) for block in shared]) for sink, one in pairs]
            )
        messages: list[Message] = []
        for sink, *given in zip(self.sinks, *brought, strict=True):
            messages += sink.take(epoch, given, control)
        return messages

    def _share_of(self, block: Block, part: int) -> Block:
        """Return the part's share of a block: string ids of its new vertices; for part 0 also input positions."""
        columns: Columns = names_of(block, range(part, part + 1), self._of)
        if part == 0:
            columns |= some_of(block, POSITIONS)
        return Block(block.header, columns)

    def close(self, write: bool = True) -> None:
        """Close every part, also where another one fails."""
        with ExitStack() as all_parts:
            for sink in self.sinks:
                all_parts.callback(sink.close, write)
