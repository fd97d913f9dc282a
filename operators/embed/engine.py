"""Takes a prepared graph through a model's layers, out of core: layer by layer, and each in one pass or several."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshet.errors import InputError
from freshet.gnn.plan import Context, LayerPlan, Plan
from freshet.operators.aggregates.registry import is_known
from freshet.operators.embed.chunks import Ahead, Chunks
from freshet.operators.embed.cold_store import ColdStore
from freshet.operators.embed.files import EmbedError, FinishedSteps
from freshet.operators.embed.graduation import Graduation
from freshet.operators.embed.hot_kernels import NEXT_USE, Items, Task
from freshet.operators.embed.memory_plan import (
    LayerColumns,
    LayerMemory,
    held_passes,
    layer_memory,
    output_block_rows,
    shape_of,
)
from freshet.operators.embed.orchestrator import POLICIES, Orchestrator, PassCounts, make_hot, run_pass
from freshet.operators.embed.passes import cheapest
from freshet.operators.embed.range_pass import RangePass
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import EmbedTopology

COLD, LAYER = "cold", "layer"
_NO_USE = np.empty(0, np.int32)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class EngineOptions:
    """Options that affect time and memory, but no bit of the rows."""

    memory: int
    passes: int | None = 1
    """Of each layer; None: what measured bandwidths make cheapest."""
    eviction: str = "min-pending"
    slots: int | None = None
    """Of the hot store, instead of what the budget allows: for measurements."""


@dataclass
class LayerReport:
    """Result of a layer, or of a pass of it."""

    layer: int
    passes: int
    slots: int
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    counts: PassCounts = field(default_factory=PassCounts)

    def record(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @staticmethod
    def of(record: dict[str, Any]) -> LayerReport:
        """The report of its JSON."""
        return LayerReport(**record | {"counts": PassCounts(**record["counts"])})

    def add(self, other: LayerReport) -> None:
        """Add what another pass of the layer came to."""
        self.slots = max(self.slots, other.slots)
        self.seconds += other.seconds
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        self.counts.add(other.counts)


def layer_name(number: int) -> str:
    """Return the name of a layer's files, and of its number of passes in the journal."""
    return f"{LAYER}{number}"


def pass_name(number: int, k: int) -> str:
    """Return the name of a pass of a layer, in the journal."""
    return f"{layer_name(number)}-{k}"


class _Pass(NamedTuple):
    """One pass of a layer: what it reads, and the blocks of `out` that it writes."""

    number: int
    layer: LayerPlan
    shape: LayerColumns
    memory: LayerMemory
    k: int
    out: RowsFile
    blocks: range
    report: LayerReport

    @property
    def span(self) -> tuple[int, int]:
        """The first vertex that it writes, and the one behind the last."""
        return self.out.rows_of(self.blocks[0])[0], self.out.rows_of(self.blocks[-1])[1]


class UnsupportedModelError(InputError):
    """A model with a layer that this engine can't do."""


def unsupported(plan: Plan) -> str | None:
    """The first layer that this engine can't do, in words; None where there is none."""
    for number, layer in enumerate(plan.layers, 1):
        if layer.edge.attributes:
            return f"layer {number} ({layer.name}) reads attributes of edges"
        if layer.synopsis.needs_all:
            return f"layer {number} ({layer.name}) keeps {layer.synopsis.name}"
        if not is_known(layer.synopsis):
            return f"layer {number} ({layer.name}) keeps a {type(layer.synopsis).__name__}"
    return None


def pending_of(layer: LayerPlan, context: Context, first: int, last: int) -> np.ndarray:
    """The messages that these vertices wait for, (n,) int32; an own row that is read is one more.

    Of self-loops that are skipped one alone is left out.
    """
    messages = context.at(slice(first, last)).in_edges(loops=not layer.edge.skip_loops)
    return (messages + np.int32(layer.reads_self)).astype(np.int32)


