"""A whole embedding: prepare, layers, output; each finished step is kept, and a later attempt goes on behind it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from freshet.gnn.plan import Plan
from freshet.operators.embed.engine import (
    LAYER,
    Engine,
    EngineOptions,
    LayerReport,
    UnsupportedModelError,
    layer_name,
    pass_name,
    unsupported,
)
from freshet.operators.embed.files import EmbedError, FinishedSteps, full_disk
from freshet.operators.embed.hot_kernels import NEXT_USE
from freshet.operators.embed.id_numbers import SavedIds
from freshet.operators.embed.orchestrator import POLICIES
from freshet.operators.embed.output import write_embeddings
from freshet.operators.embed.prepare import FEATURES, Preparation, Prepared
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import EmbedTopology
from freshet.operators.graph.rules import graph_rules
from freshet.operators.output_folders import EMBEDDINGS
from freshet.operators.snapshot.reader import Snapshot

PREPARED, WRITTEN = "prepared", EMBEDDINGS  # the first step and the last one, in the journal
_KEPT = (".json", ".lock")  # the journal, and what the caller keeps beside it


@dataclass
class EmbeddingReport:
    """Result of an embedding."""

    vertices: int = 0
    edges: int = 0
    resumed: bool = False
    bytes_written: int = 0
    layers: list[LayerReport] = field(default_factory=list)
    replaced: int = 0  # edges of the snapshot that repeat one before them

    def total(self, name: str) -> int:
        """The sum of a count over the layers."""
        return sum(int(getattr(layer.counts, name)) for layer in self.layers)


class Embedding:
    """Embeds a snapshot's graph into `out`; `work` holds all that is only needed until it is done.

    It is made in steps: the graph is prepared, then come the passes of each layer, then the embeddings' files.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; BudgetError for a small budget;
    UnsupportedModelError for a model that this can't embed.
    """

    def __init__(
        self,
        plan: Plan,
        snapshot: Snapshot,
        work: Path,
        out: Path,
        options: EngineOptions,
        *,
        undirected: bool = False,
        order: str = "given",
        progress: Callable[[str], None] = lambda _: None,
        passes: Sequence[int] = (),
        prepare_memory: int | None = None,
    ) -> None:
        """`passes` of each layer are known beforehand where steps are dealt to several processes, as in `waves`.

        `prepare_memory`: what preparing may take, where that is more than a pass may.
        """
        if (layer := unsupported(plan)) is not None:
            msg = f"{layer}, which is not kept out of core; `freshet run --snapshot` computes all layers"
            raise UnsupportedModelError(msg)
        self._plan, self._snapshot, self._work, self._out, self._options = plan, snapshot, work, out, options
        self._order, self._progress, self._passes = order, progress, passes
        self._prepare_memory = prepare_memory or options.memory
        self._engine: Engine | None = None
        self._rules = graph_rules(plan, undirected=undirected)
        pa.set_memory_pool(pa.system_memory_pool())  # gives memory back, where the others keep it for later

    def run(self) -> EmbeddingReport:
        """Run the remaining steps."""
        resumed = self.begin()
        self.do(PREPARED)
        for number in range(1, len(self._plan.layers) + 1):
            for k in range(self._engine_of(FinishedSteps(self._work)).begin(number)):
                self.do(pass_name(number, k))
        self.do(WRITTEN)
        if self._engine is not None:
            self._engine.close()
        return self.report(resumed=resumed)

    @property
    def waves(self) -> list[list[str]]:
        """The steps by name: those of a wave read what the waves before have written, and may go side by side."""
        layers = [[pass_name(number, k) for k in range(passes)] for number, passes in enumerate(self._passes, 1)]
        return [[PREPARED], *layers, [WRITTEN]]

    def begin(self) -> bool:
        """Check what an earlier attempt has left; whether it has left anything.

        Raises: EmbedError naming a file that is not what was written. Rows are checked when they are read.
        """
        found = FinishedSteps(self._work).get(PREPARED)
        if found is not None:
            prepared = Prepared(**found)
            prepared.check(self._work)
            self._follow(prepared)  # an earlier attempt may have evicted by another rule
        return found is not None

    def do(self, name: str) -> dict[str, int]:
        """Do one step, unless it is finished, whose wave's turn it is; checksums of what it has left by file."""
        journal = FinishedSteps(self._work)
        if name == PREPARED:
            if journal.get(PREPARED) is None:
                journal.put(PREPARED, self._prepare()._asdict())
            return dict(journal.get(PREPARED)["checksums"])
        if name == WRITTEN:
            self._forget_before(len(self._plan.layers) + 1)
            if journal.get(WRITTEN) is None:
                journal.put(WRITTEN, {"bytes": self._write(journal)})
            return {}
        number, k = (int(one) for one in name.removeprefix(LAYER).split("-"))
        if k == 0:
            self._forget_before(number)
        if journal.get(name) is not None:
            return {}
        engine = self._engine_of(journal)
        engine.begin(number, self._passes[number - 1] if self._passes else None)
        return {f"{layer_name(number)}.rows": engine.do(number, k)}

    def report(self, *, resumed: bool) -> EmbeddingReport:
        """Return the result of the finished embedding.

        Raises: EmbedError where rows are missing, or there are too many.
        """
        journal = FinishedSteps(self._work)
        prepared = Prepared(**journal.get(PREPARED))
        layers = [self._layer_report(journal, number) for number in range(1, len(self._plan.layers) + 1)]
        counts, written = (prepared.vertices, prepared.edges), journal.get(WRITTEN)["bytes"]
        report = EmbeddingReport(*counts, resumed, written, layers, prepared.replaced)
        if report.total("graduated") != report.vertices * len(layers):
            msg = f"{report.total('graduated'):,} rows were finished, expected {report.vertices:,} in each layer"
            raise EmbedError(msg)
        return report

    def _layer_report(self, journal: FinishedSteps, number: int) -> LayerReport:
        passes = journal.get(layer_name(number))["passes"]
        whole = LayerReport(number, passes, 0)
        for k in range(passes):
            whole.add(LayerReport.of(journal.get(pass_name(number, k))["report"]))
        return whole

    def _prepare(self) -> Prepared:
        for left in self._work.iterdir():
            if left.is_file() and left.suffix not in _KEPT:
                left.unlink()
        preparation = Preparation(
            self._snapshot, self._rules, self._work, self._prepare_memory, self._progress, self._options.memory
        )
        prepared = preparation.run(self._order)
        self._follow(prepared)
        return prepared

    def _follow(self, prepared: Prepared) -> None:
        """Have the files that eviction by next use reads, before several passes want them."""
        if POLICIES[self._options.eviction] == NEXT_USE:
            topology = self._topology(prepared)
            topology.follow()
            topology.close()

    def _topology(self, prepared: Prepared) -> EmbedTopology:
        return EmbedTopology(self._work, prepared.vertices, prepared.edges, weighted=self._rules.weighted)

    def _engine_of(self, journal: FinishedSteps) -> Engine:
        """The engine, made when the graph is prepared; it has its contexts in memory."""
        if self._engine is None:
            prepared = Prepared(**journal.get(PREPARED))
            self._engine = Engine(
                self._plan, self._topology(prepared), lambda: prepared.features(self._work), self._work, journal,
                self._options, self._progress,
            )  # fmt: skip
        return self._engine

    def _write(self, journal: FinishedSteps) -> int:
        """Write the embeddings; the bytes of their files."""
        rows = self._engine_of(journal).written_by(len(self._plan.layers))
        ids = SavedIds(self._work, self._snapshot.id_kind)
        written = write_embeddings(self._out / EMBEDDINGS, rows, ids, self._snapshot.id_kind, self._progress)
        ids.close()
        rows.close()
        return written

    def _forget_before(self, number: int) -> None:
        """Remove what nobody reads any more once the layer before this one is done."""
        for done in range(number - 1):
            RowsFile.remove(self._work / (layer_name(done) if done else FEATURES))


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
