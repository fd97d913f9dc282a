"""Makes the inputs of `make demo`: `python scripts/cora/train.py` writes tests/data/cora/graph.npz and model/.

Reads the Cora data set from FRESHET_DATA, or shared/data beside the checkout; holds back a fifth of the papers (none of
the training split), trains a GraphSAGE of two layers on the rest, the snapshot, and exports it. The same seed gives the
same files on the same machine. Needs torch (`make install`).
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import export_model
from scripts.cora.graph import FOLDER, SPLITS, WORDS, Cora, save

BESIDE_CHECKOUT = Path(__file__).resolve().parents[3] / "shared" / "data"
HELD_BACK, HIDDEN, CLASSES = 0.2, 16, 7
DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 0.5, 0.01, 5e-3


def read_data_set(folder: Path, rng: np.random.Generator) -> Cora:
    """The data set, and which of its papers the snapshot knows."""
    nodes = pq.read_table(folder / "nodes.parquet")
    split = np.array([SPLITS.index(name) for name in nodes["split"].to_pylist()])
    features = pq.read_table(folder / "features.parquet")["indices"].combine_chunks()
    arcs = pq.read_table(folder / "edges.parquet")
    edges = np.stack([arcs["src"].to_numpy(), arcs["dst"].to_numpy()], axis=1)
    candidates = np.flatnonzero(split != SPLITS.index("train"))
    known = np.ones(len(split), bool)
    known[rng.permutation(candidates)[: round(HELD_BACK * len(split))]] = False
    return Cora(
        edges=edges[edges[:, 0] < edges[:, 1]],
        words=features.flatten().to_numpy(),
        offsets=features.offsets.to_numpy(),
        label=nodes["label"].to_numpy(),
        split=split,
        known=known,
    )


def train(graph: Cora, seed: int, epochs: int) -> GraphSAGE:
    """The model that is best on the snapshot's papers of the validation split."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # one order of summation: the same weights each time
    model = GraphSAGE(WORDS, HIDDEN, num_layers=2, out_channels=CLASSES, dropout=DROPOUT, aggr="mean")
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    # Papers that are held back keep their rows but have no edges: no message reaches or leaves them.
    x, label, arcs = torch.from_numpy(graph.features()), torch.from_numpy(graph.label), both_ways(graph.known_edges())
    trained, watched = (torch.from_numpy(graph.in_split(name) & graph.known) for name in ("train", "val"))
    best, kept = -1.0, copy.deepcopy(model.state_dict())
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, arcs)[trained], label[trained])
        loss.backward()
        optimizer.step()
        score = accuracy(model, x, arcs, label, watched)
        if score > best:
            best, kept = score, copy.deepcopy(model.state_dict())
            print(f"pass {epoch:3}  loss {loss.item():.3f}  validation {score:.3f}", flush=True)
    model.load_state_dict(kept)
    return model.eval()


def both_ways(edges: np.ndarray) -> torch.Tensor:
    """The arcs of undirected edges, (2, 2e)."""
    return torch.from_numpy(np.concatenate([edges, edges[:, ::-1]]).T.copy())


@torch.no_grad()
def accuracy(model: GraphSAGE, x: torch.Tensor, arcs: torch.Tensor, label: torch.Tensor, asked: torch.Tensor) -> float:
    """Share of the asked papers whose subject the model finds."""
    right = model.eval()(x, arcs).argmax(dim=1) == label
    return right[asked].float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FRESHET_DATA") or BESIDE_CHECKOUT) / "cora")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=120, help="passes over the snapshot")
    options = parser.parse_args()
    graph = read_data_set(options.data, np.random.default_rng(options.seed))
    save(graph, options.out)
    model = train(graph, options.seed, options.epochs)
    export_model(model, options.out / "model", overwrite=True)
    x, label, test = torch.from_numpy(graph.features()), torch.from_numpy(graph.label), graph.in_split("test")
    for name, edges in (("snapshot", graph.known_edges()), ("whole graph", graph.edges)):
        arcs, known = both_ways(edges), torch.from_numpy(test & graph.known)
        score = accuracy(model, x, arcs, label, known)
        print(f"{name}: {len(edges):,} edges; test papers of the snapshot: {score:.3f}")
    whole = accuracy(model, x, both_ways(graph.edges), label, torch.from_numpy(test))
    print(f"whole graph, all test papers: {whole:.3f}")


if __name__ == "__main__":
    main()
