"""The folder of what can be made again, shared by all runs of a user: compiled kernels, fetched jars."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

CACHE_VARIABLE = "FRESHET_CACHE"


def user_cache() -> Path:
    """`$FRESHET_CACHE`, else Freshet's folder in the user's cache; it need not exist.

    Where the user has no home or can't write to it, as in a container with any user id, it is `temporary_cache`.
    """
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user id that the machine has no entry for
        base = None
    if base is not None and can_be_written(base / "freshet"):
        return base / "freshet"
    return temporary_cache() or (base or Path("/")) / "freshet"


def temporary_cache() -> Path | None:
    """This user's folder among the temporary ones; None where it can't be made, or others may write to it.

    Kernels are machine code: nobody else may have put some there.
    """
    try:
        path = Path(tempfile.gettempdir()) / f"freshet-{os.geteuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return path if own else None


def can_be_written(folder: Path) -> bool:
    """Return whether this user can write to the folder or create it; nothing is created."""
    for path in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(path):
            return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    return False


def make_cache(folder: Path) -> None:
    """Make a folder of a cache, as readable as the one that it lies in; see `make_readable`.

    Raises: OSError where it can't be made.
    """
    if not folder.is_dir():
        make_cache(folder.parent)
        folder.mkdir(exist_ok=True)
        make_readable(folder)


def make_readable(path: Path) -> None:
    """Let all who can read the folder of a file, or of a folder, read it as well, whatever the umask is.

    What a job writes is its owner's alone, and an installation's kernels are for all its users.
    """
    mode = 0o700 | path.parent.stat().st_mode & 0o055
    path.chmod(mode if path.is_dir() else mode & 0o666)
