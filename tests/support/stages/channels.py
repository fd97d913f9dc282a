"""A topic in memory for the cut log: offsets without a record, transactions, and attempts that are fenced."""

from __future__ import annotations

from collections.abc import Iterator

from freshet.operators.epochs.cut_segments import FencedError


class TopicInMemory:
    """Records by offset; a commit has an offset of its own, as in Kafka."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}
        self.first = self.end = 0
        self.right = 0  # of the attempt that fenced last
        self.reads = 0  # of single records

    def delete_before(self, offset: int) -> None:
        """What a trim, or an administrator, does."""
        self.records = {at: value for at, value in self.records.items() if at >= offset}
        self.first = max(self.first, offset)


class ChannelInMemory:
    """An attempt's channel to it; see CutChannel."""

    def __init__(self, topic: TopicInMemory) -> None:
        self.name, self.topic, self._right = "kafka://memory/cuts", topic, -1
        self.lost = False  # whether the next commit is lost on the way

    def fence(self) -> None:
        """Take the right to write."""
        self.topic.right += 1
        self._right = self.topic.right

    def write(self, record: bytes) -> int:
        """Commit a record; an attempt that was fenced leaves an offset that nobody reads."""
        at, self.topic.end = self.topic.end, self.topic.end + 2
        if self._right != self.topic.right:
            msg = f"another attempt of the job has taken over {self.name}; this one ends"
            raise FencedError(msg)
        if self.lost:
            msg = f"{self.name}: silent"
            raise OSError(msg)
        self.topic.records[at] = record
        return at

    def bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one after the last."""
        return self.topic.first, self.topic.end

    def read(self, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The records from one offset to another."""
        for at in range(max(offset, self.topic.first), end):
            if at in self.topic.records:
                self.topic.reads += 1
                yield at, self.topic.records[at]

    def close(self) -> None:
        """Nothing to do."""
