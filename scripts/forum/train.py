"""Trains a SAGE of to_hetero on the snapshot of scripts/forum/stream.py: `python scripts/forum/train.py FOLDER`.

Each user gets a score: the logit that it answers a question within ninety days. The model is exported to FOLDER/sage. A
fifth of the users is held back, to choose the best pass by. The same seed gives the same files on the same machine.
Needs torch (`make install`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import export_model
from scripts._training import HELD_BACK, best_pass
from scripts.forum.stream import ACTIVE, MONTH, TYPES, USER, WIDTHS

HIDDEN = 32
GIVEN = [*((USER, name, USER) for name in TYPES), (USER, ACTIVE, MONTH)]
RELATIONS = [*GIVEN, *((target, f"rev_{name}", source) for source, name, target in GIVEN)]


class Scorer(nn.Module):
    """Two SAGE convs, the first of which counts, and a score."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), HIDDEN, aggr="sum"), pyg.SAGEConv((-1, -1), HIDDEN)
        self.norm, self.score = nn.LayerNorm(HIDDEN), pyg.Linear(HIDDEN, 1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return the scores of a kind, (vertices, 1)."""
        x = F.relu(self.norm(self.first(x, edge_index)))
        x = F.relu(self.second(x, edge_index))
        return self.score(x)


class TrainingGraph:
    """The snapshot as tensors, by kind and relation."""

    def __init__(self, folder: Path, seed: int) -> None:
        vertices, edges = (pq.read_table(folder / "snapshot" / f"{name}.parquet") for name in ("vertices", "edges"))
        self.x, ids = {}, {}
        for kind, width in WIDTHS.items():
            of = vertices.filter(pc.equal(vertices["kind"], kind))
            ids[kind] = of["id"].to_numpy()
            rows = of["x"].combine_chunks().flatten().to_numpy().astype(np.float32)
            self.x[kind] = torch.from_numpy(rows.reshape(len(of), width))
        self.edge_index = {}
        for source, name, target in GIVEN:
            of = edges.filter(pc.equal(edges["type"], name))
            ends = [_places(ids[kind], of[end].to_numpy()) for kind, end in ((source, "src"), (target, "dst"))]
            index = torch.from_numpy(np.stack(ends))
            self.edge_index[source, name, target] = index
            self.edge_index[target, f"rev_{name}", source] = index.flip(0)
        truth = pq.read_table(folder / "truth.parquet")["answers_2014"].to_numpy(zero_copy_only=False)
        self.label = torch.from_numpy(truth[ids[USER]]).float()
        self.held = torch.from_numpy(np.random.default_rng(seed).random(len(self.label)) < HELD_BACK)


def _places(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The places of ids among those of a kind."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids, wanted, sorter=order)]


def scorer() -> nn.Module:
    """Return the model, whose sizes are known after its first call."""
    return pyg.to_hetero(Scorer(), (list(WIDTHS), RELATIONS))


def train(data: TrainingGraph, seed: int, passes: int) -> tuple[nn.Module, float]:
    """Return the model that is best on the users who are held back, and its average precision there."""
    torch.manual_seed(seed)
    model = scorer()
    with torch.no_grad():
        model(data.x, data.edge_index)
    best = best_pass("sage", model, lambda: model(data.x, data.edge_index)[USER][:, 0], data.label, data.held, passes)
    return model.eval(), best


def main() -> None:
    """Train and export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passes", type=int, default=60, help="over the snapshot (60)")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    data, began = TrainingGraph(options.folder, options.seed), time.process_time()
    model, held = train(data, options.seed, options.passes)
    export_model(model, options.folder / "sage", output=USER, overwrite=True)
    told = {"model": "sage", "held_back": round(held, 4), "cpu_seconds": round(time.process_time() - began, 1)}
    print(orjson.dumps(told).decode(), flush=True)


if __name__ == "__main__":
    main()
