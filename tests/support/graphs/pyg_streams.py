"""Streams with deletions of a model that was exported, held against its module; needs torch."""

from __future__ import annotations

from typing import Any

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from scripts.tools.pyg_example_kinds import compared as compared_by_kind
from scripts.tools.pyg_examples import ALLOWED, PARTS, WIDTH, compared


def assert_streams(module: Any, model: Model | KindsModel, call: str, parts: int = PARTS) -> None:
    """The job's rows after each of some epochs are those of the module, called so; see `compared`.

    `parts`: of a job without kinds; the parts of others are drawn.
    """
    if isinstance(model, KindsModel):  # of one kind
        off, rows = compared_by_kind(module, model, call, (["vertex"], []), {"vertex": WIDTH})
    else:
        off, rows = compared(module, model, call, parts)
    assert rows > 50
    assert off <= ALLOWED
