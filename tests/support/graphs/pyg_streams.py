"""Streams with deletions of a model that was exported, held against its module; needs torch."""

from __future__ import annotations

from typing import Any

from freshet.gnn.model import Model
from scripts.tools.pyg_examples import ALLOWED, compared


def assert_streams(module: Any, model: Model, call: str) -> None:
    """The job's rows after each of some epochs are those of the module, called so; see `compared`."""
    off, rows = compared(module, model, call)
    assert rows > 50
    assert off <= ALLOWED
