"""Blocks of epochs that are not complete yet: in memory up to a bound, beyond it in a file.

One path through the dataflow may be ahead of another, and send any number of large blocks while the other's small ones
still wait in Flink's buffers. A stage can't stop one sender and go on with another, so it can't bound the number of
blocks; it bounds their memory.
"""

from __future__ import annotations

from freshet.operators.spill_file import Spilled, SpillFile
from freshet.operators.telemetry.level import Level
from freshet.state.codec import Block, Header, encode

INBOX_BYTES = 16 << 20  # more than was ever seen to wait in all parts of an operator
Sender = tuple[int, int, int]  # kind, flags and source part of a block's header


def _sender(header: Header) -> Sender:
    return header.kind, header.flags, header.source


def _size(block: Block | bytes) -> int:
    return block.nbytes if isinstance(block, Block) else len(block)


class Inbox:
    """Blocks by epoch, until those of all senders are there.

    Invariant: the blocks in memory that wait have at most `bound` bytes.
    """

    def __init__(self, senders: int, bound: int = INBOX_BYTES) -> None:
        self._senders, self._bound = senders, bound if senders > 1 else 0  # a block of the only sender never waits
        self._epochs: dict[int, dict[Sender, Block | bytes | Spilled]] = {}
        self._file = SpillFile("inbox")
        self._bytes, self._count = Level(self._bound), Level()
        self.levels = {"inbox_bytes": self._bytes, "inbox_file_bytes": self._file.level, "inbox_epochs": self._count}

    def holds(self, header: Header) -> bool:
        """Return whether that sender's block of that epoch waits here."""
        return header.epoch in self._epochs and _sender(header) in self._epochs[header.epoch]

    def put(self, header: Header, block: Block | bytes) -> list[Block | bytes] | None:
        """Add a block that is not here yet; returns all blocks of its epoch, ordered by sender, once they are complete.

        Raises:
            OSError: the file can't be written.
        """
        if self._senders == 1:
            return [block]
        waiting, sender = self._epochs.setdefault(header.epoch, {}), _sender(header)
        if len(waiting) + 1 < self._senders:
            waiting[sender] = self._keep(block)
            self._count.add(len(waiting) == 1)
            return None
        del self._epochs[header.epoch]
        complete = {key: self._fetch(waited) for key, waited in waiting.items()}
        complete[sender] = block  # what completes an epoch does not wait
        self._count.take(bool(waiting))
        return [complete[key] for key in sorted(complete)]

    def _keep(self, block: Block | bytes) -> Block | bytes | Spilled:
        size = _size(block)
        if self._bytes.now + size <= self._bound:
            self._bytes.add(size)
            return block
        return self._file.spill(encode(block.header, block.columns) if isinstance(block, Block) else block)

    def _fetch(self, waited: Block | bytes | Spilled) -> Block | bytes:
        if isinstance(waited, Spilled):
            return self._file.fetch(waited)
        self._bytes.take(_size(waited))
        return waited

    def close(self) -> None:
        """Drop what waits."""
        self._epochs.clear()
        self._file.close()

    @property
    def nbytes(self) -> int:
        """Bytes that wait in memory."""
        return self._bytes.now

    @property
    def blocks(self) -> int:
        """Blocks that wait, wherever."""
        return sum(map(len, self._epochs.values()))
