"""Costs of a change by layer: the engine alone, beside peers that have the layer, on one stream.

    .venv/bin/python scripts/bench/layers.py --peers FOLDER [--layers max gat] [--epochs 1000 100]
    .venv/bin/python scripts/bench/layers.py --peers FOLDER --hub 10000 [--layers max min gat]

The cores of one part run in one thread, arrays in and nothing written, in the same process and on the same events as
the peers (a folder with graphs.py, recompute.py and ripple.py): 169,343 vertices, 936,000 edges at first, 128 features,
two layers of 128 and 40 channels; 60% new edges, 20% deleted ones, 20% new features. Figures are of processor time.
Results are compared with a full pass in float64; the last line is JSON. --hub: a vertex's in-edges, one less an epoch.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.model import Model, build_model
from freshet.kernels.blas import use_one_thread
from freshet.schema import EdgeValues, Graph
from scripts.bench.engine import Engine
from scripts.bench.layer_work import Watch, works_table
from scripts.bench.recomputed import Recomputed
from scripts.bench.throughput import machine
from tests.support import oracle

Kind = dict[str, Any]
EDGE_WIDTH = 8
LAYERS: dict[str, Kind] = {
    "sum": {"type": "graph_conv", "edge_weights": False},
    "mean": {"type": "graph_conv", "edge_weights": False, "aggr": "mean"},
    "max": {"type": "graph_conv", "edge_weights": False, "aggr": "max"},
    "min": {"type": "graph_conv", "edge_weights": False, "aggr": "min"},
    "mean+max": {"type": "sage_conv", "aggr": ["mean", "max"]},
    "gcn": {"type": "gcn_conv", "edge_weights": False},
    "gat": {"type": "gat_conv"},
    "gatv2": {"type": "gatv2_conv"},
    "transformer": {"type": "transformer_conv"},
    "supergat": {"type": "super_gat_conv"},
    "gates": {"type": "res_gated_graph_conv"},
    # messages of one's own: a class of examples/, and a program that is linear, beside the same sum built in
    "own gates": {"type": "own_layer", "code": "examples.gated_sum:GatedSum"},
    "plain sum": {"type": "gcn_conv", "edge_weights": False, "normalize": False, "add_self_loops": False},
    "row message": {"type": "message_conv"},
    # not roots, which jump to 0 where the variance is 1e-5: of millions one lies just there
    "var": {"type": "graph_conv", "edge_weights": False, "aggr": "var"},
    "pna": {"type": "pna_conv", "aggregators": ["mean", "min", "max", "var"]},
    "edge": {"type": "edge_conv"},
    "gin": {"type": "gin_conv"},
    # that read eight attributes of each edge
    "gine": {"type": "gine_conv", "edge_channels": EDGE_WIDTH},
    "gat+attr": {"type": "gat_conv", "edge_channels": EDGE_WIDTH},
}
PEERS = {"recompute": "RC", "ripple": "RP"}
OF_OWN = {"gin": "gin", "gine": "gine", "gat+attr": "gat"}  # kinds of recomputed.py
OF_PEERS = {"RC": ("sum", "mean", "max", "gcn", "gat"), "RP": ("sum", "mean", "max", "gcn")}
TOLERANCE = 1e-4
EPOCHS_MIN = 300  # that are timed, where there are events enough
COUNTED = 5_000  # events of the run that is counted and not timed
DELETED = 2_000  # edges after it


def model_of(kind: Kind, peers: Any, width: int) -> Model:
    """Two such layers, with the peers' weights where these have the layer, else random ones of the same size."""
    layers: list[Kind] = []
    weights: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(3)
    for i, ((own, neighbour, bias), vectors) in enumerate(zip(peers.weights(width), peers.gat_vectors(), strict=True)):
        conv = kind | {"in_channels": own.shape[0], "out_channels": own.shape[1]}
        if kind["type"] in ("edge_conv", "gin_conv", "gine_conv"):
            conv["nn"] = mlp(own.shape[0] * (2 if kind["type"] == "edge_conv" else 1), own.shape[1])
        if kind["type"] == "message_conv":
            linear = {"type": "linear", "in_channels": own.shape[0], "out_channels": own.shape[1], "bias": False}
            conv["program"] = [{"op": "rows", "of": ["source"], "layer": linear}]
        elif kind["type"] == "own_layer":
            conv = written(kind["code"], *own.shape)
        layers += [conv] if i == 0 else [{"type": "relu"}, conv]
        at = f"layers.{2 * i}."
        aggregators = len(kind["aggr"]) if isinstance(kind.get("aggr"), list) else 1
        tall = np.tile(neighbour.T, (1, aggregators)) / np.float32(aggregators)
        more = {
            "graph_conv": {"lin_rel.weight": neighbour.T, "lin_rel.bias": bias, "lin_root.weight": own.T},
            "sage_conv": {"lin_l.weight": tall, "lin_l.bias": bias, "lin_r.weight": own.T},
            "gcn_conv": {"lin.weight": neighbour.T, "bias": bias},
            "gat_conv": {"lin.weight": neighbour.T, "bias": bias, "att_src": vectors[0], "att_dst": vectors[1]},
        }.get(kind["type"], {})
        lacks = {name: shape for name, shape in build_shapes(conv).items() if name not in more}
        more |= {name: rng.standard_normal(shape) * np.sqrt(2.0 / sum(shape)) for name, shape in lacks.items()}
        for name, value in more.items():
            shape = (1, value.size) if name.startswith("att_") else value.shape
            weights[at + name] = np.ascontiguousarray(value, np.float32).reshape(shape)
    # versions of before attributes do not know that field
    fields = {"edge_features": kind["edge_channels"]} if "edge_channels" in kind else {}
    return build_model(layers=layers, head=[], edge_types=[], weights=weights, **fields)


