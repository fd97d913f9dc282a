"""Chunks of JSON Lines that are parsed ahead, on threads of their own; they are taken in the order of the plan.

Most of the work of parsing needs no interpreter lock. So what follows a chunk can be parsed while the chunk is
processed. Nothing is written before a chunk is taken, so one that is never taken leaves no trace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from freshet.operators.parser.core import Parser
from freshet.operators.parser.files import Chunk, ChunkReader
from freshet.operators.parser.formats import JSONL, compression_of
from freshet.operators.parser.table import Parsed


def is_parsed_ahead(chunk: Chunk) -> bool:
    """Return whether a chunk may be parsed before its turn.

    Compressed files are read in order; and the columns of tables need no parsing.
    """
    return chunk.format == JSONL and compression_of(chunk.path) is None


class ParsedAhead:
    """Parses the chunks that follow the one that was taken last, as many as there are threads.

    Invariant: at most one chunk for each thread is parsed or waits.
    """

    def __init__(self, chunks: Sequence[Chunk], parsers: Iterable[Parser]) -> None:
        """`parsers`: one for each thread, all of the same rules; none of them has a kind of ids to decide."""
        self._chunks, self._begun = chunks, dict[int, Future[Parsed]]()
        left = SimpleQueue[Parser]()
        for parser in parsers:
            left.put(parser)
        self._threads = left.qsize()
        self._pool = ThreadPoolExecutor(self._threads, "freshet-ahead", _begin, (left,))

    def take(self, number: int) -> Parsed | None:
        """Return a chunk's events and letters, and begin those that follow; None if it was not begun.

        Raises: EventFileError, as `ChunkReader.read`.
        """
        found = self._begun.pop(number, None)
        for other in [other for other in self._begun if not number < other <= number + self._threads]:
            self._begun.pop(other).cancel()
        for other in range(number + 1, min(number + 1 + self._threads, len(self._chunks))):
            if other not in self._begun and is_parsed_ahead(self._chunks[other]):
                self._begun[other] = self._pool.submit(_parse, self._chunks[other])
        return None if found is None else found.result()

    def close(self) -> None:
        """End the threads, after what they are doing."""
        self._pool.shutdown(wait=False, cancel_futures=True)


_own = threading.local()  # parser and reader of a thread: neither may be shared


def _begin(parsers: SimpleQueue[Parser]) -> None:
    _own.parser = parsers.get()
    _own.reader = ChunkReader(fields=_own.parser.fields)


def _parse(chunk: Chunk) -> Parsed:
    parser: Parser = _own.parser
    return parser.parse_chunk(chunk, _own.reader.read(chunk))
