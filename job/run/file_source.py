"""A file among the sources of a job, from where it is read to where it ended when the job began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.files import Chunk, ChunkReader, plan_from, records_of
from freshet.partitioner.events import Events


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file from line or row `first` on, as it is cut into chunks; `name` is what `--events` called it at first."""

    index: int
    name: str
    first: int
    chunks: tuple[Chunk, ...]

    @staticmethod
    def plan(file: EventFile, first: int) -> FileSource:
        """Cut a file into chunks.

        Raises: EventFileError when it can't be read, or has fewer records than `first`.
        """
        return FileSource(file.source, file.name, first, tuple(plan_from(file, first)))

    @property
    def records(self) -> int:
        """Number of records that the file had when the job began; without a chunk, that of records before `first`."""
        return records_of(self.chunks) or self.first

    @property
    def start(self) -> Mapping[int, int]:
        """The first record to read."""
        return {0: self.first}

    @property
    def end(self) -> Mapping[int, int]:
        """Position after the last record."""
        return {0: self.records}

    def events(self, partition: int, parser: Parser) -> Iterator[Events]:
        """The events of the file, chunk by chunk."""
        reader = ChunkReader(every_column=parser.is_mapped, fields=parser.fields)
        for chunk in self.chunks:
            yield parser.parse_chunk(chunk, reader.read(chunk))[0]

    def ends_at(self, position: int, covered: int) -> bool:
        """Return whether an epoch that covers the file up to `covered` has its last event at `position`."""
        return position == covered

    def may_be(self, file: EventFile) -> bool:
        """Return whether a file may be this one: it may have moved, but has the same name and length.

        Raises: EventFileError, as `plan`.
        """
        last, now = self.chunks[-1:], plan_from(file, self.first)[-1:]
        ends = {(chunk.first + chunk.count, chunk.end) for chunk in (*last, *now)}
        return Path(self.name).name == Path(file.name).name and len(now) == len(last) and len(ends) <= 1

    def at(self, path: str) -> FileSource:
        """The same file with the path that it has now."""
        return replace(self, chunks=tuple(replace(chunk, path=path) for chunk in self.chunks))
