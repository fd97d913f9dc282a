"""Folders whose names are `key=value`, as Hive, Spark and DuckDB write them: each key is a column of their files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from urllib.parse import unquote

from freshet.errors import InputError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_UNFINISHED = (".crc", "._copying_", ".inprogress", ".tmp")
# Folders of a table format: which of the files beside them hold, their own catalogue alone knows.
_CATALOGUES = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "metadata": "Iceberg"}


class EventFileError(InputError):
    """A file or folder of events cannot be read; the message names it and says why."""


def files_in(folder: Path) -> list[tuple[str, int]]:
    """Return the files of a folder and of its partitions, each with the number of folders that are partitions.

    Those of one folder come by name; its partitions by value: integers first, by their size, then texts.

    Raises: EventFileError for a table of another format, or folders and files of which some lack a column.
    """
    return [(str(file), len(keys)) for file, keys in _walk(folder, folder, ())]


def _walk(folder: Path, top: Path, keys: tuple[str, ...]) -> list[tuple[Path, tuple[str, ...]]]:
    every = sorted(folder.iterdir())
    for entry in every:
        if entry.name in _CATALOGUES and entry.is_dir():
            msg = (
                f"{folder}: a table of {_CATALOGUES[entry.name]} ({entry.name}), whose folder may hold rows that were "
                "deleted since; write its rows as Parquet files to a folder of their own"
            )
            raise EventFileError(msg)
    inside = [entry for entry in every if not _is_left_out(entry.name)]
    folders = [entry for entry in inside if entry.is_dir()]
    files = [entry for entry in inside if entry not in folders]
    if not folders:
        return [(file, keys) for file in files]
    column = _key_of(folders, keys)
    if files:
        msg = f"{files[0]}: a file beside folders of {column}=: its rows lack the column {column}; put it into one"
        raise EventFileError(msg)
    folders.sort(key=lambda entry: _order(_value(entry.name)))
    found = [file for entry in folders for file in _walk(entry, top, (*keys, column))]
    first = found[0] if found else None
    if other := next((one for one in found if first is not None and one[1] != first[1]), None):
        msg = (
            f"{top}: files in folders of {_shown(found[0][1])} ({found[0][0]}) and of {_shown(other[1])} ({other[0]}): "
            "some lack a column; expected the same keys for all"
        )
        raise EventFileError(msg)
    return found


def _is_left_out(name: str) -> bool:
    """Return whether a name is of what is hidden, unfinished or no data: `_SUCCESS`, `_metadata`, checksums."""
    return name[0] in "._" or name.lower().endswith(_UNFINISHED)


def _key_of(folders: Sequence[Path], above: tuple[str, ...]) -> str:
    """Return the key of folders that stand side by side.

    Raises: EventFileError where they have none, or several, or one that a folder above has.
    """
    keys: dict[str, Path] = {}
    for folder in folders:
        key, is_value, _ = folder.name.partition("=")
        if not is_value or not key:
            msg = f"{folder}: a folder within a folder of events; name it on its own, or key=value"
            raise EventFileError(msg)
        keys.setdefault(_decoded(key, folder.name), folder)
    if len(keys) > 1:
        (a, one), (b, other), *_ = keys.items()
        msg = f"{other}: a folder of {b}= beside one of {a}= ({one.name}): rows of each lack a column of the other"
        raise EventFileError(msg)
    (key,) = keys
    if key in above:
        msg = f"{folders[0]}: the key {key} is in two folders of one path; rename one"
        raise EventFileError(msg)
    return key


def _shown(keys: Sequence[str]) -> str:
    return "/".join(f"{key}=" for key in keys) or "no key"


def _order(value: str | None) -> tuple[int, int, str]:
    if value is not None and _WHOLE.fullmatch(value):
        return 0, int(value), value
    return (2, 0, "") if value is None else (1, 0, value)


def _value(folder: str) -> str | None:
    text = folder.partition("=")[2]
    return None if text in ("", _NULL) else _decoded(text, folder)


def _decoded(text: str, folder: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        msg = f"{folder}: its percent-escapes are no UTF-8; rename it"
        raise EventFileError(msg) from None


def columns_of(name: str, levels: int) -> dict[str, str | None]:
    """Return the columns that the last `levels` folders of a file's name say; None is null."""
    folders = PurePath(name).parts[-1 - levels : -1] if levels else ()
    return {_decoded(one.partition("=")[0], one): _value(one) for one in folders}


def as_integer(text: str) -> int | str:
    """Return the integer that a value writes in the usual way, else the text."""
    return int(text) if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63 else text