class Engine:
    """The layers of one embedding, pass by pass; a pass is there for a range of destinations.

    The passes of a layer read what the layer before has written, and nothing of each other: processes may do them side
    by side.
    Invariant: a layer's rows depend on the graph, its order and the model alone (tests/unit/operators/embed).
    """

    def __init__(
        self,
        plan: Plan,
        topology: EmbedTopology,
        features: Callable[[], RowsFile],
        folder: Path,
        journal: FinishedSteps,
        options: EngineOptions,
        progress: Progress = lambda _: None,
    ) -> None:
        """`features` opens the raw features, which are there until the first layer is finished."""
        self._plan, self._topology, self._folder, self._journal = plan, topology, folder, journal
        self._options, self._progress = options, progress
        self._features = features
        self.rows: RowsFile | None = None
        self._rows_of = -1  # the layer that wrote `rows`, 0 for the features
        self._context = topology.contexts()

    def begin(self, number: int, passes: int | None = None) -> int:
        """Decide in how many passes a layer goes, unless that is decided; `passes` overrides the options."""
        begun = self._journal.get(layer_name(number))
        if begun is None:
            layer, vertices = self._plan.layers[number - 1], self._topology.vertices
            shape = shape_of(layer)
            given = passes or self._options.passes
            if shape.held and passes is None:
                given = held_passes(self._options.memory, vertices, shape, given or 1)
            block_rows = output_block_rows(self._options.memory, vertices, shape, given)
            if given is None:
                self._open(number - 1)
                given = cheapest(self, number, layer, shape, block_rows)
            # passes that were dealt to others stay as many, though there be nothing to do for some
            passes = passes or max(1, min(given, -(-vertices // block_rows)))
            begun = {"passes": passes, "block_rows": block_rows}
            self._journal.put(layer_name(number), begun)
        return int(begun["passes"])

    def do(self, number: int, k: int) -> int:
        """Do a pass of a layer that was begun, unless it is finished; the checksum of its rows."""
        name = pass_name(number, k)
        done = self._journal.get(name)
        if done is None:
            done = self._pass_of(number, k)
            self._journal.put(name, done)
        return zlib.crc32(np.array(done["rows"]["crc"], np.uint32).data)

    def _pass_of(self, number: int, k: int) -> dict[str, Any]:
        layer, begun, began = self._plan.layers[number - 1], self._journal.get(layer_name(number)), time.perf_counter()
        passes, block_rows, shape = begun["passes"], begun["block_rows"], shape_of(layer)
        rows, path = self._open(number - 1), self._folder / layer_name(number)
        memory = self._memory(shape, passes, block_rows, rows.block_rows)
        out = RowsFile(path, self._topology.vertices, shape.out, block_rows, shuffled=True, new=True)
        blocks = range(out.blocks * k // passes, out.blocks * (k + 1) // passes)
        report = LayerReport(number, passes, memory.slots)
        self._progress(f"layer {number} of {len(self._plan.layers)}, pass {k + 1} of {passes}")
        try:
            if blocks:
                do = self._held_pass if shape.held else self._pass
                do(_Pass(number, layer, shape, memory, k, out, blocks, report))
                out.sync()
            report.seconds = time.perf_counter() - began
            return {"rows": out.record(blocks), "report": report.record()}
        finally:
            out.close()

    def _open(self, number: int) -> RowsFile:
        """Open the output of a layer; 0: the features."""
        if self.rows is not None and self._rows_of == number:
            return self.rows
        if self.rows is not None:
            self.rows.close()
        self.rows, self._rows_of = self._features() if number == 0 else self.written_by(number), number
        return self.rows

    def written_by(self, number: int) -> RowsFile:
        """The rows of a finished layer."""
        begun, width = self._journal.get(layer_name(number)), shape_of(self._plan.layers[number - 1]).out
        path = self._folder / layer_name(number)
        rows = RowsFile(path, self._topology.vertices, width, begun["block_rows"], shuffled=True, new=False)
        for k in range(begun["passes"]):
            rows.restore(self._journal.get(pass_name(number, k))["rows"])
        return rows

    def close(self) -> None:
        """Close the open files, the topology too."""
        if self.rows is not None:
            self.rows.close()
        self._topology.close()

    def _memory(self, shape: LayerColumns, passes: int, block_rows: int, reading_rows: int) -> LayerMemory:
        next_use = POLICIES[self._options.eviction] == NEXT_USE
        planned = layer_memory(
            self._options.memory, self._topology.vertices, shape, passes, block_rows,
            next_use=next_use, reading_rows=reading_rows,
        )  # fmt: skip
        return planned if self._options.slots is None else replace(planned, slots=self._options.slots)

    def _chunks(self, this: _Pass) -> Chunks:
        return Chunks(
            self._topology, this.memory.chunk_rows, this.memory.chunk_edges, self.rows, this.layer, self._context
        )

    def _pending(self, layer: LayerPlan, first: int, last: int) -> np.ndarray:
        pending = pending_of(layer, self._context, first, last)
        return pending - self._topology.more_loops(first, last) if layer.edge.skip_loops else pending

    def _pass(self, this: _Pass) -> None:
        (first, last), layer, shape, memory = this.span, this.layer, this.shape, this.memory
        cold = ColdStore(self._folder / f"{COLD}-{pass_name(this.number, this.k)}", shape.columns, last - first)
        graduation = Graduation(layer, self._context, this.out, memory.block_rows, shape.own, memory.update_rows)
        chunks = self._chunks(this)
        orchestrator = self._orchestrator(layer, shape, memory.slots, first, last, cold, graduation)
        ahead = Ahead(iter(chunks), 2, "sources")
        ended = False
        try:
            counts = run_pass(self._watched(ahead, this, orchestrator.counts), orchestrator)
            graduation.close()
            ended = True
        finally:
            ahead.close()
            if not ended:
                graduation.drop()
            cold.close()
        if graduation.graduated != last - first:
            msg = f"layer {this.number}: {graduation.graduated:,} rows were written, expected {last - first:,}"
            raise EmbedError(msg)
        this.report.counts.add(counts)
        this.report.bytes_read += chunks.bytes_read + 8 * shape.columns * counts.reloaded
        this.report.bytes_written += (4 * shape.out + 4) * (last - first) + 8 * shape.columns * counts.evicted

    def _held_pass(self, this: _Pass) -> None:
        """A pass whose destinations are all in memory."""
        (first, last), layer, report = this.span, this.layer, this.report
        held = RangePass(layer, this.shape, this.memory, first, last)
        chunks = self._chunks(this)
        ahead = Ahead(iter(chunks), 2, "sources")
        try:
            held.run(chunks, self._watched(ahead, this, held.counts))
        finally:
            ahead.close()
        expected = self._pending(layer, first, last) - np.int32(layer.reads_self)
        report.counts.add(held.finish(expected, self._context, this.out, this.blocks))
        report.bytes_read += chunks.bytes_read
        report.bytes_written += (4 * this.shape.out + 4) * (last - first)

    def _watched(self, chunks: Iterable[Items], this: _Pass, counts: PassCounts) -> Iterator[Items]:
        vertices = max(1, self._topology.vertices)
        name = f"layer {this.number}, pass {this.k + 1} of {this.memory.passes}"
        for chunk in chunks:
            self._progress(
                f"{name}: {100.0 * chunk.source / vertices:.0f}% of the rows read, "
                f"{counts.graduated:,} vertices done, {counts.evicted:,} evicted"
            )
            yield chunk

    def _orchestrator(
        self,
        layer: LayerPlan,
        shape: LayerColumns,
        slots: int,
        first: int,
        last: int,
        cold: ColdStore,
        graduation: Graduation | None,
    ) -> Orchestrator:
        policy = POLICIES[self._options.eviction]
        use = self._topology.follow()[first:last] if policy == NEXT_USE else _NO_USE
        columns, own = (0, 0) if graduation is None else (shape.columns, shape.own)
        store = make_hot(self._pending(layer, first, last), use, min(slots, last - first), columns)
        task = Task(
            first, self._topology.vertices, layer.edge.skip_loops, layer.reads_self, shape.own_from, own,
            layer.edge.weighted and graduation is not None, policy,
        )  # fmt: skip
        return Orchestrator(store, cold, task, graduation)

    def trial(
        self, layer: LayerPlan, slots: int, first: int, last: int, chunk_rows: int, chunk_edges: int
    ) -> PassCounts:
        """Return what a pass over these destinations would evict and reload, by the same pass without rows."""
        cold = ColdStore(self._folder / COLD, 0, last - first)
        orchestrator = self._orchestrator(layer, shape_of(layer), slots, first, last, cold, None)
        try:
            return run_pass(Chunks(self._topology, chunk_rows, chunk_edges), orchestrator)
        finally:
            cold.close()

    def say(self, line: str) -> None:
        """Say how far it is."""
        self._progress(line)

    @property
    def topology(self) -> EmbedTopology:
        """The edges."""
        return self._topology

    @property
    def context(self) -> Context:
        """Properties of the in-edges of vertices."""
        return self._context

    @property
    def memory(self) -> int:
        """The budget."""
        return self._options.memory

    @property
    def folder(self) -> Path:
        """Folder of rows and of the cold store."""
        return self._folder
