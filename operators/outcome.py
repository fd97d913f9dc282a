"""Result of a stage's step: messages for other operators, and changes of its parts' keyed state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from freshet.state.codec import Block, encode
from freshet.state.sweep import Mutations


class Message(NamedTuple):
    """A block for one task of one operator: as it is within a process, encoded between processes.

    `to` is the kind of the operator (see operators/dataflow.py); which one of that kind, its sender decides. `task` is
    that of the receiver.
    """

    to: str
    task: int
    epoch: int
    block: Block | bytes

    def encoded(self) -> Message:
        """The message with the bytes of its block."""
        block = self.block
        return self._replace(block=encode(block.header, block.columns)) if isinstance(block, Block) else self


@dataclass(slots=True)
class Outcome:
    """Result of applying an epoch: messages to send and, by part, entries of keyed state to change."""

    messages: list[Message] = field(default_factory=list)
    mutations: dict[int, Mutations] = field(default_factory=dict)

    def of(self, part: int) -> Mutations:
        """The changes of a part's entries, to be added to."""
        return self.mutations.setdefault(part, Mutations())

    @property
    def only(self) -> Mutations:
        """The changes of the one part that the operator's task has."""
        (mutations,) = self.mutations.values() or (Mutations(),)
        return mutations

    @property
    def puts(self) -> list[tuple[str, bytes]]:
        """Entries to set, of the only part."""
        return self.only.puts

    @property
    def deletes(self) -> list[str]:
        """Entries to remove after the puts, of the only part."""
        return self.only.deletes
