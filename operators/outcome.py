"""What a stage hands back when it has acted: messages for other operators, and changes of its keyed state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from state.codec import Block, encode
from state.sweep import Mutations


class Message(NamedTuple):
    """A block for one part of one operator: as it is within a process, encoded between processes.

    `to` is the kind of the operator (see operators/dataflow.py); which one of that kind, its sender decides.
    """

    to: str
    part: int
    epoch: int
    source: int
    block: Block | bytes

    def encoded(self) -> Message:
        """The message with the bytes of its block."""
        block = self.block
        return self._replace(block=encode(block.header, block.columns)) if isinstance(block, Block) else self


@dataclass(slots=True)
class Outcome:
    """What acting on an epoch leads to: messages to send and entries of keyed state to change."""

    messages: list[Message] = field(default_factory=list)
    mutations: Mutations = field(default_factory=Mutations)

    @property
    def puts(self) -> list[tuple[str, bytes]]:
        """Entries to set."""
        return self.mutations.puts

    @property
    def deletes(self) -> list[str]:
        """Entries to remove, after the puts."""
        return self.mutations.deletes
