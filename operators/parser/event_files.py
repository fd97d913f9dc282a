"""Event files in paths of files and folders; unreadable ones are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from freshet.errors import InputError
from freshet.operators.parser.formats import SUFFIXES, begins_wrong, format_of, hint

_SOURCES_MAX = 32_767  # the source of an event is an int16
_STREAMS = ("/dev/", "/proc/")
_MEMORY = "/dev/shm/"  # plain files in memory
# Folders of a table format: which of the files beside them hold, their own catalogue alone knows.
_CATALOGUES = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "metadata": "Iceberg"}


class EventFileError(InputError):
    """A file or folder of events cannot be read; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events; `name` is the path as the user wrote it, `source` its place in the order of reading."""

    path: str
    name: str
    source: int
    format: str


def list_files(paths: Sequence[str]) -> list[EventFile]:
    """The files that the paths name, in order; those of a folder by name, without hidden and unfinished ones.

    Raises:
        EventFileError: a path that is not there or no text, a file of no format or another one, a pipe, a folder in a
            folder, an empty folder.
    """
    names = [name for given in paths for name in (_inside(given) if Path(given).is_dir() else [given])]
    for name in names:
        _refuse_bytes(name)
    if len(names) > _SOURCES_MAX:
        msg = f"at most {_SOURCES_MAX} event files are taken, got {len(names)}"
        raise EventFileError(msg)
    return [_event_file(Path(name), name, source) for source, name in enumerate(names)]


def _inside(given: str) -> list[str]:
    """Return the files of a folder, without Spark's `_SUCCESS`, checksums and the like."""
    every = sorted(Path(given).iterdir())
    for folder in (entry for entry in every if entry.is_dir()):
        if folder.name in _CATALOGUES:
            msg = (
                f"{given}: a table of {_CATALOGUES[folder.name]} ({folder.name}), whose folder may hold rows that were "
                "deleted since; write its rows as Parquet files to a folder of their own"
            )
            raise EventFileError(msg)
    inside = [entry for entry in every if entry.name[0] not in "._"]
    for folder in (entry for entry in inside if entry.is_dir()):
        column, is_value, _ = folder.name.partition("=")
        if is_value:
            msg = (
                f"{given}: partitioned by {column}, as Hive and Spark do ({folder.name}): its rows lack that column, "
                "and have no order; write it without partitionBy, as one folder of files that have the column "
                f"{column}, in the order in which events apply"
            )
            raise EventFileError(msg)
        msg = f"{folder}: a folder within a folder of events; name it on its own"
        raise EventFileError(msg)
    if not inside:
        msg = f"{given}: an empty folder; expected files that end in {', '.join(SUFFIXES)}"
        raise EventFileError(msg)
    return [str(Path(given) / entry.name) for entry in inside]


def _refuse_bytes(name: str) -> None:
    """See that the path of a file is text: it stands in `epochs/`, in dead letters and in the state.

    Raises:
        EventFileError: it is none.
    """
    for path in (name, str(Path(name).resolve())):
        if (shown := path.encode(errors="surrogateescape").decode(errors="backslashreplace")) != path:
            msg = f"{shown}: its name is not UTF-8; rename it (convmv does it for many)"
            raise EventFileError(msg)


def _event_file(path: Path, name: str, source: int) -> EventFile:
    stream = str(path).startswith(_STREAMS) and not str(path).startswith(_MEMORY)
    if name == "-" or stream or (path.exists() and not path.is_file()):
        msg = (
            f"{name}: a pipe or a device, which can be read only once; --resume and `freshet check` read the input "
            "again: write it to a file first, or to a Kafka topic"
        )
        raise EventFileError(msg)
    if not path.exists():
        msg = f"{name}: no such file or folder"
        raise EventFileError(msg)
    kind, start = format_of(path), _start_of(path, name)
    if kind is None:
        msg = f"{name}: got suffix {path.suffix!r}, expected one of {', '.join(SUFFIXES)}{hint(start)}"
        raise EventFileError(msg)
    if (why := begins_wrong(path, start)) is not None:
        msg = f"{name}: {why}"
        raise EventFileError(msg)
    return EventFile(str(path.resolve()), name, source, kind)


def _start_of(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        msg = f"{name}: cannot be read: {error.strerror}"
        raise EventFileError(msg) from error
