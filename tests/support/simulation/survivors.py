"""What outlives the crashes of a simulated job: its checkpoints, and what its readers have seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from freshet.operators.core import Core
from freshet.operators.dataflow import Place
from freshet.operators.outcome import Message
from freshet.state.codec import Block
from freshet.state.table import TableSet

Id = int | str
Rows = dict[Id, bytes | None]  # bytes of the embedding, or None where the vertex was deleted


class RecordingSink(Core):
    """Keeps the rows of each epoch, and insists that an epoch that comes again is what it was, in each of its parts.

    `seen` has those of every part of the job, of which this one has so many.
    """

    def __init__(self, seen: dict[int, dict[int, Rows]], names: dict[int, Id], parts: Collection[int] = (0,)) -> None:
        self.tables = TableSet(len(parts))
        self.seen, self.names, self.parts = seen, names, parts

    def after_restore(self) -> None:
        """Readers do not forget."""

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Record an epoch's rows."""
        rows: dict[int, Rows] = {part: {} for part in self.parts}
        for block in blocks:
            for key in self._own(block, "del_key")[0].tolist():
                rows[key % len(self.seen)][self.names.get(key, key)] = None
        for block in blocks:
            offsets, text = block.get("m_off").tolist(), block.get("m_name").tobytes()
            for k, key in enumerate(block.get("m_key").tolist()):
                self.names[key] = text[offsets[k] : offsets[k + 1]].decode()
        for block in blocks:
            keys, mine = self._own(block, "key")
            for key, row in zip(keys.tolist(), block.columns["row"][mine] if len(keys) else (), strict=True):
                rows[key % len(self.seen)][self.names.get(key, key)] = row.tobytes()
        for part, found in rows.items():
            if self.seen[part].setdefault(epoch, found) != found:
                msg = f"epoch {epoch} came back with other rows in part {part} than a reader has seen"
                raise AssertionError(msg)
        return []

    def _own(self, block: Block, column: str) -> tuple[np.ndarray, np.ndarray]:
        """The keys in a column, and their places in it, without what lies between the parts."""
        values = block.get(column)
        begins, ends = block.columns.get(f"{column}_begin", [0]), block.columns.get(f"{column}_end", [values.size])
        spans = list(zip(begins, ends, strict=True)) if values.size else []
        for part, (begin, end) in zip(self.parts, spans, strict=False):
            assert set(values[begin:end] % len(self.seen)) <= {part}, f"keys of other parts in {column} of part {part}"
        places = np.concatenate([np.arange(0), *(np.arange(begin, end) for begin, end in spans)])
        return values[places], places


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
