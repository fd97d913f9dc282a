"""What outlives the crashes of a simulated job: its checkpoints, and what its readers have seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from operators.core import Core
from operators.dataflow import Place
from operators.outcome import Message
from state.codec import Block
from state.table import TableSet

Id = int | str
Rows = dict[Id, bytes | None]  # bytes of the embedding, or None where the vertex was deleted


class RecordingSink(Core):
    """Keeps the rows of each epoch, and insists that an epoch that comes again is what it was."""

    def __init__(self, seen: dict[int, Rows], names: dict[int, Id]) -> None:
        self.tables = TableSet()
        self.seen, self.names = seen, names

    def after_restore(self) -> None:
        """Readers do not forget."""

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Record an epoch's rows."""
        rows: Rows = {}
        for block in blocks:
            for key in block.get("del_key").tolist():
                rows[self.names.get(key, key)] = None
        for block in blocks:
            offsets, text = block.get("m_off").tolist(), block.get("m_name").tobytes()
            for k, key in enumerate(block.get("m_key").tolist()):
                self.names[key] = text[offsets[k] : offsets[k + 1]].decode()
        for block in blocks:
            for key, row in zip(block.get("key").tolist(), block.columns.get("row", ()), strict=True):
                rows[self.names.get(key, key)] = row.tobytes()
        if self.seen.setdefault(epoch, rows) != rows:
            msg = f"epoch {epoch} came back with other rows than a reader has seen"
            raise AssertionError(msg)
        return []


@dataclass
class Checkpoint:
    """What survives a crash: keyed state of every place, and how much of each lane of the input was read."""

    positions: tuple[int, ...] = (0,)
    states: dict[Place, dict[str, bytes]] = field(default_factory=dict)


class Checkpoints:
    """Tells the cut log which checkpoint a crash would fall back to, by the number in the order of their beginning."""

    def __init__(self) -> None:
        self._begun = self._complete = 0

    def begin(self) -> None:
        """A barrier leaves."""
        self._begun += 1

    def complete(self) -> None:
        """The one that was begun last is complete."""
        self._complete = self._begun

    def abort(self) -> None:
        """What was under way is gone; the next one has another number."""
        self._begun += 1

    def note(self) -> int:
        """The number of the one that was begun last."""
        return self._begun

    def has_passed(self, note: object) -> bool:
        """Whether the last complete one was begun later."""
        assert isinstance(note, int)
        return self._complete > note
