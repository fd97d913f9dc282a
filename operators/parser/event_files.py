"""Event files in paths of files and folders; unreadable ones are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from freshet.operators.parser.formats import JSONL, SUFFIXES, TEXTS, begins_wrong, format_by, format_of, hint
from freshet.operators.parser.partitions import EventFileError, files_in

_SOURCES_MAX = 32_767  # the source of an event is an int16
_STREAMS = ("/dev/", "/proc/")
_MEMORY = "/dev/shm/"  # plain files in memory
__all__ = ["EventFile", "EventFileError", "list_files"]


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events; `name` is the path as the user wrote it, `source` its place in the order of reading.

    `levels`: how many folders of the name are `key=value`, of which each key is a column.
    """

    path: str
    name: str
    source: int
    format: str
    levels: int = 0


def list_files(paths: Sequence[str]) -> list[EventFile]:
    """The files that the paths name, in order; those of a folder as `files_in`, without hidden and unfinished ones.

    Raises:
        EventFileError: a path that is not there or no text, a file of no format or another one, a pipe, a folder in a
            folder that is no partition, an empty folder.
    """
    found = [one for given in paths for one in (_inside(given) if Path(given).is_dir() else [(given, 0)])]
    for name, _ in found:
        _refuse_bytes(name)
    if len(found) > _SOURCES_MAX:
        msg = f"at most {_SOURCES_MAX} event files are taken, got {len(found)}"
        raise EventFileError(msg)
    return [_event_file(Path(name), name, source, levels) for source, (name, levels) in enumerate(found)]


def _inside(given: str) -> list[tuple[str, int]]:
    """Return the files of a folder, each with the number of its folders that are partitions.

    Files of rows without a byte are left out: Spark writes them for partitions without rows.
    """
    inside = files_in(Path(given))
    inside = [one for one in inside if not _is_empty(Path(one[0]))] or inside
    if not inside:
        msg = f"{given}: an empty folder; expected files that end in {', '.join(SUFFIXES)}"
        raise EventFileError(msg)
    return inside


def _is_empty(path: Path) -> bool:
    return format_of(path) in TEXTS and path.is_file() and path.stat().st_size == 0


def _refuse_bytes(name: str) -> None:
    """See that the path of a file is text: it stands in `epochs/`, in dead letters and in the state.

    Raises:
        EventFileError: it is none.
    """
    for path in (name, str(Path(name).resolve())):
        if (shown := path.encode(errors="surrogateescape").decode(errors="backslashreplace")) != path:
            msg = f"{shown}: its name is not UTF-8; rename it (convmv does it for many)"
            raise EventFileError(msg)


def _event_file(path: Path, name: str, source: int, levels: int) -> EventFile:
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
    if kind is None and not path.suffix:
        kind = format_by(start)
    elif kind is not None and (why := begins_wrong(path, start)) is not None:
        msg = f"{name}: {why}"
        raise EventFileError(msg)
    if kind is None:
        msg = f"{name}: got suffix {path.suffix!r}, expected one of {', '.join(SUFFIXES)}{hint(start)}"
        raise EventFileError(msg)
    if levels and kind == JSONL:
        msg = (
            f"{name}: JSON Lines in a folder of {path.parent.name}, which lack this column; expected Parquet, CSV or "
            "Arrow there: write the column into the lines, and the files to one folder"
        )
        raise EventFileError(msg)
    return EventFile(str(path.resolve()), name, source, kind, levels)


def _start_of(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        msg = f"{name}: cannot be read: {error.strerror}"
        raise EventFileError(msg) from error
