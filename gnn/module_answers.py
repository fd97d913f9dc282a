"""Answers of the module behind a model at its export, kept beside the files of the model: numbers, and no code.

Where messages of one's own were read, or written once more, no other implementation can judge the result: `freshet
check` holds the full pass of the model against these answers of the module itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from freshet.gnn.declarations import Conv, MessageConv, OwnLayer
from freshet.gnn.kinds.declarations import HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import ANSWERS_FILE, Model, ModelError
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues


class ModuleAnswer(NamedTuple):
    """A graph and the rows that the module made of it, for each returned kind; one without kinds has one of each.

    Shapes: rows, for each returned kind (n, width) float32 or float64
    """

    graph: KindsGraph
    rows: list[np.ndarray]


def tensors_of(answers: Sequence[ModuleAnswer]) -> dict[str, np.ndarray]:
    """Return the tensors of the file."""
    tensors: dict[str, np.ndarray] = {}
    for k, (graph, rows) in enumerate(answers):
        tensors |= {f"{k}.x.{i}": of for i, of in enumerate(graph.x)}
        for j, edges in enumerate(graph.edges):
            parts = {"src": edges.src, "dst": edges.dst, "weight": edges.values.weight}
            parts |= {} if edges.values.attr is None else {"attr": edges.values.attr}
            tensors |= {f"{k}.edges.{j}.{name}": of for name, of in parts.items()}
        tensors |= {f"{k}.rows.{i}": of for i, of in enumerate(rows)}
    return {name: np.ascontiguousarray(of) for name, of in tensors.items()}


def read(folder: Path) -> list[ModuleAnswer]:
    """Return the answers in a model folder; none where it has no such file.

    Raises: ModelError for a file that is none, or damaged.
    """
    path = folder / ANSWERS_FILE
    if not path.exists():
        return []
    try:
        tensors = load_file(path)
        return [_answer(tensors, k) for k in range(1 + max(int(name.split(".")[0]) for name in tensors))]
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        msg = f"{path} has no answers of a module ({type(error).__name__}: {error}); export the model once more"
        raise ModelError(msg) from None


def _answer(tensors: dict[str, np.ndarray], k: int) -> ModuleAnswer:
    edges = []
    for j in range(_count(tensors, f"{k}.edges")):
        src, dst, weight = (tensors[f"{k}.edges.{j}.{name}"] for name in ("src", "dst", "weight"))
        values = EdgeValues(len(src), {WEIGHT: weight}, tensors.get(f"{k}.edges.{j}.attr"))
        edges.append(RelationEdges(src, dst, values))
    x, rows = ([tensors[f"{k}.{of}.{i}"] for i in range(_count(tensors, f"{k}.{of}"))] for of in ("x", "rows"))
    return ModuleAnswer(KindsGraph(x, edges), rows)


def _count(tensors: dict[str, np.ndarray], prefix: str) -> int:
    size = len(prefix) + 1
    return len({name[size:].split(".")[0] for name in tensors if name.startswith(f"{prefix}.")})


def has_own_messages(model: Model | KindsModel) -> bool:
    """Return whether no other implementation has one of the convs: a program, or functions of a user."""
    return any(isinstance(one, MessageConv | OwnLayer) for one in convs_of(model))


def convs_of(model: Model | KindsModel) -> list[Conv]:
    """Return the convs of a model, those of relations one by one."""
    if isinstance(model, KindsModel):
        return [one.conv for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs]
    return [layer for layer in model.layers if isinstance(layer, Conv)]
