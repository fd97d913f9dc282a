"""Places given as a path on this machine or as a URI of another store, as Flink and people write them."""

from __future__ import annotations

import re
from pathlib import Path

_FILE = "file://"
_URI = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)")


def is_remote(place: str) -> bool:
    """Return whether a path or URI is in another store than this machine's files."""
    return "://" in place and not place.startswith(_FILE)


def file_uri(path: Path) -> str:
    """Return a path as Flink's `Path` reads it: without percent signs, which it would take for part of a name."""
    return f"{_FILE}{path}"


def local_path(place: str) -> Path:
    """Return a path or file:// URI as an absolute path."""
    return Path(place.removeprefix(_FILE)).absolute()


def location(uri: str) -> str:
    """Return a savepoint's URI as people write it: a plain path where it is local."""
    return "/" + uri.removeprefix("file:").lstrip("/") if uri.startswith("file:") else uri


def uri_in(path: Path) -> str | None:
    """Return the URI that was given where a path is expected: a `Path` has lost a slash of it. None for a path."""
    match = _URI.fullmatch(str(path))
    if match is None:
        return None
    return f"file:///{match[2]}" if match[1] == "file" else f"{match[1]}://{match[2]}"


def folder_here(path: Path) -> Path:
    """Return a folder that was given as a path, or as a file:// URI.

    Raises: ValueError for the URI of another store.
    """
    uri = uri_in(path)
    if uri is not None and is_remote(uri):
        msg = f"got {uri}, expected a folder of this machine"
        raise ValueError(msg)
    return path if uri is None else local_path(uri)
