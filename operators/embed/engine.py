"""Takes a prepared graph through a model's layers, out of core: layer by layer, and each in one pass or several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnn.errors import InputError
from gnn.plan import Context, LayerPlan, Plan
from gnn.synopses import InvertibleSynopsis
from operators.embed.chunks import Ahead, Chunks
from operators.embed.cold_store import ColdStore
from operators.embed.files import EmbedError
from operators.embed.graduation import Graduation
from operators.embed.hot_kernels import NEXT_USE, Items, Task
from operators.embed.journal import Journal
from operators.embed.memory_plan import LayerMemory, Shape, file_block_rows, layer_memory, shape_of
from operators.embed.orchestrator import POLICIES, Orchestrator, PassCounts, make_hot, run_pass
from operators.embed.passes import cheapest
from operators.embed.rows_file import RowsFile
from operators.embed.topology import Topology

COLD = "cold"
_NO_USE = np.empty(0, np.int32)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class EngineOptions:
    """What decides how the work is done; none of it changes a bit of the rows."""

    memory: int
    passes: int | None = 1
    """Of each layer; None: what measured bandwidths make cheapest."""
    eviction: str = "min-pending"
    slots: int | None = None
    """Of the hot store, instead of what the budget allows: for measurements."""


@dataclass
class LayerReport:
    """What a layer came to."""

    layer: int
    passes: int
    slots: int
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    counts: PassCounts = field(default_factory=PassCounts)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def _name(number: int) -> str:
    """Of a layer's files and of its step in the journal."""
    return f"layer{number}"


def _report_of(record: dict[str, Any]) -> LayerReport:
    return LayerReport(**record | {"counts": PassCounts(**record["counts"])})


class UnsupportedModelError(InputError):
    """A model with a layer that this engine can't sum."""


def unsupported(plan: Plan) -> str | None:
    """The first layer whose synopsis is no sum or mean, in words; None where all are."""
    for number, layer in enumerate(plan.layers, 1):
        if not isinstance(layer.synopsis, InvertibleSynopsis):
            return f"layer {number} ({layer.name}) keeps a {type(layer.synopsis).__name__}"
    return None


def pending_of(layer: LayerPlan, context: Context, first: int, last: int) -> np.ndarray:
    """The messages that these vertices wait for, (n,) int32; an own row that is read is one more."""
    pending = context.count[first:last] + np.int32(layer.reads_self)
    if layer.skip_loops:
        pending = pending - ~np.isnan(context.loop[first:last])
    return pending.astype(np.int32)


