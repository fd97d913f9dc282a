"""Jobs of a model that looks rows up by the types of edges: run, checked, exported, and gone on with.

The oracle is the user's module on a table of edges that this test keeps by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet import EmbeddingClient, LiveGraph, export_model, read_changes, to_torch  # noqa: E402
from tests.support.runs.inside import call_inside  # noqa: E402
from tests.support.serving.server import Server  # noqa: E402

pytestmark = pytest.mark.slow
TYPES = ["pays", "owns", "knows"]
WIDTH, VERTICES = 5, 30
Edges = dict[tuple[int, int, str], list[float]]


class Typed(nn.Module):
    """Two convs: rows of types beside attributes in one, rows of types alone in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(len(TYPES), 4)
        self.first = pyg.TransformerConv(WIDTH, 6, edge_dim=6)
        self.second = pyg.GINEConv(nn.Linear(6, 3), edge_dim=4)

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:
        x = self.first(x, edge_index, torch.cat([self.emb(edge_type), edge_attr], dim=1)).relu()
        return self.second(x, edge_index, self.emb(edge_type))


def freshet(*words: object) -> dict[str, Any]:
    """The JSON line of a command that ends well."""
    code, output, errors = call_inside(*words)
    assert code == 0, errors[-2000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def drawn() -> tuple[list[dict[str, Any]], np.ndarray, Edges]:
    """Records, and what is there after them: features and the attributes of each edge."""
    rng, edges = np.random.default_rng(5), Edges()
    x = rng.standard_normal((VERTICES, WIDTH)).astype(np.float32)
    records: list[dict[str, Any]] = [{"op": "add_vertex", "id": v, "x": row.tolist()} for v, row in enumerate(x)]
    for _ in range(500):
        if edges and rng.random() < 0.3:
            src, dst, name = list(edges)[rng.integers(len(edges))]
            del edges[src, dst, name]
            records.append({"op": "del_edge", "src": src, "dst": dst, "type": name})
            continue
        src, dst, name = int(rng.integers(VERTICES)), int(rng.integers(6)), TYPES[rng.integers(3)]
        attr = rng.standard_normal(2).astype(np.float32).tolist() if rng.random() < 0.8 else None
        untyped = name == TYPES[0] and rng.random() < 0.5  # which is the first type
        records.append({"op": "add_edge", "src": src, "dst": dst} | ({} if untyped else {"type": name}))
        records[-1] |= {} if attr is None else {"attr": attr}
        edges[src, dst, name] = attr or [0.0, 0.0]
    return records, x, edges


def expected(module: Any, x: np.ndarray, edges: Edges) -> np.ndarray:
    index = torch.tensor([(src, dst) for src, dst, _ in edges]).T
    types, attr = torch.tensor([TYPES.index(name) for _, _, name in edges]), torch.tensor(list(edges.values()))
    with torch.no_grad():
        found: np.ndarray = module.double()(torch.tensor(x).double(), index, types, attr.double()).numpy()
    return found


def served(out: Path) -> np.ndarray:
    table = read_changes(out, newest=True)
    rows = dict(zip(table["id"].to_pylist(), table["embedding"].to_pylist(), strict=True))
    return np.array([rows[vertex] for vertex in range(VERTICES)])


def save(path: Path, records: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        names = dict.fromkeys(name for record in records for name in record)
        pq.write_table(pa.table({name: [record.get(name) for record in records] for name in names}), path)
    else:
        path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_job_its_export_and_what_if(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(2)
    module, (records, x, edges) = Typed().eval(), drawn()
    model, out, again, snapshot = (tmp_path / name for name in ("model", "out", "again", "snapshot"))
    export_model(module, model, edge_types=TYPES, edge_features=2)
    unknown = {"op": "add_edge", "src": 1, "dst": 2, "type": "hates"}
    given = "--model", model, "--events", save(tmp_path / f"events{suffix}", [*records, unknown])
    freshet("run", *given, "--out", out, "--parts", 3, "--epoch-events", 40, "--runtime", "local")
    np.testing.assert_allclose(served(out), expected(module, x, edges), 1e-4, 1e-4)
    assert freshet("check", *given, "--out", out, "--every", 4)["rejected"] == 1
    with LiveGraph(out) as live:
        data = live.at()
    rows = to_torch(model)(data.x, data.edge_index, data.edge_weight, data.edge_attr, data.edge_type)
    np.testing.assert_allclose(rows.detach().numpy(), expected(module, x, edges), 1e-4, 1e-4)
    freshet("export", out, "--out", snapshot)
    table = pq.read_table(snapshot / "edges.parquet").to_pylist()
    assert {(row["src"], row["dst"], row["type"]): row["attr"] for row in table} == edges
    more = {"op": "add_edge", "src": 3, "dst": 4, "type": "knows", "attr": [1.0, -1.0]}
    given = "--model", model, "--events", save(tmp_path / f"more{suffix}", [more]), "--snapshot", snapshot
    freshet("run", *given, "--out", again, "--parts", 2, "--runtime", "local")
    edges[3, 4, "knows"] = [1.0, -1.0]
    np.testing.assert_allclose(served(again), expected(module, x, edges), 1e-4, 1e-4)
    freshet("check", *given, "--out", again)
    server = Server(again)
    try:
        with EmbeddingClient(server.start("--what-if", "base")["flight"], timeout=60.0) as client:
            tried = client.what_if(7, in_edges=[(8, 1.0, "owns", [0.5, 2.0])])["embedding"].to_pylist()[0]
    finally:
        server.end()
    edges[8, 7, "owns"] = [0.5, 2.0]
    np.testing.assert_allclose(tried, expected(module, x, edges)[7], 1e-4, 1e-4)
