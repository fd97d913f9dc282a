"""Compares `freshet embed` with the models in PyG: every layer, on Cora and on a graph of a million vertices.

    .venv/bin/python scripts/drills/equal_embed.py
    .venv/bin/python scripts/drills/equal_embed.py --graphs synthetic --vertices 100000 --edges 400000 --layers GCN GAT

For each layer that Freshet knows (`--list` names them) a small model is exported from PyTorch Geometric, whose own
forward pass over the whole graph at once, in float64, is the oracle; it runs in a process of its own with at most
`--oracle-memory`, and if that is too little, Freshet's own pass in float64 replaces it. `freshet embed` runs as for a
user, for streaming and for serving. All rows of epoch 0 are compared with the oracle: each
vertex once, and the mean over the vertices of the largest absolute error at most 1e-4. PyTorch Geometric in float32 is
judged in the same way, for comparison.

Tables go to stderr. The last line is JSON; exit 1 when an error is larger, or rows are missing or there twice.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.units import parse_size
from freshet.operators.snapshot.writer import write_snapshot
from freshet.schema import EdgeValues, Graph
from scripts.bench.arxiv_stream import make_edges
from scripts.bench.embed import FRESHET
from scripts.bench.image import measured
from scripts.cora import graph as cora
from tests.support import oracle

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
GRAPHS = ("cora", "synthetic")
MODES = ("streaming", "serving")
COLUMNS = {
    "layer": "layer",
    "mode": "--for",
    "mean_error": "mean error",
    "max_error": "largest",
    "largest_value": "largest value",
    "oracle": "oracle",
    "pyg32_mean_error": "PyG float32, mean",
    "rows": "rows",
    "each_once": "each once",
    "seconds": "s",
    "anonymous_MiB": "MiB",
    "oracle_s": "oracle s",
    "oracle_MiB": "oracle MiB",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--vertices", type=int, default=1_000_000, help="of the synthetic graph")
    parser.add_argument("--edges", type=int, default=4_000_000, help="of the synthetic graph")
    parser.add_argument("--features", type=int, default=16, help="of the synthetic graph")
    parser.add_argument("--layers", nargs="+", metavar="NAME", help="some of those that --list names (default: all)")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--memory", default="1GiB", help="of `freshet embed`")
    parser.add_argument("--parts", type=int, default=2, help="of `freshet embed`, for streaming")
    parser.add_argument("--oracle-memory", default="5GiB", help="most that the oracle may take")
    parser.add_argument("--work", type=Path, help="an existing folder (default: a temporary one)")
    parser.add_argument("--list", action="store_true", help="name the layers and end")
    parser.add_argument("--oracle", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.oracle:
        return run_oracle(given.oracle[0], Path(given.oracle[1]), parse_size(given.oracle_memory))
    from scripts.drills.equal_models import NAMES

    unknown = set(given.layers or ()) - set(NAMES)
    if given.list or unknown:
        print("\n".join(NAMES), file=sys.stderr if unknown else sys.stdout)
        return 2 if unknown else 0
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        return measure(given, given.layers or list(NAMES), Path(folder))


def measure(given: argparse.Namespace, names: list[str], work: Path) -> int:
    """All graphs, layers and modes; 0 when all is equal."""
    found = []
    for graph in given.graphs:
        folder = work / graph
        vertices, edges = write_cora(folder) if graph == "cora" else write_synthetic(folder, given)
        console(f"{graph}: {vertices:,} vertices, {edges:,} edges")
        for name in names:
            for line in of_layer(name, folder, vertices, given):
                found.append({"graph": graph, **line})
                print(orjson.dumps(found[-1]).decode(), file=sys.stderr, flush=True)
        shown(graph, [line for line in found if line["graph"] == graph])
    wrong = [line for line in found if not line["equal"]]
    print(orjson.dumps({"tolerance": TOLERANCE, "runs": len(found), "wrong": wrong, "found": found}).decode())
    return 1 if wrong or not found else 0


def of_layer(name: str, folder: Path, vertices: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare `freshet embed` in each mode with the oracle."""
    model = folder / f"M {name}"  # plans are kept by the names of their folders
    command = [sys.executable, __file__, "--oracle", name, str(folder), "--oracle-memory", given.oracle_memory]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})
    if done.returncode:
        return [{"layer": name, "equal": False, "oracle": f"ended with {done.returncode}"}]
    found = orjson.loads(done.stdout.splitlines()[-1]) | {"oracle_s": round(time.perf_counter() - began, 1)}
    expected = np.load(folder / "expected.npy", mmap_mode="r")
    lines = []
    for mode in given.modes:
        out = folder / "S2"
        command = [FRESHET, "embed", "--model", model, "--snapshot", folder / "S", "--out", out]
        command += ["--memory", given.memory, "--for", mode, *(["--parts", given.parts] if mode == "streaming" else [])]
        try:
            run = measured(command)
        except SystemExit as error:
            lines.append({"layer": name, "mode": mode, "equal": False, "failed": str(error)})
            continue
        line = {"layer": name, "mode": mode, **compared(out, expected), **found}
        line |= {"seconds": run["wall_s"], "anonymous_MiB": run["anonymous_MiB"]}
        line["equal"] = is_equal(line, vertices)
        lines.append(line)
        shutil.rmtree(out)
    return lines


