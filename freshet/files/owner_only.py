"""The one mode of all that Freshet writes: for its owner alone, whatever the umask was."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
_MASK = 0o077


def write_for_owner_only() -> None:
    """Have this process, and all that it starts from now on, make files and folders for their owner alone.

    Call it where a process begins: job folders, checkpoints, tails and tables hold the embeddings, the graph, and the
    seed of the hashes.
    """
    os.umask(_MASK)


def close_to_others(folder: Path) -> None:
    """Take a folder that is there from everyone but its owner, with all that an earlier version left in it."""
    with suppress(OSError):  # somebody else's, or of a file system without modes
        if folder.stat().st_mode & _MASK:
            folder.chmod(FOLDER)
