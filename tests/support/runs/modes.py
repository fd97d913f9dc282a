"""Who may do anything with files: by their modes, and as a second user finds it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.runs.live import paths_below


@contextmanager
def no_umask() -> Iterator[None]:
    """A umask that takes nothing away, in this process and those that it starts."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What others may do anything with, the folder first; there must be something in it."""
    paths = [folder, *paths_below(folder)]
    assert len(paths) > 5
    return [f"{path} {mode:o}" for path in paths if (mode := _mode(path)) & 0o077]


def ours_open_to_others(folder: Path, snapshot: Path) -> list[str]:
    """The same but for links to files of the user's snapshot."""
    inodes = {path.stat().st_ino for path in snapshot.iterdir()}
    return [line for line in open_to_others(folder) if Path(line.rpartition(" ")[0]).stat().st_ino not in inodes]


def is_open(path: Path) -> bool:
    """Return whether others may do anything with it."""
    return bool(_mode(path) & 0o077)


def _mode(path: Path) -> int:
    """The mode of a file or folder; 0 for a link, and for what has just gone: the job or the server runs."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        return 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode)
    return 0


def second_user_reads(folder: Path, top: Path) -> str:
    """The files that another user can open though all folders let him in, from `top` on; only for root to ask."""
    folder.chmod(0o755)  # the files by themselves
    for path in (top, *top.parents):  # so that only Freshet's own modes keep the other out
        if path.stat().st_uid == 0 and path.is_relative_to(top.parents[1]):
            path.chmod(path.stat().st_mode | 0o055)
    look = "import os, sys; os.setgid(65534); os.setuid(65534)\nfor p in sys.argv[1:]:\n try: open(p, 'rb'); print(p)\n"
    look += " except PermissionError: pass"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    done = subprocess.run(
        [sys.executable, "-c", look, *map(str, files)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
