"""What lies in folders that running jobs, servers and brokers change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(folder: Path) -> Iterator[Path]:
    """All folders and files below; a folder that goes meanwhile is empty (`Path.rglob` raises FileNotFoundError)."""
    for at, folders, files in os.walk(folder):
        yield from (Path(at) / name for name in (*folders, *files))