def written(code: str, read: int, made: int) -> Kind:
    """Return the declaration of a written layer with the weights of a gated sum, whatever their values."""
    from freshet.gnn.layers.own.own_layer import declared
    from freshet.gnn.own.loading import load_layers, split_name

    load_layers([split_name(code)[0]])
    shapes = build_shapes({"type": "res_gated_graph_conv", "in_channels": read, "out_channels": made})
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return declared(code, weights, read).model_dump(mode="json")


def give_attributes(workload: Any, name: str) -> None:
    """Have edges of the workload carry attributes if the layer reads any."""
    width = LAYERS[name].get("edge_channels")
    rng = np.random.default_rng(4)
    workload.attr = rng.standard_normal((workload.m, width), dtype=np.float32) if width else None


def mlp(width: int, out: int) -> list[Kind]:
    """Return the network of messages of both ends, as in PyG's EdgeCNN."""
    sizes = ((width, out), (out, out))
    first, last = ({"type": "linear", "in_channels": a, "out_channels": b} for a, b in sizes)
    return [first, {"type": "relu"}, last]


def build_shapes(conv: Kind) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a conv's weights."""
    from pydantic import TypeAdapter

    from freshet.gnn.declarations import AnyLayer

    return TypeAdapter(AnyLayer).validate_python(conv).tensors()


