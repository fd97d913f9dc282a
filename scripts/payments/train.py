"""Trains a GINE and a GAT on the snapshot of scripts/payments/stream.py: `python scripts/payments/train.py FOLDER`.

Both read the attributes of payments, in two convs, and give each account a score: the logit of laundering. They are
exported to FOLDER/gine and FOLDER/gat. A fifth of the accounts is held back, to choose the best pass by. The same seed
gives the same files on the same machine. Needs torch (`make install`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GINEConv

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import export_model
from scripts._training import HELD_BACK, best_pass
from scripts.payments.stream import ATTRIBUTES, FEATURES

HIDDEN, HEADS = 16, 2


class Scorer(nn.Module):
    """Two convs that read attributes of edges, and a score."""

    def __init__(self, first: nn.Module, second: nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.second, self.score = first, second, nn.Linear(width, 1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        """Return the scores, (accounts, 1)."""
        x = F.relu(self.first(x, edge_index, edge_attr))
        x = F.relu(self.second(x, edge_index, edge_attr))
        return self.score(x)


def gine() -> Scorer:
    """Return a GINE of two convs."""

    def conv(width: int) -> GINEConv:
        return GINEConv(
            nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)), edge_dim=ATTRIBUTES
        )

    return Scorer(conv(FEATURES), conv(HIDDEN), HIDDEN)


def gat() -> Scorer:
    """Return a GAT of two convs with two heads each."""

    def conv(width: int) -> GATConv:
        return GATConv(width, HIDDEN // HEADS, heads=HEADS, edge_dim=ATTRIBUTES)

    return Scorer(conv(FEATURES), conv(HIDDEN), HIDDEN)


MODELS = {"gine": gine, "gat": gat}


class TrainingGraph:
    """The snapshot as tensors."""

    def __init__(self, folder: Path, seed: int) -> None:
        accounts, edges = (pq.read_table(folder / f"{name}.parquet") for name in ("vertices", "edges"))
        ids = accounts["id"].to_numpy()
        self.x = torch.from_numpy(_matrix(accounts["x"]))
        self.label = torch.from_numpy(accounts["label"].to_numpy().copy()).float()
        ends = [np.searchsorted(ids, edges[end].to_numpy()) for end in ("src", "dst")]
        self.edge_index = torch.from_numpy(np.stack(ends))
        self.edge_attr = torch.from_numpy(_matrix(edges["attr"]))
        self.held = torch.from_numpy(np.random.default_rng(seed).random(len(ids)) < HELD_BACK)


def _matrix(column: object) -> np.ndarray:
    rows = column.combine_chunks()  # type: ignore[attr-defined]
    return rows.flatten().to_numpy().reshape(len(rows), -1).copy()


def train(name: str, data: TrainingGraph, seed: int, passes: int) -> tuple[Scorer, float]:
    """Return the model that is best on the accounts that are held back, and its average precision there."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    few = data.label[~data.held].mean()
    weight = ((1 - few) / few).sqrt()

    def scores() -> torch.Tensor:
        return model(data.x, data.edge_index, data.edge_attr)[:, 0]

    best = best_pass(name, model, scores, data.label, data.held, passes, weight)
    return model.eval(), best


def main() -> None:
    """Train both, and export them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passes", type=int, default=60, help="over the snapshot (60)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    data = TrainingGraph(options.folder / "snapshot", options.seed)
    for name in options.models:
        began = time.process_time()
        model, held = train(name, data, options.seed, options.passes)
        export_model(model, options.folder / name, edge_features=ATTRIBUTES, overwrite=True)
        told = {"model": name, "held_back": round(held, 4), "cpu_seconds": round(time.process_time() - began, 1)}
        print(orjson.dumps(told).decode(), flush=True)


if __name__ == "__main__":
    main()
