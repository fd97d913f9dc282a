"""Places in the user's code: the lines that errors and refusals name."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from freshet.gnn.pyg.refusals import EDGE_FUNCTIONS

_MADE_BY_PYG = re.compile(r"_(propagate|edge_updater)(_\w+)?\.py$")  # a conv's own propagate, from a template
_LIBRARIES = ("torch", "torch_geometric", "freshet", "importlib", "inspect", "contextlib")


def is_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of torch, PyG or this package."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.split(".")[0] in _LIBRARIES or _MADE_BY_PYG.search(frame.f_code.co_filename) is not None


def place_here() -> str:
    """Return the place of the innermost frame that calls and is no library's, as FILE:LINE; empty if none."""
    return where(frame for frame, _ in traceback.walk_stack(sys._getframe(1)))[0]


def blamed(error: BaseException) -> tuple[str, str]:
    """Return where an error comes from, and in which function of PyG's: FILE:LINE and its name, each empty if none."""
    return where(frame for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))))


def where(frames: Iterable[FrameType]) -> tuple[str, str]:
    """Return the place of the innermost frame that is no library's, and the function of edges that it calls."""
    inside = ""
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if not is_library(frame) and module.split(".")[0] != "numpy":
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", inside
        if module.startswith("torch_geometric.") and frame.f_code.co_name in EDGE_FUNCTIONS:
            inside = frame.f_code.co_name
    return "", inside
