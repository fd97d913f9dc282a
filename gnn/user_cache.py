"""The folder of what can be made again, shared by all runs of a user: compiled kernels, fetched jars."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "FRESHET_CACHE"


def user_cache() -> Path:
    """`$FRESHET_CACHE`, else Freshet's folder in the user's cache; it need not exist."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "freshet"
