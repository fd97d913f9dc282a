"""Seconds, bytes and memory of training passes by ranks that share a graph, beside one process.

    python scripts/bench/ranks.py edges.parquet --ranks 2 4 --convs sage_conv gat_conv

The file has columns `src` and `dst`, numbers of vertices. A model of two layers reads random rows; a pass is the rows
of all vertices, and the gradients of a loss on them. Ranks have their vertices by METIS. Gradients are compared with
those of one process. Prints a table, and one JSON line. Memory is the largest resident size of a process, beyond what
it has before it reads its graph.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch_geometric.data import Data

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import freshet
from freshet.gnn.torch_modules.loading import module_of
from freshet.job.training.ranks.launch import run_on_ranks
from freshet.job.training.ranks.rank_module import RankModule
from freshet.job.training.ranks.shards import Shard, shards_of
from freshet.job.training.ranks.whole import owners_of, whole_graph
from tests.support.graphs.models import conv, make_model


def loss_of(rows: Tensor) -> Tensor:
    """Return the loss of some vertices."""
    return rows.square().sum()


def passes(of: Callable[[], Tensor], zero: Callable[[], None], count: int) -> float:
    """Run passes with their gradients; returns the median of their seconds, without the first."""
    seconds = []
    for _ in range(count + 1):
        zero()
        began = time.perf_counter()
        of()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def found(seconds: float, module: torch.nn.Module, folder: Path, name: str, before_mb: float, **more: Any) -> None:
    """Write what a process has measured, and its gradients."""
    gradients = {key: one.grad for key, one in module.named_parameters() if one.grad is not None}
    save_file(gradients, folder / f"{name}.safetensors")
    line = {"seconds": seconds, "peak_mb": round(resident_mb() - before_mb), **more}
    (folder / f"{name}.json").write_bytes(orjson.dumps(line))


def resident_mb() -> float:
    """Return the largest resident size of this process so far."""
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def alone(rank: int, folder: str, count: int) -> None:
    """Measure passes of one process, which has the whole graph."""
    before = resident_mb()
    tensors = load_file(Path(folder) / "graph.safetensors")
    module = freshet.to_torch(Path(folder) / "M")

    def one() -> Tensor:
        loss = loss_of(module(tensors["x"], tensors["edge_index"]))
        loss.backward()
        return loss

    found(passes(one, module.zero_grad, count), module, Path(folder), f"alone-{rank}", before, sent=0)


def shared(rank: int, folder: str, count: int) -> None:
    """Measure passes of one rank of several."""
    before = resident_mb()
    shard = Shard.load(Path(folder) / f"shard-{rank}")
    module = RankModule(freshet.to_torch(Path(folder) / "M"), shard)

    def one() -> Tensor:
        loss = loss_of(module()[""])
        loss.backward()
        module.sum_gradients()
        return loss

    seconds = passes(one, module.zero_grad, count)
    sent = (sum(halo.sent for halo in module.halos) + module.gradient_bytes) // (count + 1)
    own, far = len(shard.numbers[0]), sum(shard.halos[0].takes)
    found(seconds, module.module, Path(folder), f"shared-{rank}", before, sent=sent, own=own, far=far)


def measured(data: Data, kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure a conv by one process, then by ranks."""
    shown: list[dict[str, Any]] = []
    model = make_model(1, [conv(kind, options.width, 64), {"type": "relu"}, conv(kind, 64, 40)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module_of(model).save(folder / "M")
        save_file({"x": data.x, "edge_index": data.edge_index}, folder / "graph.safetensors")
        run_on_ranks(alone, 1, (name, options.passes))
        expected = load_file(folder / "alone-0.safetensors")
        shown.append({"conv": kind, "ranks": "one process", **orjson.loads((folder / "alone-0.json").read_bytes())})
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            module_of(model).save(folder / "M")
            graph = whole_graph(data, model)
            owners = owners_of(graph, ranks)
            for shard in shards_of(graph, owners, ranks):
                shard.save(folder / f"shard-{shard.rank}")
            run_on_ranks(shared, ranks, (name, options.passes))
            parts = [orjson.loads((folder / f"shared-{rank}.json").read_bytes()) for rank in range(ranks)]
            gradients = load_file(folder / "shared-0.safetensors")
        largest = max(float(one.abs().max()) for one in expected.values())
        off = max(float((one - gradients[key]).abs().max()) for key, one in expected.items()) / largest
        src, dst = data.edge_index.numpy()
        cut = float(np.mean(owners[0][src] != owners[0][dst]))
        most = {key: max(part[key] for part in parts) for key in ("seconds", "peak_mb", "own", "far")}
        sent = sum(part["sent"] for part in parts)
        shown.append({"conv": kind, "ranks": str(ranks), **most, "sent": sent, "cut": round(cut, 3), "off": off})
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edges", type=Path, help="a Parquet file with src and dst")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--convs", nargs="+", default=["sage_conv", "gat_conv"])
    parser.add_argument("--width", type=int, default=128, help="of the rows that the model reads")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    table = pq.read_table(options.edges, columns=["src", "dst"])
    edge_index = torch.from_numpy(np.stack([table["src"].to_numpy(), table["dst"].to_numpy()]))
    vertices = int(edge_index.max()) + 1
    x = torch.randn(vertices, options.width, generator=torch.Generator().manual_seed(1))
    data = Data(x=x, edge_index=edge_index)
    print(f"{vertices:,} vertices, {edge_index.shape[1]:,} edges, {os.cpu_count()} cores")
    print("| conv | ranks | s a pass | MB sent a pass | MB of the largest process | edges between ranks | off |")
    print("|---|---|---|---|---|---|---|")
    every = []
    for kind in options.convs:
        for one in measured(data, kind, options):
            every.append(one)
            cut, off = (f"{one['cut']:.1%}", f"{one['off']:.0e}") if "cut" in one else ("", "")
            sent = f"{one['sent'] / 1e6:,.1f}" if one["sent"] else "0"
            print(f"| {kind} | {one['ranks']} | {one['seconds']:.2f} | {sent} | {one['peak_mb']:,} | {cut} | {off} |")
    load = [round(one, 1) for one in os.getloadavg()]
    print(orjson.dumps({"vertices": vertices, "edges": edge_index.shape[1], "found": every, "load": load}).decode())
    if any(one.get("off", 0) > 1e-5 for one in every):
        sys.exit(1)


if __name__ == "__main__":
    main()
