"""Costs of embedding out of core: seconds, memory measured from outside, and reloads by policy and order.

    .venv/bin/python scripts/bench/embed.py --vertices 1000000 --edges 12000000 --memory 256MiB 1GiB --plot embed.png

The graph is synthetic: sources at random, in-degrees by a power law. `freshet embed` runs in a process of its own whose
private memory (USS) is sampled from outside, once for each budget and number of passes; beside it stand a gather over
memory-mapped rows, destination by destination in id order (DGI's way), and the same gather in memory. Reloads are
counted by trials over the topology, which move no rows: hot stores of 10, 20 and 50% of the vertices, each policy, the
given order and that of completion.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.any_plan import without_kinds
from freshet.gnn.model import build_model, save_model
from freshet.gnn.plan import Context, LayerPlan, Plan
from freshet.gnn.rows.chains import chain_tensors
from freshet.job.units import parse_size
from freshet.kernels.kernel import kernel
from freshet.operators.embed.engine import Engine, EngineOptions
from freshet.operators.embed.files import FinishedSteps
from freshet.operators.embed.prepare import Preparation, Prepared
from freshet.operators.embed.topology import EmbedTopology
from freshet.operators.factory import load_plan
from freshet.operators.snapshot.reader import open_snapshot
from freshet.partitioner.config import GraphRules
from scripts.plots.picture import picture, pyplot

ROOT = Path(__file__).resolve().parents[2]
FRESHET = Path(sys.executable).with_name("freshet")
SHARES = (0.1, 0.2, 0.5)
POLICIES = ("min-pending", "lru", "random", "next-use")
ORDERS = ("given", "completion")
ROWS = 1 << 17
WIDE = 8 << 30


def save_graph(folder: Path, vertices: int, edges: int, width: int, skew: float, edges_from: Path | None) -> None:
    """Write a snapshot piece by piece; equal edges may come twice, of which the last holds."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    kind = pa.list_(pa.float32(), width)
    schema = pa.schema([("id", pa.int64()), ("x", kind)])
    with pq.ParquetWriter(folder / "vertices.parquet", schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, vertices, ROWS):
            n = min(ROWS, vertices - first)
            x = rng.standard_normal((n, width), np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), type=kind)
            writer.write_table(pa.Table.from_arrays([pa.array(np.arange(first, first + n)), vectors], schema=schema))
    if edges_from is not None:
        pq.write_table(pq.read_table(edges_from, columns=["src", "dst"]), folder / "edges.parquet")
        return
    by_rank = rng.permutation(vertices)
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    with pq.ParquetWriter(folder / "edges.parquet", schema) as writer:
        for first in range(0, edges, 8 * ROWS):
            n = min(8 * ROWS, edges - first)
            dst = by_rank[(vertices * rng.random(n) ** skew).astype(np.int64)]
            writer.write_table(pa.table([pa.array(rng.integers(0, vertices, n)), pa.array(dst)], schema=schema))


def save_convs(folder: Path, widths: list[int], conv: str = "graph_conv") -> None:
    """Write a model of layers of these widths, of a kind as model.json names it."""
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        sizes = {"in_channels": a, "out_channels": b}
        network = {"nn": [{"type": "linear", **sizes}]} if conv == "gin_conv" else {}
        layers += [{"type": conv, **sizes, **network}, {"type": "relu"}]
    layers.pop()
    rng = np.random.default_rng(2)
    from pydantic import TypeAdapter

    from freshet.gnn.declarations import AnyLayer

    shapes = chain_tensors(TypeAdapter(list[AnyLayer]).validate_python(layers), "layers")
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(widths[0])).astype(np.float32) for name, shape in shapes.items()
    }
    save_model(build_model(layers=layers, head=[], edge_types=[], weights=weights), folder)


class Private:
    """The most private memory that a process had, and what it read and wrote, looked at from outside.

    Units: bytes. `anonymous` leaves out the file pages that the kernel happens to map for it alone. `read` and
    `written` are of its calls, whether the page cache had the bytes or not.
    """

    def __init__(self, pid: int) -> None:
        self.uss = self.anonymous = self.read = self.written = 0
        self._process = psutil.Process(pid)
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while True:
            try:
                self.uss = max(self.uss, self._process.memory_full_info().uss)
                status = Path(f"/proc/{self._process.pid}/status").read_text()
                found = [line for line in status.splitlines() if line.startswith("RssAnon")]
                self.anonymous = max(self.anonymous, int(found[0].split()[1]) << 10) if found else self.anonymous
                moved = self._process.io_counters()
                self.read, self.written = moved.read_chars, moved.write_chars
            except (psutil.Error, OSError):
                return
            time.sleep(0.1)


