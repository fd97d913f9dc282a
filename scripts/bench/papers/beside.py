"""Freshet's operators beside a recomputation of what is affected, by size of an epoch: for tables of papers."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import orjson
import torch
from torch_geometric.nn import GCNConv

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.export import export_model
from scripts.bench.peer_graph import Graph, Workload
from scripts.bench.peer_systems import Affected, Net, OfFreshet
from scripts.bench.peers import TOLERANCE, Stream
from scripts.bench.throughput import machine

Rates = dict[int, dict[str, float]]


class Beside(NamedTuple):
    """Figures by events an epoch, each of `Stream.rates`; and the share of vertices whose last row was made again.

    error: of Freshet's rows at the end, from PyTorch Geometric's in float64, as a share of the largest value.
    """

    freshet: Rates
    recompute: Rates
    affected: dict[int, float]
    error: float


def measured(
    workload: Workload,
    net: Net,
    sizes: Sequence[int],
    seconds: float,
    recomputed: Sequence[int] = (),
    model: Model | KindsModel | None = None,
) -> Beside:
    """Run both on the workload's stream, size after size; `recomputed`: those of the recomputation, else the first.

    `model`: the net, where it has been exported before.
    """
    ours = OfFreshet(workload, model or export_of(net, workload))
    stream, freshet, affected = Stream(ours, len(workload.op)), Rates(), dict[int, float]()
    stream.epoch(sizes[0])  # compiles and warms up
    for size in sizes:
        began, touched = stream.at, ours.engine.touched[-1]
        freshet[size] = stream.rates(size, seconds, _most(workload, sizes))
        epochs = (stream.at - began) / size
        affected[size] = (ours.engine.touched[-1] - touched) / epochs / workload.n
    error = error_of(ours.rows(), workload, net, stream.at)
    del ours, stream.system
    theirs = Stream(Affected(workload, net), len(workload.op))
    theirs.epoch(sizes[-1])
    recompute = {size: theirs.rates(size, seconds, _most(workload, sizes)) for size in recomputed or sizes[:1]}
    return Beside(freshet, recompute, affected, error)


def export_of(net: Net, workload: Workload) -> Model | KindsModel:
    """Return the model of a workload."""
    width = 0 if workload.attr is None else workload.attr.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        return export_model(net, folder, features=workload.d, edge_features=width or None)


def _most(workload: Workload, sizes: Sequence[int]) -> int:
    """Return how many events of the stream each size may take."""
    return (len(workload.op) - sizes[0]) // (len(sizes) + 1)


def given_of(graph: Graph) -> list[torch.Tensor]:
    """Return what a model is called with: rows, edges, and their weights, attributes or types if any."""
    workload = graph.w
    edges = np.flatnonzero(graph.present)
    index = torch.from_numpy(np.stack([workload.src[edges], workload.dst[edges]]))
    return [torch.from_numpy(graph.x), index, *workload.values_of(edges)]


def error_of(rows: np.ndarray, workload: Workload, net: Net, end: int) -> float:
    """Return how far rows are from PyTorch Geometric's in float64 behind those events, of the largest value."""
    graph = Graph(workload)
    graph.apply(0, end)
    net.double()
    if any(isinstance(conv, GCNConv) for conv in net.convs):  # which reads degrees of sources: of all edges
        given = [one.double() if one.is_floating_point() else one for one in given_of(graph)]
        want = net(*given).numpy()
    else:
        want = Affected(workload, net, graph, np.float64).rows()
    net.float()
    there = np.flatnonzero(graph.alive)
    return float(np.abs(rows[there] - want[there]).max() / np.abs(want[there]).max())


def a_second(found: dict[str, float]) -> float:
    """Return the events that are taken in a second of the processor: what else the machine does is not in it."""
    return 1e6 / found["cpu_us"]


def rate(value: float) -> str:
    """Return events a second as the papers print them."""
    return f"{value / 1e3:,.1f} K" if value >= 1e3 else f"{value:,.0f}"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def finish(graphs: dict[str, dict[str, Any]]) -> NoReturn:
    """Print all figures as a JSON line, and exit: with 1 if rows are off."""
    worst = max(one["error"] for models in graphs.values() for one in models.values())
    option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    print(orjson.dumps({"machine": machine(), "graphs": graphs, "max_error": worst}, option=option).decode())
    sys.exit(f"off by {worst:.1e}" if worst > TOLERANCE else 0)
