"""Operations of a traced forward: their names, what they read, and the lines in the user's code that errors name."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from freshet.gnn.pyg.functions import known_name
from freshet.gnn.pyg.refusals import EDGE_FUNCTIONS

_MADE_BY_PYG = re.compile(r"_(propagate|edge_updater)(_\w+)?\.py$")  # a conv's own propagate, from a template
_LIBRARIES = ("torch", "torch_geometric", "freshet", "importlib", "inspect", "contextlib")


RUNS_AGAIN = set[CodeType]()
"""Code of this package that runs operations of the user's forward again, and passes for the user's."""


def is_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of torch, PyG or this package."""
    if frame.f_code in RUNS_AGAIN:
        return False
    module = str(frame.f_globals.get("__name__", ""))
    return module.split(".")[0] in _LIBRARIES or _MADE_BY_PYG.search(frame.f_code.co_filename) is not None


def place_here() -> str:
    """Return the place of the innermost frame that calls and is no library's, as FILE:LINE; empty if none.

    Inside `standing_at` that of the operation which is run again.
    """
    return _AT.get() or where(frame for frame, _ in traceback.walk_stack(sys._getframe(1)))[0]


_AT: ContextVar[str] = ContextVar("place of the operation that is run again", default="")


@contextmanager
def standing_at(place: str) -> Iterator[None]:
    """Run an operation of a traced forward that stands at that place."""
    before = _AT.set(place)
    try:
        yield
    finally:
        _AT.reset(before)


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


def name_of(node: Any, prefix: str) -> str:
    """The name of an operation of the module `prefix`."""
    where = node.target if isinstance(node.target, str) and node.op != "call_method" else node.name
    return f"{prefix}.{where.removeprefix('inner.')}".removeprefix(".")


def place_of(node: Any, prefix: str) -> str:
    """The name of an operation of the module `prefix`, and the line where it stands."""
    name, line = name_of(node, prefix), node.meta.get("line")
    return f"{name} ({line})" if line else name


def label_of(node: Any) -> str:
    """Return the name of an operation in the module, e.g. relu_."""
    return node.target if isinstance(node.target, str) else known_name(node.target)


def nodes_in(given: Any) -> Iterator[Any]:
    """The nodes in arguments, in their order, each as often as it is there."""
    if isinstance(given, list | tuple):
        for one in given:
            yield from nodes_in(one)
    elif isinstance(given, dict):
        yield from nodes_in(list(given.values()))
    elif hasattr(given, "all_input_nodes"):
        yield given


def keys_read(nodes: Any) -> Iterator[Any]:
    """Yield the keys of kinds and relations that what to_hetero has made reads of its dicts, in their order."""
    for node in nodes:
        key = node.args[1] if node.op == "call_method" and node.target == "get" and len(node.args) > 1 else None
        if isinstance(key, str) or (isinstance(key, tuple) and len(key) == 3):
            yield key


def is_size(node: Any) -> bool:
    """Return whether an operation gives a size of what it reads, as x.size(0) or x.shape[0] do, or the type of it."""
    label = label_of(node)
    if label == "getitem":
        return is_size(node.args[0])
    if label == "mul":  # several times a shape, as 2 * x.shape[:1]
        of = [one for one in node.args if type(one) is not int]
        return len(of) == 1 < len(node.args) and _is_shape(of[0])
    return label == "size" or (label == "getattr" and node.args[1] in ("shape", "dtype", "device"))


def _is_shape(node: Any) -> bool:
    """Return whether an operation gives a shape, or some of its sizes in a tuple."""
    if label_of(node) == "getitem":
        return isinstance(node.args[1], slice) and _is_shape(node.args[0])
    is_shape = label_of(node) == "getattr" and node.args[1] == "shape"
    return is_shape or (label_of(node) == "size" and len(node.args) + len(node.kwargs) == 1)
