"""Counts PyG's convs that a HeteroConv may have in a relation within one kind, and between two: taken or refused.

    .venv/bin/python scripts/tools/pyg_relations.py

Each class of pyg_coverage.py is exported with its defaults, as the one conv of a HeteroConv. The export compares it
with the module. Where PyG itself cannot run the conv there, it is not counted.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn
from torch_geometric import nn as pyg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.steps import takes_attributes
from scripts.tools.pyg_calls import BETWEEN, Related, RelatedAttributed
from scripts.tools.pyg_coverage import CALLS

WITHIN = ("a", "to", "a")
_EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 3]])
_WIDTH = 4


def outcome(name: str, relation: tuple[str, str, str]) -> str | None:
    """Return why a conv is refused in a relation, empty if it is taken; None where PyG does not run it there."""
    needed, between = CALLS[name][0], relation == BETWEEN
    if between and needed.startswith(f"{_WIDTH}"):
        needed = f"({_WIDTH}, {_WIDTH}){needed[1:]}"
    kinds = ["a", "b"] if between else ["a"]
    try:
        torch.manual_seed(1)
        conv = eval(f"{name}({needed})", {**vars(pyg), "nn": nn, "torch": torch})
        attributed = takes_attributes(conv)
        module = (RelatedAttributed if attributed else Related)(conv, relation).eval()
        width = getattr(conv, "edge_dim", None) or getattr(conv, "dim", None) or 2
        rows, edges = {kind: torch.randn(5, _WIDTH) for kind in kinds}, {relation: _EDGES}
        more = [{relation: torch.randn(_EDGES.shape[1], int(width))}] if attributed else []
        with torch.no_grad():
            module(rows, edges, *more)
    except Exception:  # PyG's own convs fail in many ways
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            export_model(module, folder, metadata=(kinds, [relation]), features=dict.fromkeys(kinds, _WIDTH))
        except ExportError as error:
            return str(error).split(": ", 1)[-1].split(". Nearest")[0]
    return ""


def main() -> None:
    """Print the counts and each refusal."""
    warnings.simplefilter("ignore")
    for relation, where in ((WITHIN, "within one kind"), (BETWEEN, "between two kinds")):
        found = {name: why for name in CALLS if (why := outcome(name, relation)) is not None}
        taken = [name for name, why in found.items() if not why]
        print(f"{where}: {len(taken)} of {len(found)} convs that PyG runs there are taken: {', '.join(taken)}")
        print("refused:", *(f"{name}: {why}" for name, why in found.items() if why), sep="\n  ")


if __name__ == "__main__":
    main()
