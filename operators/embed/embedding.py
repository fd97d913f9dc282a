"""A whole embedding: prepare, layers, output; each finished step is kept, and a later attempt goes on behind it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from gnn.plan import Plan
from operators.embed.engine import Engine, EngineOptions, LayerReport, UnsupportedModelError, unsupported
from operators.embed.files import EmbedError, full_disk
from operators.embed.id_numbers import SavedIds
from operators.embed.journal import Journal
from operators.embed.output import write_embeddings
from operators.embed.prepare import GraphRules, Preparation, Prepared
from operators.embed.topology import Topology
from operators.output_folders import EMBEDDINGS
from operators.snapshot.reader import Snapshot

PREPARED = "prepared"
_KEPT = (".json", ".lock")  # the journal, and what the caller keeps beside it


@dataclass
class EmbeddingReport:
    """What an embedding came to."""

    vertices: int = 0
    edges: int = 0
    resumed: bool = False
    bytes_written: int = 0
    layers: list[LayerReport] = field(default_factory=list)

    def total(self, name: str) -> int:
        """The sum of a count over the layers."""
        return sum(int(getattr(layer.counts, name)) for layer in self.layers)


class Embedding:
    """Embeds a snapshot's graph; `work` holds all that is only needed until it is done.

    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; MemoryError for a small budget;
    UnsupportedModelError for a model that this can't embed.
    """

    def __init__(
        self,
        plan: Plan,
        snapshot: Snapshot,
        work: Path,
        options: EngineOptions,
        *,
        undirected: bool = False,
        order: str = "given",
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        if (layer := unsupported(plan)) is not None:
            msg = f"{layer}; out of core there are sums and means so far: `freshet run --snapshot` computes all layers"
            raise UnsupportedModelError(msg)
        self._plan, self._snapshot, self._work, self._options = plan, snapshot, work, options
        self._order, self._progress = order, progress
        self._rules = GraphRules(
            any(layer.weighted for layer in plan.layers), undirected, any(layer.skip_loops for layer in plan.layers)
        )
        pa.set_memory_pool(pa.system_memory_pool())  # gives memory back, where the others keep it for later

    def run(self, out: Path) -> EmbeddingReport:
        """Do what is left; `out` gets the folder of embeddings."""
        journal = Journal(self._work)
        report = EmbeddingReport(resumed=journal.get(PREPARED) is not None)
        prepared = self._prepared(journal)
        topology = Topology(self._work, prepared.vertices, prepared.edges, weighted=self._rules.weighted)
        engine = Engine(
            self._plan, topology, lambda: prepared.features(self._work), self._work, journal, self._options,
            self._progress,
        )  # fmt: skip
        rows = engine.run()
        ids = SavedIds(self._work, self._snapshot.id_kind)
        report.bytes_written = write_embeddings(out / EMBEDDINGS, rows, ids, self._snapshot.id_kind, self._progress)
        for file in (ids, rows, topology):
            file.close()
        report.vertices, report.edges, report.layers = prepared.vertices, prepared.edges, engine.reports
        if report.total("graduated") != report.vertices * len(self._plan.layers):
            msg = f"{report.total('graduated'):,} rows were finished, expected {report.vertices:,} in each layer"
            raise EmbedError(msg)
        return report

    def _prepared(self, journal: Journal) -> Prepared:
        found: dict[str, Any] | None = journal.get(PREPARED)
        if found is not None:
            prepared = Prepared(**found)
            prepared.check(self._work)
            return prepared
        for left in self._work.iterdir():
            if left.is_file() and left.suffix not in _KEPT:
                left.unlink()
        preparation = Preparation(self._snapshot, self._rules, self._work, self._options.memory, self._progress)
        prepared = preparation.run(self._order)
        journal.put(PREPARED, prepared._asdict())
        return prepared


def take_over(snapshot: Path, out: Path) -> None:
    """Put a snapshot's files into another folder, by links where the disk allows it.

    Raises: EmbedError when the disk is full.
    """
    for name in ("vertices.parquet", "edges.parquet"):
        target = out / name
        target.unlink(missing_ok=True)
        try:
            os.link((snapshot / name).resolve(), target)
        except OSError:
            try:
                shutil.copyfile(snapshot / name, target)
            except OSError as error:
                target.unlink(missing_ok=True)
                raise full_disk(target, error) from None
