"""Predictions of `freshet size` for a job with kinds, and the time and memory of `freshet embed` on its graph.

    .venv/bin/python scripts/bench/of_kinds/size.py
    .venv/bin/python scripts/bench/of_kinds/size.py --vertices 1000000 --memory 640MiB --embed-alone

Users have 768 features, items 8 and tags 32. The job streams the graph in one process; its base image is that of
`freshet embed`, whose private memory is sampled. Exits with 1 if tables, change logs or base image are further from the
prediction than --tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from freshet.gnn.model import save_model
from scripts.bench.image import measured
from scripts.bench.size import FRESHET, folder_bytes, run
from tests.support.graphs.kinds import by_kind, kinds_model, relation, sage_everywhere

WIDTHS = {"user": 768, "item": 8, "tag": 32}
SHARES = {"user": 0.1, "item": 0.4, "tag": 0.5}  # of the vertices
RELATIONS = [
    relation("user", "buys", "item"),
    relation("item", "rev_buys", "user", mirrors=0),
    relation("item", "has", "tag"),
    relation("tag", "rev_has", "item", mirrors=2),
    relation("user", "follows", "user"),
]
BY_VERTEX = {"buys": 1.5, "has": 1.5, "follows": 0.5}  # edges for each vertex of any kind
_AT_ONCE = 10_000
_VERTEX = pa.schema([("op", pa.string()), ("id", pa.int64()), ("kind", pa.string()), ("x", pa.list_(pa.float32()))])
_EDGE = pa.schema([("op", pa.string()), ("src", pa.int64()), ("dst", pa.int64()), ("type", pa.string())])


def make_graph(folder: Path, vertices: int) -> tuple[dict[str, int], dict[str, int]]:
    """Write model, snapshot and the same graph as events; returns the numbers by kind and by relation."""
    second = sage_everywhere(dict.fromkeys(WIDTHS, 32), 16, RELATIONS)
    relus = by_kind(**{kind: [{"type": "relu"}] for kind in WIDTHS})
    layers = [sage_everywhere(WIDTHS, 32, RELATIONS), relus, second]
    save_model(kinds_model(layers, ["user", "item"], WIDTHS, RELATIONS), folder / "M")
    sizes = {kind: int(share * vertices) for kind, share in SHARES.items()}
    counts = {name: int(share * vertices) for name, share in BY_VERTEX.items()}
    rng = np.random.default_rng(0)
    (folder / "S").mkdir()
    files = [(folder / "S" / "vertices.parquet", _VERTEX), (folder / "S" / "edges.parquet", _EDGE)]
    vertices_file, edges_file = (pq.ParquetWriter(path, schema) for path, schema in files)
    events = pq.ParquetWriter(folder / "O.parquet", pa.unify_schemas([_VERTEX, _EDGE]))
    for kind, n in sizes.items():
        for first in range(0, n, _AT_ONCE):
            ids = np.arange(first, min(first + _AT_ONCE, n))
            x = pa.array(rng.random(ids.size * WIDTHS[kind], np.float32))
            lists = pa.ListArray.from_arrays(pa.array(np.arange(ids.size + 1, dtype=np.int32) * WIDTHS[kind]), x)
            many = {"op": ["add_vertex"] * ids.size, "id": ids, "kind": [kind] * ids.size, "x": lists}
            _write(pa.table(many, schema=_VERTEX), vertices_file, events)
    for one in (one for one in RELATIONS if "mirrors" not in one):
        m = counts[one["type"]]
        pairs = np.unique((sizes[one["source"]] * rng.random(m) ** 2).astype(np.int64) * vertices
                          + rng.integers(0, sizes[one["target"]], m))  # fmt: skip
        rng.shuffle(pairs)
        counts[one["type"]] = m = pairs.size
        many = {"op": ["add_edge"] * m, "src": pairs // vertices, "dst": pairs % vertices, "type": [one["type"]] * m}
        _write(pa.table(many, schema=_EDGE), edges_file, events)
    for writer in (vertices_file, edges_file, events):
        writer.close()
    return sizes, counts


def _write(rows: pa.Table, snapshot: pq.ParquetWriter, events: pq.ParquetWriter) -> None:
    """Write rows to a file of the snapshot, and to the events, where other columns are null."""
    snapshot.write_table(rows)
    for name in events.schema.names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, events.schema.field(name).type))
    events.write_table(rows.select(events.schema.names))


def measure(folder: Path, sizes: dict[str, int], counts: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Run the job; what was predicted, and what it took."""
    given = [word for kind, n in sizes.items() for word in ("--vertices", f"{kind}={n}")]
    given += [word for name, m in counts.items() for word in ("--edges", f"{name}={m}")]
    asked = [str(FRESHET), "size", "M", *given, "--json"]
    told = json.loads(subprocess.run(asked, cwd=folder, check=True, capture_output=True).stdout)
    found, _ = run(folder, "O", "--runtime", "local", "--checkpoint-interval", "10m")
    by_operator: dict[str, int] = {}
    for place, held in found["memory_bytes"].items():
        name = place.rpartition("-")[0]
        by_operator[name] = by_operator.get(name, 0) + held
    rows = found["summary"]["rows"]
    pairs = {
        "tables": (told["memory"]["tables"], sum(by_operator.values())),
        "change logs": (
            int(told["disk"]["change_log_per_million_rows"] * rows / 1e6),
            folder_bytes(folder / "O" / "embeddings"),
        ),
        "base image": (told["disk"]["base_image"], folder_bytes(folder / "S2" / "base")),
    }
    return pairs | {name: (told["memory"]["operators"].get(name, 0), held) for name, held in by_operator.items()}


def main() -> int:
    """Embed, and measure the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--memory", default="640MiB", help="of freshet embed")
    parser.add_argument("--embed-alone", action="store_true")
    parser.add_argument("--tolerance", type=float, default=0.2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sizes, counts = make_graph(folder, given.vertices)
        line: dict[str, Any] = {"vertices": sizes, "edges": counts, "memory": given.memory}
        ways = ["--model", folder / "M", "--snapshot", folder / "S", "--out", folder / "S2", "--memory", given.memory]
        line["embed"] = measured([FRESHET, "embed", *ways])
        pairs = {} if given.embed_alone else measure(folder, sizes, counts)
    line |= {name: {"predicted": predicted, "measured": found} for name, (predicted, found) in pairs.items()}
    print(orjson.dumps(line).decode(), flush=True)
    compared = [pairs[name] for name in ("tables", "change logs", "base image") if name in pairs]
    return int(any(abs(predicted / found - 1) > given.tolerance for predicted, found in compared))


if __name__ == "__main__":
    sys.exit(main())
