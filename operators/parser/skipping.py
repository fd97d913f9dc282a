"""Reading the rest of a file whose first records were read by an earlier job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from freshet.operators.parser.event_files import EventFile, EventFileError
from freshet.operators.parser.files import Chunk, ChunkReader, plan_file
from freshet.operators.parser.formats import JSONL


def plan_from(file: EventFile, first: int) -> list[Chunk]:
    """The chunks of a file from line or row `first` (from 0) on; none where it has no more.

    Raises:
        EventFileError: the file can't be read, or has fewer records than that.
    """
    chunks = plan_file(file)
    records = records_of(chunks)
    if first > records:
        msg = f"{file.name}: has {records:,} records, but {first:,} are recorded as read: it is another file"
        raise EventFileError(msg)
    left = [chunk for chunk in chunks if chunk.first + chunk.count > first]
    return [_from(left[0], first - left[0].first), *left[1:]] if left else []


def records_of(chunks: Sequence[Chunk]) -> int:
    """The number of a file's records, from its chunks."""
    return chunks[-1].first + chunks[-1].count if chunks else 0


def _from(chunk: Chunk, skipped: int) -> Chunk:
    if not skipped:
        return chunk
    begin = chunk.begin
    if chunk.format == JSONL:
        data = ChunkReader().read(chunk)
        assert isinstance(data, bytes)
        begin += int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[skipped - 1]) + 1
    return replace(chunk, first=chunk.first + skipped, count=chunk.count - skipped, begin=begin)
