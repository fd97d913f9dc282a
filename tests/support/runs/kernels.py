"""A cache of kernels of one's own, so that a test sees what is compiled into it."""

from __future__ import annotations

import shutil
from pathlib import Path

from freshet.kernels import compiled


def copy_of_cache(folder: Path) -> Path:
    """What is compiled for these sources, copied to a new folder, which serves as `NUMBA_CACHE_DIR`."""
    folder.mkdir()
    for path in compiled.kernel_modules():
        kept = compiled.cache_folder(str(path))
        assert kept is not None, path
        shutil.copytree(kept, folder / kept.name, ignore=shutil.ignore_patterns("*.tmp.*"))  # another test's
    stamp = compiled.ready_stamps().own
    assert stamp is not None
    shutil.copy(stamp, folder)
    return folder


def some_of_cache(every: Path, folder: Path, *names: str) -> None:
    """Copy the kernels of these names from a cache to a new folder."""
    for index in (index for name in names for index in every.glob(f"*/*.{name}-*.nbi")):
        kept = folder / index.parent.name
        kept.mkdir(parents=True, exist_ok=True)
        for file in index.parent.glob(f"{index.stem}.*"):
            shutil.copy(file, kept)


def kernels_in(folder: Path) -> set[str]:
    """The compiled kernels, one file for each and the types that it is called with."""
    return {file.relative_to(folder).as_posix() for file in folder.glob("*/*.nbc")}
