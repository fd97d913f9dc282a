"""Generates the benchmark's graph and stream: the shape of ogbn-arxiv, with features from a fixed seed.

169,343 vertices and 1,170,000 directed edges (Chung-Lu; power-law in-degree up to about 10,000, out-degree up to about
440), 128 features. 80% of the edges are the snapshot; the stream is 60% edge additions, 20% deletions and 20% feature
changes, in Parquet. `python scripts/bench/arxiv_stream.py FOLDER --events 400000` writes FOLDER/snapshot,
FOLDER/events.parquet and FOLDER/model.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

VERTICES, EDGES, WIDTH, HIDDEN, OUT = 169_343, 1_170_000, 128, 128, 40
IN_DEGREE_MAX, OUT_DEGREE_MAX = 13_000, 440
ADD, DELETE, FEATURES = "add_edge", "del_edge", "set_features"
ROWS_PER_GROUP = 65_536
ARXIV = "arxiv"  # the name of the graph that is generated


def expected_degrees(
    n: int, mean: float, largest: float, rng: np.random.Generator, exponent: float = 2.2
) -> np.ndarray:
    """Power-law weights with the given mean and cap, in random order."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** (-1.0 / (exponent - 1.0))
    low, high = 0.0, largest * 1e3
    for _ in range(80):
        scale = (low + high) / 2
        if np.minimum(scale * weights + 0.1, largest).mean() < mean:
            low = scale
        else:
            high = scale
    return rng.permutation(np.minimum(high * weights + 0.1, largest))


def make_edges(n: int, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Distinct Chung-Lu edges without self-loops, in random order."""
    into = np.cumsum(expected_degrees(n, m / n, IN_DEGREE_MAX, rng))
    outof = np.cumsum(expected_degrees(n, m / n, OUT_DEGREE_MAX, rng))
    keys = np.empty(0, np.int64)
    while keys.size < m:
        wanted = int((m - keys.size) * 1.15) + 64
        src = np.searchsorted(outof, rng.random(wanted) * outof[-1])
        dst = np.searchsorted(into, rng.random(wanted) * into[-1])
        kept = src != dst
        keys = np.unique(np.concatenate([keys, src[kept] * n + dst[kept]]))
    keys = rng.permutation(keys)[:m]
    return keys // n, keys % n


def make_stream(edges: int, present: int, events: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Operation (0 add, 1 delete, 2 features) and edge number of each event; adds are of absent edges, and so on.

    When the edges held back run out, additions and deletions take turns.
    """
    order = np.arange(edges)
    op, arg = np.empty(events, np.int8), np.zeros(events, np.int64)
    draws, picks = rng.random(events), rng.random(events)
    for i in range(events):
        if draws[i] >= 0.8:
            op[i] = 2
            continue
        add = (draws[i] < 0.6 and present < edges - 1000) or present < 1000
        at = present + int(picks[i] * (edges - present)) if add else int(picks[i] * present)
        if not add:
            present -= 1
        other = present
        op[i], arg[i] = (0, order[at]) if add else (1, order[at])
        order[at], order[other] = order[other], order[at]
        if add:
            present += 1
    return op, arg


def fixed_lists(values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """A list<float32> column; rows of length zero are null."""
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values.reshape(-1), pa.float32()))
    empty = np.diff(offsets) == 0
    nulls = pa.array(empty)
    return pa.compute.if_else(nulls, pa.scalar(None, column.type), column) if empty.any() else column


def write_events(path: Path, op: np.ndarray, src: np.ndarray, dst: np.ndarray, vertex: np.ndarray, seed: int) -> None:
    """The event file."""
    names = np.array([ADD, DELETE, FEATURES])
    schema = None
    writer = None
    rng = np.random.default_rng(seed)
    for begin in range(0, op.size, ROWS_PER_GROUP):
        part = slice(begin, begin + ROWS_PER_GROUP)
        features = op[part] == 2
        x = rng.standard_normal((int(features.sum()), WIDTH), dtype=np.float32) * np.float32(0.5)
        offsets = np.concatenate([[0], np.cumsum(np.where(features, WIDTH, 0))])
        table = pa.table(
            {
                "op": pa.array(names[op[part]]),
                "id": pa.array(vertex[part], mask=~features),
                "src": pa.array(src[part], mask=features),
                "dst": pa.array(dst[part], mask=features),
                "x": fixed_lists(x, offsets),
            }
        )
        if writer is None:
            schema = table.schema
            writer = pq.ParquetWriter(path, schema, compression="none", use_dictionary=["op"])
        writer.write_table(table, row_group_size=ROWS_PER_GROUP)
    if writer is not None:
        writer.close()