def rates(batch: Callable[[int, int], Any], sizes: list[int], start: int, events: int) -> tuple[dict[int, float], int]:
    """Events a second of processor time at each size of an epoch; and where in the stream it ended."""
    found = {}
    for size in sizes:
        many = max(3, min(events // size, max(events // max(sizes), EPOCHS_MIN)))
        gc.collect()
        begin = time.process_time()
        for k in range(many):
            batch(start + k * size, start + (k + 1) * size)
        found[size] = many * size / (time.process_time() - begin)
        start += many * size
    return found, start


def measure(name: str, peers: Any, workload: Any, sizes: list[int], events: int) -> dict[str, Any]:
    """One layer: the engine, checked, and the peers that have the layer."""
    give_attributes(workload, name)
    model = model_of(LAYERS[name], peers.graphs, workload.d)
    engine = Engine(workload, model)
    _, start = rates(engine.batch, sizes, 0, max(sizes))  # warm
    before, seen = engine.counts(), list(engine.touched)
    found, end = rates(engine.batch, sizes, start, events)
    counts = {key: value - before.get(key, 0) for key, value in engine.counts().items()}
    touched = [now - then for now, then in zip(engine.touched, seen, strict=True)]
    timed = end - start
    watch = Watch(engine.layers)
    for _ in range(max(1, COUNTED // max(sizes))):
        engine.batch(end, end + max(sizes))
        end += max(sizes)
    watch.end()
    mask, x = workload.state_after(end)
    values = EdgeValues(int(mask.sum()), {}, None if workload.attr is None else workload.attr[mask])
    want = oracle.forward(model, Graph(x, workload.src[mask], workload.dst[mask], values))[-1]
    error = float(np.abs(engine.embeddings() - want).max() / np.abs(want).max())
    per = {f"{key}_per_event": value / timed for key, value in counts.items()}
    result: dict[str, Any] = {
        "layer": name,
        "error": error,
        "freshet": found,
        "updates_per_event": sum(touched) / timed,
        "bytes_per_edge": [round(engine.edge_bytes(layer), 1) for layer in engine.layers],
        "convs": [work.told(end - start - timed) for work in watch.works],
    }
    result |= per
    watch = Watch(engine.layers)
    gone = np.random.default_rng(5).permutation(np.flatnonzero(mask))[:DELETED]
    engine.take_away(workload.src[gone], workload.dst[gone])
    watch.end()
    result["reread_per_deletion"] = [work.reread / DELETED for work in watch.works]
    result["reread_per_deletion_of_its_end"] = [work.reread_by_deletion / DELETED for work in watch.works]
    result["reread_per_lost_channel"] = [work.reread / work.lost if work.lost else 0.0 for work in watch.works]
    if engine.redo_targets():
        _, end = rates(engine.batch, sizes, end, max(sizes))
        result["redo"], _ = rates(engine.batch, sizes, end, events)
    del engine
    for module, system in PEERS.items():
        if name in OF_PEERS[system]:
            arguments = peers.started(name, workload)
            peer = getattr(getattr(peers, module), system)(workload, name, *arguments)
            _, start = rates(peer.batch, sizes, 0, max(sizes))
            result[system], _ = rates(peer.batch, sizes, start, events)
            del peer
    if name in OF_OWN:
        own = Recomputed(workload, peers.adj.Adj, model, OF_OWN[name])
        _, start = rates(own.batch, sizes, 0, max(sizes))
        result["RC"], end = rates(own.batch, sizes, start, events)
    return result


class Hub:
    """A workload: vertex 0 has an in-edge from every other one; one of them goes with each event."""

    def __init__(self, in_edges: int, events: int, width: int, rows: np.ndarray) -> None:
        self.n, self.m0, self.d = in_edges + 1, in_edges, width
        self.src, self.dst = np.arange(1, self.n), np.zeros(in_edges, np.int64)
        self.x0, self.pool = rows[: self.n], rows[:1]
        self.op, self.a, self.b = np.ones(events, np.int8), self.src[:events], self.dst[:events]


def measure_hub(name: str, peers: Any, workload: Hub, events: int) -> dict[str, Any]:
    """One layer: the processor time of an epoch that takes one in-edge from the hub, in milliseconds."""
    engine = Engine(workload, model_of(LAYERS[name], peers.graphs, workload.d))
    rates(engine.batch, [1], 0, 20)
    before, times = engine.counts(), []
    for k in range(20, events):
        begin = time.process_time()
        engine.batch(k, k + 1)
        times.append(1000 * (time.process_time() - begin))
    more = {key: (value - before[key]) / len(times) for key, value in engine.counts().items()}
    p50, p99 = np.percentile(times, [50, 99]).round(3).tolist()
    left = Graph.plain(workload.x0, workload.src[events:], workload.dst[events:])
    want = oracle.forward(model_of(LAYERS[name], peers.graphs, workload.d), left)[-1]
    error = float(np.abs(engine.embeddings() - want).max() / np.abs(want).max())
    return {"layer": name, "error": error, "ms_p50": p50, "ms_p99": p99, **more}


class Peers:
    """The modules of the peers' folder."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.adj, self.full, self.graphs, self.recompute, self.ripple = map(
            importlib.import_module, ("adj", "full", "graphs", "recompute", "ripple")
        )

    def started(self, kind: str, w: Any) -> tuple[Any, ...]:
        """Return a peer's initial state: weights, attention vectors, and the rows of both layers."""
        ws, atts = self.graphs.weights(w.d), self.graphs.gat_vectors()
        prepared = self.full.prepare(kind, w.src[: w.m0], w.dst[: w.m0], w.n)
        hidden, out = self.full.forward(kind, prepared, w.x0, ws, atts)
        return ws, atts, hidden.numpy(), out.numpy()


def table_of(results: list[dict[str, Any]], sizes: list[int]) -> Table:
    """The results for people."""
    table = Table(title=f"events/s of one thread's processor time ({machine()})")
    names = "layer", "epoch", "Freshet", "RIPPLE++", "of it", "recompute", "of it", "own redo", "of it", "what it did"
    for column in names:
        table.add_column(column, justify="left" if column in ("layer", "what it did") else "right")
    for one in results:
        for i, size in enumerate(sizes):
            cells = [one["layer"] if i == 0 else "", f"{size:,}", f"{one['freshet'][size]:,.0f}"]
            for system in ("RP", "RC", "redo"):
                rate = one.get(system, {}).get(size)
                cells += [f"{rate:,.0f}", f"{one['freshet'][size] / rate:.1f} x"] if rate else ["", ""]
            did = [f"{one[key]:.2f} {key.removesuffix('_per_event')}" for key in one if key.endswith("_per_event")]
            table.add_row(*cells, ", ".join(did) + " an event" if i == 0 else "")
    return table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder with graphs.py, recompute.py and ripple.py")
    parser.add_argument("--layers", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    parser.add_argument("--epochs", nargs="+", type=int, default=[1000, 100, 10, 1], metavar="EVENTS")
    parser.add_argument("--events", type=int, default=30_000, help="of an epoch's size; of small ones fewer")
    parser.add_argument("--graph", default="arxiv")
    parser.add_argument("--hub", type=int, metavar="IN_EDGES", help="what it costs to take one of so many away")
    options = parser.parse_args()
    use_one_thread()
    peers = Peers(options.peers)
    workload = peers.graphs.Workload(options.graph, 240_000)
    results = []
    for name in options.layers if options.hub else ():
        hub = Hub(options.hub, 520, workload.d, workload.x0)
        results.append(measure_hub(name, peers, hub, 520))
        print(orjson.dumps(results[-1]).decode())
    for name in () if options.hub else options.layers:
        results.append(measure(name, peers, workload, options.epochs, options.events))
        print(orjson.dumps(results[-1], option=orjson.OPT_NON_STR_KEYS).decode(), file=sys.stderr, flush=True)
    if not options.hub:
        Console(width=160).print(table_of(results, options.epochs), works_table(results, max(options.epochs)))
    worst = max(one["error"] for one in results)
    print(orjson.dumps({"layers": results, "max_error": worst}, option=orjson.OPT_NON_STR_KEYS).decode())
    sys.exit(int(worst > TOLERANCE))


if __name__ == "__main__":
    main()