def run_embed(model: Path, snapshot: Path, out: Path, *options: str) -> dict[str, Any]:
    """One `freshet embed`, with its seconds as a process and its private memory."""
    command = [
        str(FRESHET),
        "embed",
        "--model",
        str(model),
        "--snapshot",
        str(snapshot),
        "--out",
        str(out),
        "--for",
        "serving",
        *options,
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    private = Private(process.pid)
    answer, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {errors.decode()[-2000:]}")
    line = orjson.loads(answer.splitlines()[-1])
    return line | {
        "wall_s": time.perf_counter() - began,
        "uss": private.uss,
        "anonymous": private.anonymous,
        "read": private.read,
        "written": private.written,
        "layers_s": [round(layer["seconds"], 2) for layer in line.get("layers", ())],
    }


@kernel
def gather_sums(z: np.ndarray, ends: np.ndarray, src: np.ndarray, out: np.ndarray) -> None:
    """For each destination the sum of its sources' rows, in float64 as everywhere here."""
    for v in range(len(ends) - 1):
        for j in range(out.shape[1]):
            out[v, j] = 0.0
        for e in range(ends[v], ends[v + 1]):
            for j in range(out.shape[1]):
                out[v, j] += np.float64(z[src[e], j])


def gathered(plan: Plan, topology: EmbedTopology, features: Any, folder: Path | None) -> float:
    """Seconds of all layers by gathering, over mapped files in `folder` or, without one, in memory."""
    n = topology.vertices
    offsets = topology.offsets(0, n)
    dst, _, _ = topology.read(0, topology.edges)
    order = np.argsort(dst, kind="stable")
    src = np.repeat(np.arange(n, dtype=np.int32), np.diff(offsets))[order]
    ends = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(dst, minlength=n), out=ends[1:])
    del dst, order
    context = topology.contexts()
    x, began = features, time.perf_counter()
    for number, layer in enumerate(plan.layers):
        x = _gathered_layer(layer, number, context, ends, src, x, folder)
    return time.perf_counter() - began


def _gathered_layer(
    layer: LayerPlan, number: int, context: Context, ends: np.ndarray, src: np.ndarray, x: Any, folder: Path | None
) -> Any:
    def array(name: str, width: int) -> Any:
        if folder is None:
            return np.empty((len(ends) - 1, width), np.float32)
        return np.memmap(folder / f"{name}{number}", np.float32, "w+", shape=(len(ends) - 1, width))

    n, width = len(ends) - 1, layer.message_width
    z, own, out = array("z", width), array("own", layer.self_width), array("x", layer.out_width)
    for first in range(0, n, ROWS):
        some = slice(first, first + ROWS)
        sent = layer.send(np.ascontiguousarray(x[some]), Context._make(column[some] for column in context))
        z[some], own[some] = sent[:, :width], sent[:, width:]
    for first in range(0, n, 1 << 14):
        some = slice(first, min(n, first + (1 << 14)))
        sums = np.empty((some.stop - first, width), np.float64)
        gather_sums(np.asarray(z), ends[first : some.stop + 1], src, sums)
        out[some] = layer.update(
            sums.astype(np.float32), np.ascontiguousarray(own[some]), Context._make(column[some] for column in context)
        )
    return out


def reloads(plan: Plan, snapshot: Path, work: Path) -> Iterator[dict[str, Any]]:
    """Reloads per vertex of the first layer by order, hot store and policy."""
    layer = plan.layers[0]
    for order in ORDERS:
        folder = work / order
        folder.mkdir()
        topology, prepared = prepare(plan, snapshot, folder, order)
        n = topology.vertices
        for policy in POLICIES:
            options = EngineOptions(WIDE, 1, policy)
            engine = Engine(plan, topology, partial(prepared.features, folder), folder, FinishedSteps(folder), options)
            for share in SHARES:
                began = time.perf_counter()
                counts = engine.trial(layer, max(1, int(share * n)), 0, n, 1024, 1 << 16)
                yield {
                    "order": order,
                    "policy": policy,
                    "hot": share,
                    "reloads_per_vertex": round(counts.reloaded / n, 3),
                    "seconds": round(time.perf_counter() - began, 2),
                }
        topology.close()
        shutil.rmtree(folder)


