"""The shared data sets: found through FRESHET_DATA or beside the checkout, and tests skipped where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE_CHECKOUT = Path(__file__).resolve().parents[4] / "shared" / "data"


def data_set(name: str) -> Path:
    """Return the folder of a data set, or skip the test that asks for it."""
    folder = Path(os.environ.get("FRESHET_DATA") or BESIDE_CHECKOUT) / name
    if not folder.is_dir():
        pytest.skip(f"no data set {name!r}: set FRESHET_DATA to the folder of the data sets")
    return folder
