"""The initial state of a streaming job: options, needs and computation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from freshet.gnn.plan import Plan
from freshet.job.embed.batch_job import Spread, of_runtime, run_on_flink
from freshet.job.embed.needs import Needs
from freshet.job.embed.step import StepSettings, initial_image, settings_of
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.made_image import MadeImage
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import written
from freshet.job.options.told import told
from freshet.job.units import format_size, readable
from freshet.kernels.processor import running
from freshet.operators.graph.rules import graph_rules
from freshet.operators.initial.image import ImageReport
from freshet.operators.snapshot.reader import Snapshot
from freshet.partitioner.config import STREAM, PartitionerConfig
from freshet.partitioner.placement.whole_graph import EDGE_BYTES, EDGES_MAX

HASH_SEED = "hash seed"  # in what was told
_MIB = 1 << 20
# While the graph is placed: of an edge its rows, log, record and column of a block, and its entries of the hash index;
# of a vertex its log, record and columns; of each part that it may have a row in the record. Measured by
# scripts/bench/image.py.
_EDGE_BYTES, _REPLICATED_EDGE_BYTES, _VERTEX_BYTES, _ROW_BYTES = 64, 48, 120, 16
_WHOLE_EDGE_BYTES = 32  # of it while METIS works (partitioner/placement/whole_graph.py): log and index alone
_EVENT_BYTES = 33  # on the disk


def partitioning_of(
    options: PartitioningOptions, plan: Plan, snapshot: Snapshot, hash_seed: int, *, undirected: bool
) -> PartitionerConfig:
    """The configuration of the Partitioner that will place this snapshot."""
    placed = told(options, PartitionerConfig)
    placed |= {"id_kind": snapshot.id_kind, "hash_seed": hash_seed}
    return PartitionerConfig.of(graph_rules(plan, undirected=undirected), **placed)


def placing_memory(needs: Needs, placement: PartitioningOptions) -> int:
    """The private memory of the step that takes most: the graph's topology is placed as a whole."""
    parts = placement.parts or 1
    edge = _EDGE_BYTES + _REPLICATED_EDGE_BYTES * (parts > 1)
    if parts > 1 and PartitionerConfig(**told(placement, PartitionerConfig)).places_whole and needs.edges <= EDGES_MAX:
        edge = max(edge, EDGE_BYTES + _WHOLE_EDGE_BYTES)
    rows = min(parts * needs.vertices, needs.vertices + 2 * needs.edges)  # an edge brings two replicas at most
    return edge * needs.edges + _VERTEX_BYTES * needs.vertices + _ROW_BYTES * rows + 2 * needs.text + 4 * _MIB


def memory_lines(needs: Needs, memory: int, placement: PartitioningOptions) -> list[str]:
    """Describe, for people, the shares of the steps in the budget.

    Raises: UsageError when it is too small.
    """
    placing = placing_memory(needs, placement)
    if placing > memory:
        stream = placement.model_copy(update={"snapshot_placement": STREAM})
        other = " or --snapshot-placement stream," if placing_memory(needs, stream) <= memory else ""
        msg = (
            f"--memory {format_size(memory)}: too little to place {needs.vertices:,} vertices and {needs.edges:,} "
            f"edges, which a streaming job holds in memory; give {format_size(-(-placing // _MIB) * _MIB)} or more,"
            f"{other} or --for serving"
        )
        raise UsageError(msg)
    return [
        f"memory: {readable(memory)}, beside what Python and its libraries take",
        f"  placing the graph: up to {readable(placing)}",
        f"  layers: tables in mapped files, of which sums in {readable(memory // 2)} are written at random at a time",
        f"  a later `freshet run` on this graph: about {readable(needs.job_memory)} in its tables",
    ]


def disk_bytes(needs: Needs, linked: bool) -> int:
    """The most that lies on the disk at a time."""
    kept = needs.job_memory + 4 * needs.shapes[-1].out * needs.vertices
    sent = 4 * max(needs.features.width, *(shape.sent + shape.out for shape in needs.shapes)) * needs.vertices
    edge, vertex = _EVENT_BYTES + 8 * needs.features.edge_width, _EVENT_BYTES + needs.features.row_bytes
    events = edge * needs.edges + vertex * needs.vertices + 2 * needs.text
    return kept + kept // 2 + 2 * sent + events + (0 if linked else needs.files)


def make_image(
    model: Path,
    snapshot: Snapshot,
    work: Path,
    memory: int,
    parts: int,
    partitioning: PartitionerConfig,
    progress: Callable[[str], None],
    spread: Spread | None = None,
) -> tuple[ImageReport, dict[str, Any]]:
    """Write base image, embeddings and epochs into the work folder, or go on with that; on Flink if it is spread.

    Returns what it came to, and more for the JSON line.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; JobFailed.
    """
    settings = settings_of(model, work, parts, partitioning)
    shared = memory if spread is None else memory // spread.parallelism
    told_steps = StepSettings(settings.to_dict(), str(snapshot.folder), shared, str(work))
    if spread is None:
        made, blocks = initial_image(told_steps, snapshot, progress)
        report, more = made.run(blocks), of_runtime(None, None)
    else:
        report, peak = run_on_flink(told_steps, snapshot, spread, progress)
        more = of_runtime(spread, peak)
    MadeImage.describe(work / layout.IMAGE, parts, partitioning, report.vertices, running())
    return report, more


def decided_by(placement: PartitioningOptions, partitioning: PartitionerConfig) -> dict[str, Any]:
    """The options that an attempt which goes on must have as well."""
    options = {written(name): value for name, value in placement.model_dump().items()}
    return options | {"--parts": placement.parts or 1, "--for": "streaming", HASH_SEED: partitioning.hash_seed}


def line(report: ImageReport, memory: int, parts: int) -> dict[str, Any]:
    """Return the result for the JSON line."""
    return {
        "vertices": report.vertices,
        "edges": report.edges,
        "for": "streaming",
        "memory": memory,
        "parts": parts,
        "resumed": report.resumed,
    }