def write_model(folder: Path, seed: int) -> None:
    """GraphConv-sum 128-128-40 with a ReLU between, weights from the seed, scaled so that values stay small."""
    from freshet.gnn.declarations import GraphConv, Relu
    from freshet.gnn.model import build_model, save_model
    from freshet.gnn.rows.chains import chain_tensors

    rng = np.random.default_rng(seed)
    first, second = (
        GraphConv(in_channels=a, out_channels=b, edge_weights=True) for a, b in ((WIDTH, HIDDEN), (HIDDEN, OUT))
    )
    layers = [first, Relu(), second]
    shapes = chain_tensors(layers, "layers")
    weights = {name: rng.standard_normal(shape) * (2.0 / sum(shape)) ** 0.5 * 0.5 for name, shape in shapes.items()}
    save_model(build_model(layers=layers, weights=weights), folder)


def read_edges(path: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a Parquet file with `src` and `dst`, vertices numbered from 0, in random order."""
    table = pq.read_table(path, columns=["src", "dst"])
    order = rng.permutation(len(table))
    return table["src"].to_numpy()[order], table["dst"].to_numpy()[order]


def generate(folder: Path, events: int, seed: int = 7, graph: Path | None = None) -> None:
    """Everything that the benchmark reads; the edges are those of the file `graph`, where one is given."""
    from freshet.operators.snapshot.writer import write_snapshot

    rng = np.random.default_rng(seed)
    src, dst = make_edges(VERTICES, EDGES, rng) if graph is None else read_edges(graph, rng)
    vertices = VERTICES if graph is None else int(max(src.max(), dst.max())) + 1
    present = int(src.size * 0.8)
    x = rng.standard_normal((vertices, WIDTH), dtype=np.float32) * np.float32(0.5)
    op, arg = make_stream(src.size, present, events, rng)
    vertex = rng.integers(0, vertices, events)
    folder.mkdir(parents=True, exist_ok=True)
    write_snapshot(folder / "snapshot", np.arange(vertices), x, src[:present], dst[:present])
    write_events(folder / "events.parquet", op, src[arg], dst[arg], vertex, seed + 1)
    write_model(folder / "model", seed + 2)


def graph_name(graph: Path | None) -> str:
    """Return the name of a graph: `edges.parquet` is named after its folder; None: arxiv's shape."""
    if graph is None:
        return ARXIV
    return graph.resolve().parent.name if graph.stem == "edges" else graph.stem


def generate_once(
    folder: Path, events: int, more: Callable[[Path], None] = lambda folder: None, graph: Path | None = None
) -> Path:
    """Generate the benchmark's input, with the options of `more`, unless it exists; returns the absolute folder."""
    folder = folder.absolute()
    stamp = folder / (f"events-{events}" if graph is None else f"events-{events}-{graph_name(graph)}")
    if not stamp.exists():
        print(f"generating {events:,} events", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        generate(folder, events, graph=graph)
        more(folder)
        stamp.touch()
    return folder


def first_events(folder: Path, count: int) -> Path:
    """Return the file with the first `events` events of a generated stream."""
    whole, first = folder / "events.parquet", folder / f"events-first-{count}.parquet"
    if pq.read_metadata(whole).num_rows == count:
        return whole
    if not first.exists():
        unfinished = first.with_suffix(".tmp")
        pq.write_table(pq.read_table(whole).slice(0, count), unfinished, ROWS_PER_GROUP, compression="none")
        unfinished.rename(first)
    return first


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--graph", type=Path, help="Parquet file with the edges (src, dst) of another graph")
    options = parser.parse_args()
    generate(options.folder, options.events, options.seed, options.graph)


if __name__ == "__main__":
    main()
