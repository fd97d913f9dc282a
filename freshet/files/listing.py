"""Paths in a folder that others may change while it is looked at."""

from __future__ import annotations

from glob import glob
from pathlib import Path


def paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return what is in a folder and fits a pattern of `glob`, in no particular order.

    A folder below it that is removed meanwhile has nothing in it: `Path.glob` raises FileNotFoundError then.
    """
    return [folder / name for name in glob(pattern, root_dir=folder, recursive=True)]


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes; None where it has been removed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
