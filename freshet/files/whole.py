"""Files that appear whole, and survive a power loss once they are there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Container, Iterable
from pathlib import Path

from freshet.files.owner_only import FILE

LEFT_BEHIND = ".tmp"  # how the name of a file ends that is not whole yet; it starts with a dot


def write_whole(path: Path, data: bytes | memoryview, *, synced: bool = True) -> None:
    """Put data in the place of a file in one step: others see the former file or this one.

    `synced`: it survives a power loss as soon as it is seen; the file is synced before the rename, the folder after it.

    Raises: OSError when it can't be written; the former file stays, and nothing lies beside it.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{LEFT_BEHIND}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE), "wb") as file:
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if synced:
        sync_folder(path.parent)


def remove_left_behind(folder: Path, of: str = "*") -> None:
    """Remove what killed processes had not finished of the files in a folder whose names fit the pattern.

    Nobody else may be writing such a file: it would fail.
    """
    for path in folder.glob(f".{of}{LEFT_BEHIND}"):
        path.unlink(missing_ok=True)


def remove_all_left_behind(folder: Path, but: Container[str] = ()) -> None:
    """Do so in a folder and all below it, but for those of its folders that have these names."""
    for at, folders, _ in os.walk(folder):
        if at == str(folder):
            folders[:] = [name for name in folders if name not in but]
        remove_left_behind(Path(at))


def sync_file(path: Path) -> None:
    """Sync a file that is written, or a folder, so that the names in it survive a power loss."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


sync_folder = sync_file


def sync_tree(folder: Path, names: Iterable[str] = ("*",)) -> None:
    """Sync the files below a folder whose names fit one of the patterns, and all folders."""
    for name in names:
        for path in folder.rglob(name):
            if path.is_file() and not path.is_symlink():
                sync_file(path)
    for path in (folder, *(one for one in folder.rglob("*") if one.is_dir() and not one.is_symlink())):
        sync_folder(path)
