"""Trains the model that a job serves further, on the graph that the job has now: ten lines of PyTorch.

    python retrain.py O MODEL LABELS NEW_MODEL

O is the output folder of a `freshet run`, MODEL its model folder, with a head for the classes of the labels. LABELS is
a Parquet file with the columns `id` and `label`. `freshet train` is the same as a command, for graphs of any kind.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

import freshet


def retrain(job: str, model: str, labels: str, out: str, passes: int = 100) -> tuple[float, float]:
    """Write the model if it is better than the old one by a percent; return the accuracy of both on other labels."""
    data = freshet.labels(freshet.LiveGraph(job).at(), labels)
    old, new = freshet.to_torch(model), freshet.to_torch(model)

    def logits(module: torch.nn.Module) -> torch.Tensor:
        return module.logits(module(data.x, data.edge_index, data.edge_weight))

    optimizer = torch.optim.Adam(new.parameters(), lr=0.01)
    for _ in range(passes):
        optimizer.zero_grad()
        F.cross_entropy(logits(new)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    with torch.no_grad():
        right = [logits(one).argmax(dim=1) == data.y for one in (old, new)]
    before, after = (float(one[data.val_mask].double().mean()) for one in right)
    if after >= before + 0.01:
        new.save(out)
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("job", "model", "labels", "out"):
        parser.add_argument(name)
    given = parser.parse_args()
    print("accuracy: {:.4f} before, {:.4f} after".format(*retrain(given.job, given.model, given.labels, given.out)))
