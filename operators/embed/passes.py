"""Chooses how many passes a layer takes: what one reads again in order against what the cold store costs at random."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np

from freshet.gnn.plan import Context, LayerPlan
from freshet.operators.embed.cold_store import ColdStore
from freshet.operators.embed.memory_plan import BudgetError, LayerColumns, layer_memory, passes_without_cold_store
from freshet.operators.embed.orchestrator import PassCounts
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import EmbedTopology
from freshet.state.memory.machine_memory import available_memory

_PROBE_BYTES = 32 << 20
_PROBE_ROWS, _PROBES, _RELOADS = 2048, 16, 8
_PASSES_MAX = 64


class Trier(Protocol):
    """Interface of the engine for the choice of passes."""

    @property
    def topology(self) -> EmbedTopology:
        """The edges."""

    @property
    def rows(self) -> RowsFile | None:
        """Input of the layer."""

    @property
    def context(self) -> Context:
        """Properties of the in-edges of vertices."""

    @property
    def folder(self) -> Path:
        """Folder of the cold store."""

    @property
    def memory(self) -> int:
        """The budget."""

    def trial(
        self, layer: LayerPlan, slots: int, first: int, last: int, chunk_rows: int, chunk_edges: int
    ) -> PassCounts:
        """Return what a pass would evict and reload."""

    def say(self, line: str) -> None:
        """Say how far it is."""


class Speeds(NamedTuple):
    """Measured speeds of this machine."""

    read_bytes_s: float
    """Of rows read in order, what they send computed."""
    evict_s: float
    """Of one row, to the cold store."""
    reload_s: float


def measure(engine: Trier, layer: LayerPlan, columns: int, *, cached: bool) -> Speeds:
    """Read rows in order, and move rows to a cold store and back; `cached`: what was cold will be in the page cache."""
    rows, context, folder = engine.rows, engine.context, engine.folder
    assert rows is not None
    reading, total = [], 0
    for block in range(rows.blocks):
        began = time.perf_counter()
        x, (first, last) = rows.read(block), rows.rows_of(block)
        layer.send(x, context.at(slice(first, last)))
        reading.append((time.perf_counter() - began) / x.nbytes)
        total += x.nbytes
        if total > _PROBE_BYTES:
            break
    cold = ColdStore(folder / "probe", columns, _PROBES * _PROBE_ROWS)
    source, some = np.zeros((_PROBE_ROWS, columns)), np.arange(_PROBE_ROWS, dtype=np.int32)
    # twice: the room of a new file costs more than what comes later
    for slots in [cold.put(source, some) for _ in range(_PROBES)]:
        cold.fetch(slots, source, some)
    evicting, held = [], []
    for _ in range(_PROBES):
        began = time.perf_counter()
        held.append(cold.put(source, some))
        evicting.append((time.perf_counter() - began) / _PROBE_ROWS)
    if not cached:
        cold.drop_cache()
    reloading = []
    for chosen in np.split(np.sort(np.concatenate(held)[::_PROBES]), _RELOADS):
        began = time.perf_counter()
        cold.fetch(np.ascontiguousarray(chosen), source, some[: len(chosen)])
        reloading.append((time.perf_counter() - began) / len(chosen))
    cold.close()
    # medians: what else the machine does meanwhile hits some of them
    return Speeds(1 / max(median(reading), 1e-12), median(evicting), median(reloading))


def cheapest(engine: Trier, number: int, layer: LayerPlan, shape: LayerColumns, block_rows: int) -> int:
    """The number of passes with the least expected time, of 1, 2, 4, ... and the fewest that need no cold store.

    What a number of passes evicts and reloads is counted by a trial over the topology, without rows.
    """
    topology, rows = engine.topology, engine.rows
    assert rows is not None
    vertices, memory = topology.vertices, engine.memory
    most = min(_PASSES_MAX, -(-vertices // block_rows))
    enough = passes_without_cold_store(memory, vertices, shape, block_rows, most) or most
    if enough == 1:
        return 1
    candidates = sorted({1 << k for k in range(enough.bit_length()) if 1 << k < enough} | {enough})
    cached = vertices * shape.columns * 8 < available_memory() // 2
    speeds = measure(engine, layer, shape.columns, cached=cached)
    best, best_s, look_s = enough, float("inf"), 0.0
    for passes in candidates:
        seconds = passes * rows.size / speeds.read_bytes_s
        try:
            planned = layer_memory(memory, vertices, shape, passes, block_rows, next_use=False)
        except BudgetError:
            continue
        if planned.needs_cold_store:
            last = min(vertices, planned.destinations)
            began = time.perf_counter()
            counts = engine.trial(layer, planned.slots, 0, last, planned.chunk_rows, planned.chunk_edges)
            look_s = min(look_s or float("inf"), time.perf_counter() - began)
            seconds += passes * (counts.evicted * speeds.evict_s + counts.reloaded * speeds.reload_s)
        seconds += passes * look_s  # the edges, which every pass looks through
        engine.say(f"layer {number}: about {seconds:.1f} s of reading and moving in {passes} passes")
        if seconds < best_s:
            best, best_s = passes, seconds
    return best
