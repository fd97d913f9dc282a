"""Embeddings out of core of small graphs, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.gnn.model import Model
from freshet.gnn.plan import compile_plan
from freshet.operators.embed.embedding import Embedding, EmbeddingReport
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.snapshot.reader import open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.schema import Graph

SMALL = 1 << 17  # bytes: chunks of 16 rows, blocks of a few hundred
WIDE = 1 << 24


def write_graph(folder: Path, graph: Graph, ids: Sequence[Any] | np.ndarray | None = None) -> Path:
    """The graph as a snapshot; its vertices are called by `ids`, else by their rows."""
    names = list(range(len(graph.x))) if ids is None else list(ids)
    src, dst = [names[k] for k in graph.src], [names[k] for k in graph.dst]
    write_snapshot(folder, names, graph.x, src, dst, graph.values.weight, attr=graph.values.attr)
    return folder


def embed(
    model: Model,
    snapshot: Path,
    folder: Path,
    options: EngineOptions | None = None,
    **given: Any,
) -> EmbeddingReport:
    """Embed a snapshot; `folder` gets `work` and `embeddings`."""
    plan = compile_plan(model)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    opened = open_snapshot(snapshot, plan.features, edge_types=plan.edge_types or None)
    return Embedding(plan, opened, work, folder, options or EngineOptions(WIDE), **given).run()


def read_rows(folder: Path) -> dict[Any, np.ndarray]:
    """The embedding of each id; no id may come twice, and all are of epoch 0."""
    files = sorted((folder / "embeddings").glob("[!._]*.parquet"))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    assert set(table["epoch"].to_pylist()) <= {0}
    assert not any(table["deleted"].to_pylist())
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids) > 0
    rows = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(ids), -1)
    return dict(zip(ids, rows, strict=True))


def file_bytes(folder: Path) -> dict[str, bytes]:
    """The files of embeddings, by name."""
    found = {file.name: file.read_bytes() for file in sorted((folder / "embeddings").iterdir())}
    assert found
    return found