def prepare(plan: Plan, snapshot: Path, folder: Path, order: str) -> tuple[EmbedTopology, Prepared]:
    """The prepared graph and its features."""
    prepared = Preparation(open_snapshot(snapshot, plan.features), GraphRules(), folder, WIDE).run(order)
    return EmbedTopology(folder, prepared.vertices, prepared.edges, weighted=True), prepared


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Reloads per vertex over the hot store's share, a line for each policy and order."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(ORDERS), figsize=(9, 3.5), sharey=True)
    for axis, order in zip(axes, ORDERS, strict=True):
        for policy in POLICIES:
            some = [one for one in found if one["order"] == order and one["policy"] == policy]
            axis.plot(
                [100 * one["hot"] for one in some], [one["reloads_per_vertex"] for one in some], "o-", label=policy
            )
        axis.set(title=f"order: {order}", xlabel="hot store, % of the vertices", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("reloads per vertex")
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def shown(rows: list[dict[str, Any]], columns: list[str]) -> None:
    table = Table(*columns, box=SIMPLE)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in columns))
    Console(stderr=True).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=12_000_000)
    parser.add_argument("--edges-from", type=Path, help="Parquet file of src and dst, in place of synthetic edges")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 128, 40])
    parser.add_argument("--skew", type=float, default=2.0, help="in-degrees fall as rank to the power of 1/skew - 1")
    parser.add_argument("--memory", nargs="*", default=["256MiB", "1GiB"])
    parser.add_argument("--passes", nargs="+", default=["auto"])
    parser.add_argument("--plot", type=picture)
    parser.add_argument(
        "--work", type=Path, help="an existing folder on the disk to measure (default: a temporary one)"
    )
    parser.add_argument("--no-gather", action="store_true", help="leave the gathers out")
    parser.add_argument("--no-reloads", action="store_true", help="leave the trials out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        print(orjson.dumps(measure(given, Path(folder))).decode())


def measure(given: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All that was asked for; tables on stderr."""
    snapshot, model = work / "S", work / "M"
    save_graph(snapshot, given.vertices, given.edges, given.widths[0], given.skew, given.edges_from)
    save_convs(model, given.widths)
    runs = []
    for memory in given.memory:
        for passes in given.passes:
            out = work / f"out-{memory}-{passes}"
            line = run_embed(model, snapshot, out, "--memory", memory, "--passes", passes)
            line |= {"memory": memory, "asked": passes, "over_MiB": (line["uss"] - parse_size(memory)) >> 20}
            for name in ("uss", "anonymous"):
                line[f"{name}_MiB"] = line[name] >> 20
            line["wall_s"] = round(line["wall_s"], 1)
            runs.append({name: value for name, value in line.items() if name != "layers"})
            shutil.rmtree(out)
    shown(runs, ["memory", "asked", "passes", "wall_s", "layers_s", "uss_MiB", "anonymous_MiB", "evicted", "reloaded"])
    result: dict[str, Any] = {"vertices": given.vertices, "edges": given.edges, "widths": given.widths, "runs": runs}
    plan = without_kinds(load_plan(str(model)), "`freshet embed`")
    if not given.no_gather:
        result |= gathers(plan, snapshot, work)
        shown([result], ["gather_mapped_s", "gather_in_memory_s"])
    if not given.no_reloads:
        result["reloads"] = list(reloads(plan, snapshot, work))
        shown(result["reloads"], ["order", "policy", "hot", "reloads_per_vertex", "seconds"])
        if given.plot:
            plot(result["reloads"], given.plot)
    return result


def gathers(plan: Plan, snapshot: Path, work: Path) -> dict[str, float]:
    """Return the seconds of a gather over mapped files, and of one in memory."""
    folder = work / "gather"
    folder.mkdir()
    topology, prepared = prepare(plan, snapshot, folder, "given")
    mapped = np.memmap(folder / "features.rows", np.float32, "r+", shape=(prepared.vertices, prepared.width))
    in_files = gathered(plan, topology, mapped, folder)
    in_memory = gathered(plan, topology, np.array(mapped), None)
    topology.close()
    shutil.rmtree(folder)
    return {"gather_mapped_s": round(in_files, 2), "gather_in_memory_s": round(in_memory, 2)}


if __name__ == "__main__":
    main()
