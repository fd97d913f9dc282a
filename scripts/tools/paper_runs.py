"""Runs NeutronRT's ten models: each is exported, streams changes through `freshet run`, and is checked after it.

Prints the second table of docs/measured/layers.md: by which layer each model runs, and the largest error that `freshet
check` finds at the end of a random stream, relative to the largest absolute value.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.declarations import CommNetConv, PinSAGEConv
from freshet.gnn.model import build_model, save_model
from freshet.gnn.pyg.export import export_model

WIDTH, HIDDEN, ATTRIBUTES, TYPES, EVENTS, VERTICES = 6, 8, 2, 3, 600, 60
FRESHET = [str(Path(sys.executable).with_name("freshet"))]


class Two(nn.Module):
    """Two convs that read attributes or types of edges, with a ReLU between."""

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        """Take what makes a conv of two widths."""
        super().__init__()
        self.first, self.second = make(WIDTH, HIDDEN), make(HIDDEN, HIDDEN)


class Attributed(Two):
    """The convs are handed attributes of edges."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        """Return the rows behind both."""
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Typed(Two):
    """The convs are handed types of edges."""

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        """Return the rows behind both."""
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


class Plain(Two):
    """The convs read the edges alone."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return the rows behind both."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "MoNet": lambda: Attributed(lambda a, b: pyg.GMMConv(a, b, ATTRIBUTES, kernel_size=3)),
    "GCN": lambda: pyg.GCN(WIDTH, HIDDEN, 2),
    "GraphSAGE": lambda: pyg.GraphSAGE(WIDTH, HIDDEN, 2),
    "RGCN": lambda: Typed(lambda a, b: pyg.RGCNConv(a, b, TYPES)),
    "GAT": lambda: pyg.GAT(WIDTH, HIDDEN, 2, heads=2),
    "G-GCN": lambda: Plain(pyg.ResGatedGraphConv),
    "A-GNN": lambda: pyg.Sequential(
        "x, edge_index",
        [
            (nn.Linear(WIDTH, HIDDEN), "x -> x"),
            nn.ReLU(),
            (pyg.AGNNConv(), "x, edge_index -> x"),
            (pyg.AGNNConv(), "x, edge_index -> x"),
        ],
    ),
    "RGAT": lambda: Typed(lambda a, b: pyg.RGATConv(a, b, TYPES, heads=2, concat=False)),
}
WRITTEN: dict[str, Callable[[int, int], Any]] = {
    "CommNet": lambda a, b: CommNetConv(in_channels=a, out_channels=b),
    "PinSAGE": lambda a, b: PinSAGEConv(in_channels=a, out_channels=b, hidden_channels=HIDDEN, edge_weights=True),
}
"""Models whose model.json is written by hand."""


def make(name: str, folder: Path) -> str:
    """Write a paper's model with random weights; returns the types of its convs."""
    if name in MODULES:
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model: Any = export_model(MODULES[name]().eval(), folder)
    else:
        some, of = np.random.default_rng(3), {0: WRITTEN[name](WIDTH, HIDDEN), 2: WRITTEN[name](HIDDEN, HIDDEN)}
        weights = {
            f"layers.{i}.{tensor}": some.standard_normal(shape).astype(np.float32) / 2
            for i, conv in of.items()
            for tensor, shape in conv.tensors().items()
        }
        layers = [of[0].model_dump(), {"type": "relu"}, of[2].model_dump()]
        model = build_model(layers=layers, weights=weights)
        save_model(model, folder)
    convs = [one.conv for layer in model.layers for one in getattr(layer, "convs", ())] or model.layers
    return ", ".join(dict.fromkeys(f"`{layer.type}`" for layer in convs if "conv" in layer.type))


def records(attributed: bool, typed: bool) -> list[dict[str, Any]]:
    """Return random events: vertices and edges that come, go and change."""
    rng, found = random.Random(3), list[dict[str, Any]]()
    for _ in range(EVENTS):
        op = rng.choices(("add_vertex", "set_features", "del_vertex", "add_edge", "del_edge"), (4, 2, 1, 10, 4))[0]
        if op.endswith("edge"):
            one: dict[str, Any] = {"op": op, "src": rng.randrange(VERTICES), "dst": rng.randrange(VERTICES)}
            one |= {"type": str(rng.randrange(TYPES))} if typed else {}
            one |= {"attr": [rng.gauss(0, 1) for _ in range(ATTRIBUTES)]} if attributed and op == "add_edge" else {}
        else:
            one = {"op": op, "id": rng.randrange(VERTICES)}
            one |= {"x": [rng.gauss(0, 1) for _ in range(WIDTH)]} if op != "del_vertex" else {}
        found.append(one)
    return found


def ran(name: str, folder: Path) -> dict[str, Any]:
    """Run a model's job over a random stream, and return what `freshet check` says of it, and the run's summary."""
    events, told = folder / "events.jsonl", make(name, folder / "M")
    given = records(name == "MoNet", name in ("RGCN", "RGAT"))
    events.write_text("".join(json.dumps(one) + "\n" for one in given))
    of = ["--model", folder / "M", "--events", events, "--out", folder / "O"]
    run = _freshet("run", *of, "--runtime", "local", "--parts", 3, "--epoch-events", 20, "--epoch-ms", 0)
    return {"layers": told, **run, **_freshet("check", *of)}


def _freshet(*words: object) -> dict[str, Any]:
    done = subprocess.run([*FRESHET, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        msg = f"freshet {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Print the table in Markdown."""
    print("| model | layers | epochs | rows | largest error |\n|---|---|---|---|---|")
    for name in (*MODULES, *WRITTEN):
        with tempfile.TemporaryDirectory() as folder:
            told = ran(name, Path(folder))
        found = f"{told['epochs']} | {told['rows']} | {told['max_rel_error']:.0e}"
        print(f"| {name} | {told['layers']} | {found} |", flush=True)


if __name__ == "__main__":
    main()
