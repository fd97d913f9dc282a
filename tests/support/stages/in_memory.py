"""Folders in memory, for tests that write thousands of tiny files and ask only what is in them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED_MEMORY = "/dev/shm"


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Yield a folder that goes at the end; on disk where the machine has no file system in memory."""
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="freshet-tests-", dir=place) as name:
        yield Path(name)
