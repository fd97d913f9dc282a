"""Many lines in one piece of text, each with its place in its source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of JSON in one piece.

    Shapes:
        begin, end: (n,) int64, the bytes of line k are data[begin[k]:end[k]], without the line feed
        positions: (n,) int64, the position that follows each line; the lines of a message have the same

    Invariant: lines are in order, and between two of them are line feeds alone. No line is empty.
    """

    data: bytes
    begin: np.ndarray
    end: np.ndarray
    positions: np.ndarray

    @staticmethod
    def of_lines(data: bytes, first: int) -> tuple[Text, int]:
        """Return whole lines of a file, of which the first is line `first`, and the number of the line after them."""
        begin, end = _bounds(data)
        positions = np.arange(first + 1, first + len(begin) + 1, dtype=np.int64)
        return _without_empty(data, begin, end, positions), first + len(begin)

    @staticmethod
    def of_messages(data: bytes, ends: np.ndarray, positions: np.ndarray) -> Text:
        """Return the lines of messages.

        Shapes:
            data: messages, each followed by a line feed
            ends: (m,) int64, where the line feed after each message is
            positions: (m,) int64, the position after each message
        """
        begin, end = _bounds(data)
        message = np.searchsorted(ends, end)
        return _without_empty(data, begin, end, positions[message])

    def __len__(self) -> int:
        return len(self.begin)

    def lines(self, rows: np.ndarray | slice) -> tuple[list[bytes], list[int]]:
        """Return some lines and their positions."""
        data, bounds = self.data, zip(self.begin[rows].tolist(), self.end[rows].tolist(), strict=True)
        return [data[begin:end] for begin, end in bounds], self.positions[rows].tolist()

    def part(self, first: int, last: int) -> Text:
        """Return lines `first` to `last`; all of them are the text itself."""
        if first == 0 and last == len(self):
            return self
        if first >= last:
            return Text(b"", self.begin[:0], self.end[:0], self.positions[:0])
        base = int(self.begin[first])
        return Text(
            self.data[base : int(self.end[last - 1])],
            self.begin[first:last] - base,
            self.end[first:last] - base,
            self.positions[first:last],
        )

    def line_at(self, byte: int) -> int:
        """Return the number of the line that a byte of the text is in."""
        return max(int(np.searchsorted(self.begin, byte, "right")) - 1, 0)


def _bounds(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of lines; the last one may have no line feed."""
    end = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if data and data[-1] != _NEWLINE:
        end = np.append(end, len(data))
    begin = np.zeros(len(end), np.int64)
    begin[1:] = end[:-1] + 1
    return begin, end


def _without_empty(data: bytes, begin: np.ndarray, end: np.ndarray, positions: np.ndarray) -> Text:
    kept = begin < end
    if kept.all():
        return Text(data, begin, end, positions)
    return Text(data, begin[kept], end[kept], positions[kept])