class Engine:
    """The layers of one embedding; the rows of the last finished one are `rows`.

    Invariant: a layer's rows depend on the graph, its order and the model alone (tests/unit/operators/embed).
    """

    def __init__(
        self,
        plan: Plan,
        topology: Topology,
        features: Callable[[], RowsFile],
        folder: Path,
        journal: Journal,
        options: EngineOptions,
        progress: Progress = lambda _: None,
    ) -> None:
        """`features` opens the raw features, unless a layer is finished and they are gone."""
        self._plan, self._topology, self._folder, self._journal = plan, topology, folder, journal
        self._options, self._progress = options, progress
        self._features = features
        self.rows: RowsFile | None = None
        self._context = topology.contexts()
        self.reports: list[LayerReport] = []

    def run(self) -> RowsFile:
        """Compute what is not finished yet; returns the file of the last layer's rows."""
        finished = sum(self._is_finished(number) for number in range(1, len(self._plan.layers) + 1))
        if not finished:
            self.rows = self._features()
        for number, layer in enumerate(self._plan.layers, 1):
            if number < finished:
                self.reports.append(_report_of(self._journal.get(_name(number))["passes"][-1]["report"]))
                continue
            before, self.rows = self.rows, self._layer(number, layer)
            if before is not None:
                before.remove()
        assert self.rows is not None  # a model has a layer
        return self.rows

    def _is_finished(self, number: int) -> bool:
        begun = self._journal.get(_name(number))
        return begun is not None and len(begun["passes"]) == begun["chosen"]

    def _layer(self, number: int, layer: LayerPlan) -> RowsFile:
        vertices, shape = self._topology.vertices, shape_of(layer)
        name = _name(number)
        block_rows = file_block_rows(self._options.memory, vertices, shape.out)
        begun = self._journal.get(name) or {}
        done = len(begun.get("passes", ()))
        memory = self._memory(number, layer, block_rows, begun)
        path = self._folder / name
        out = RowsFile(path, vertices, shape.out, block_rows, shuffled=True, new=not done)
        report = LayerReport(number, memory.passes, memory.slots)
        for former in begun.get("passes", ()):
            out.restore(former["rows"])
            report = _report_of(former["report"])
        for k in range(done, memory.passes):
            began = time.perf_counter()
            self._progress(f"layer {number} of {len(self._plan.layers)}, pass {k + 1} of {memory.passes}")
            self._pass(number, layer, shape, memory, k, out, report)
            out.sync()
            report.seconds += time.perf_counter() - began
            begun = {
                "chosen": memory.passes,
                "passes": [*begun.get("passes", ()), {"rows": out.record(), "report": report.record()}],
            }
            self._journal.put(name, begun)
        self.reports.append(report)
        return out

    def _memory(self, number: int, layer: LayerPlan, block_rows: int, begun: dict[str, Any]) -> LayerMemory:
        """The layer's memory, in as many passes as were begun with, or are asked for, or are cheapest."""
        shape, vertices = shape_of(layer), self._topology.vertices
        passes = begun.get("chosen", self._options.passes)
        if passes is None:
            passes = cheapest(self, number, layer, shape, block_rows)
        passes = max(1, min(passes, -(-vertices // block_rows)))
        next_use = POLICIES[self._options.eviction] == NEXT_USE
        planned = layer_memory(self._options.memory, vertices, shape, passes, block_rows, next_use=next_use)
        return planned if self._options.slots is None else replace(planned, slots=self._options.slots)

    def _pass(
        self,
        number: int,
        layer: LayerPlan,
        shape: Shape,
        memory: LayerMemory,
        k: int,
        out: RowsFile,
        report: LayerReport,
    ) -> None:
        blocks = range(out.blocks * k // memory.passes, out.blocks * (k + 1) // memory.passes)
        if not blocks:
            return
        for block in blocks:
            out.forget(block)
        first, last = out.rows_of(blocks[0])[0], out.rows_of(blocks[-1])[1]
        cold = ColdStore(self._folder / COLD, shape.columns, last - first)
        graduation = Graduation(layer, self._context, out, memory.block_rows, shape.own, memory.update_rows)
        chunks = Chunks(self._topology, memory.chunk_rows, memory.chunk_edges, self.rows, layer, self._context)
        orchestrator = self._orchestrator(layer, shape, memory.slots, first, last, cold, graduation)
        ahead = Ahead(iter(chunks), 2, "sources")
        ended = False
        try:
            counts = run_pass(self._watched(ahead, number, k, memory.passes, orchestrator.counts), orchestrator)
            graduation.close()
            ended = True
        finally:
            ahead.close()
            if not ended:
                graduation.drop()
            cold.close()
        if graduation.graduated != last - first:
            msg = f"layer {number}: {graduation.graduated:,} rows were written, expected {last - first:,}"
            raise EmbedError(msg)
        report.counts.add(counts)
        report.bytes_read += chunks.bytes_read + 8 * shape.columns * counts.reloaded
        report.bytes_written += (4 * shape.out + 4) * (last - first) + 8 * shape.columns * counts.evicted

    def _watched(
        self, chunks: Iterable[Items], number: int, k: int, passes: int, counts: PassCounts
    ) -> Iterator[Items]:
        vertices = max(1, self._topology.vertices)
        for chunk in chunks:
            self._progress(
                f"layer {number}, pass {k + 1} of {passes}: {100.0 * chunk.source / vertices:.0f}% of the rows read, "
                f"{counts.graduated:,} vertices done, {counts.evicted:,} evicted"
            )
            yield chunk

    def _orchestrator(
        self,
        layer: LayerPlan,
        shape: Shape,
        slots: int,
        first: int,
        last: int,
        cold: ColdStore,
        graduation: Graduation | None,
    ) -> Orchestrator:
        policy = POLICIES[self._options.eviction]
        use = self._topology.follow()[first:last] if policy == NEXT_USE else _NO_USE
        columns, own = (0, 0) if graduation is None else (shape.columns, shape.own)
        store = make_hot(pending_of(layer, self._context, first, last), use, min(slots, last - first), columns)
        task = Task(
            first, self._topology.vertices, layer.skip_loops, layer.reads_self, shape.own_from, own,
            layer.weighted and graduation is not None, policy,
        )  # fmt: skip
        return Orchestrator(store, cold, task, graduation)

    def trial(
        self, layer: LayerPlan, slots: int, first: int, last: int, chunk_rows: int, chunk_edges: int
    ) -> PassCounts:
        """What a pass over these destinations would evict and reload: the same pass without rows."""
        cold = ColdStore(self._folder / COLD, 0, last - first)
        orchestrator = self._orchestrator(layer, shape_of(layer), slots, first, last, cold, None)
        try:
            return run_pass(Chunks(self._topology, chunk_rows, chunk_edges), orchestrator)
        finally:
            cold.close()

    def tell(self, line: str) -> None:
        """Say how far it is."""
        self._progress(line)

    @property
    def topology(self) -> Topology:
        """The edges."""
        return self._topology

    @property
    def context(self) -> Context:
        """What vertices know of their in-edges."""
        return self._context

    @property
    def memory(self) -> int:
        """The budget."""
        return self._options.memory

    @property
    def folder(self) -> Path:
        """Where rows and the cold store lie."""
        return self._folder