def compared(out: Path, expected: np.ndarray) -> dict[str, Any]:
    """Compare the rows of epoch 0 in the files with the expected ones, whose numbers are the ids.

    Errors are infinite where a row is missing, or of a vertex that never was.
    """
    times, worst = np.zeros(len(expected), np.int64), np.full(len(expected), np.inf)
    rows = odd = 0
    for path in sorted((out / "embeddings").glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1 << 16):
                ids, vectors = batch["id"].to_numpy(), batch["embedding"].flatten().to_numpy()
                rows += len(ids)
                known = (ids >= 0) & (ids < len(expected))
                odd += int((~known).sum() + (batch["epoch"].to_numpy() != 0).sum())
                odd += int(batch["deleted"].to_numpy(zero_copy_only=False).sum())
                ids, vectors = ids[known], vectors.reshape(len(known), -1)[known]
                np.add.at(times, ids, 1)
                error = np.abs(vectors - expected[ids]).max(axis=1)
                worst[ids] = np.where(np.isnan(error), np.inf, error)
    return {
        "mean_error": float(worst.mean()),
        "max_error": float(worst.max()),
        "rows": rows,
        "each_once": bool((times == 1).all()) and not odd,
    }


def is_equal(found: dict[str, Any], vertices: int) -> bool:
    """Return whether the compared rows are correct and have all vertices, each once."""
    return bool(found["mean_error"] <= TOLERANCE and found["rows"] == vertices and found["each_once"])


def run_oracle(name: str, folder: Path, memory: int) -> int:
    """In a process of its own: write the model, and what PyTorch Geometric makes of the graph, within the memory."""
    from scripts.drills.equal_models import embeddings, save

    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with np.load(folder / "graph.npz") as file:
        src = file["src"]
        graph = Graph(file["x"], src, file["dst"], EdgeValues.from_columns(file, len(src)))
    model = save(name, graph, folder / f"M {name}")
    by, expected = "pyg", in_memory(embeddings, name, graph, model, np.float64)
    if expected is None:
        by, expected = "own", oracle.forward(model, graph)[-1]
    narrow = in_memory(embeddings, name, graph, model, np.float32)
    np.save(folder / "expected.npy", expected)
    line = {
        "largest_value": float(np.abs(expected).max()),
        "pyg32_mean_error": None if narrow is None else float(np.abs(narrow - expected).max(axis=1).mean()),
        "oracle": by,
        "oracle_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    print(orjson.dumps(line).decode())
    return 0


def in_memory(make: Callable[..., np.ndarray], *given: Any) -> np.ndarray | None:
    """Return the result of the function, or None if there is not enough memory."""
    try:
        return make(*given)
    except MemoryError:
        return None
    except RuntimeError as error:  # PyTorch's
        if "can't allocate memory" not in str(error):
            raise
        return None


def write_cora(folder: Path) -> tuple[int, int]:
    """All papers of Cora with all words, and the citations both ways, each with a weight of its own."""
    graph = cora.load()
    src, dst = (np.concatenate([graph.edges[:, a], graph.edges[:, b]]) for a, b in ((0, 1), (1, 0)))
    return write(folder, graph.features(), src, dst)


def write_synthetic(folder: Path, given: argparse.Namespace) -> tuple[int, int]:
    """In- and out-degrees by a power law (as of scripts/bench/arxiv_stream.py), some self-loops, normal features."""
    rng = np.random.default_rng(15)
    count = given.vertices // 1000
    src, dst = make_edges(given.vertices, given.edges - count, rng)
    loops = rng.choice(given.vertices, count, replace=False)
    x = rng.standard_normal((given.vertices, given.features), np.float32)
    return write(folder, x, np.append(src, loops), np.append(dst, loops))


def write(folder: Path, x: np.ndarray, src: np.ndarray, dst: np.ndarray) -> tuple[int, int]:
    """The graph with random weights as a snapshot, and as arrays for the oracle."""
    folder.mkdir()
    weight = np.random.default_rng(16).uniform(0.25, 1.75, len(src)).astype(np.float32)
    write_snapshot(folder / "S", np.arange(len(x)), x, src, dst, weight)
    np.savez(folder / "graph.npz", x=x, src=src, dst=dst, weight=weight)
    return len(x), len(src)


def shown(graph: str, lines: list[dict[str, Any]]) -> None:
    table = Table(*COLUMNS.values(), box=SIMPLE, title=graph)
    for line in lines:
        values = (line.get(name, "") for name in COLUMNS)
        table.add_row(*(f"{value:.1e}" if isinstance(value, float) and value < 1 else str(value) for value in values))
    Console(stderr=True, width=160).print(table)


def console(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
