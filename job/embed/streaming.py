"""Embeddings by the operators of a streaming job, with its initial state or alone: options, needs and computation.

Alone they are for serving, of models that the passes of operators/embed do not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.job.embed.batch_job import Spread, of_runtime, run_on_flink
from freshet.job.embed.needs import KindsNeeds, Needs, file_bytes, kinds_needs, needs_of, text_bytes
from freshet.job.embed.step import StepSettings, initial_image, settings_of
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.made_image import MadeImage
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import option_values, written
from freshet.job.units import format_size, readable
from freshet.kernels.processor import running
from freshet.operators.graph.rules import graph_rules
from freshet.operators.initial.image import ImageReport
from freshet.operators.snapshot.reader import Snapshot
from freshet.operators.storage.kinds.learned import UNKNOWN
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED
from freshet.partitioner.config import STREAM, PartitionerConfig
from freshet.partitioner.placement.whole_graph import EDGE_BYTES, EDGES_MAX
from freshet.state.memory.mapped_file import mapped

AnyNeeds: TypeAlias = Needs | KindsNeeds

HASH_SEED = "hash seed"  # in what was told
_MIB = 1 << 20
# While the graph is placed: of an edge its rows, log, record and column of a block, and its entries of the hash index;
# of a vertex its log, record and columns; of each part that it may have a row in the record. Measured by
# scripts/bench/image.py.
_EDGE_BYTES, _REPLICATED_EDGE_BYTES, _VERTEX_BYTES, _ROW_BYTES = 64, 48, 120, 16
_RELATION_EDGE_BYTES = 8  # of an edge where vertices have kinds
_WHOLE_EDGE_BYTES = 32  # of it while METIS works (partitioner/placement/whole_graph.py): log and index alone
_EVENT_BYTES = 33  # on the disk


def partitioning_of(
    options: PartitioningOptions, plan: AnyPlan, snapshot: Snapshot, hash_seed: int, *, undirected: bool
) -> PartitionerConfig:
    """The configuration of the Partitioner that will place this snapshot."""
    placed = option_values(options, PartitionerConfig)
    placed |= {"id_kind": snapshot.id_kind, "hash_seed": hash_seed}
    return PartitionerConfig.of(graph_rules(plan, undirected=undirected), **placed)


def needs_to_stream(plan: AnyPlan, snapshot: Snapshot, *, undirected: bool) -> AnyNeeds:
    """Return the needs of embedding a snapshot for a stream.

    Raises: KindsError where edges between two kinds are to be undirected.
    """
    if isinstance(plan, KindsPlan):
        return kinds_needs(plan, snapshot, text_bytes(snapshot), file_bytes(snapshot), undirected=undirected)
    return needs_of(plan, snapshot, undirected=undirected)


def placing_memory(needs: AnyNeeds, placement: PartitioningOptions) -> int:
    """The private memory of the step that takes most: the graph's topology is placed as a whole."""
    parts = placement.parts or 1
    edge = _EDGE_BYTES + _REPLICATED_EDGE_BYTES * (parts > 1) + _RELATION_EDGE_BYTES * isinstance(needs, KindsNeeds)
    if (
        parts > 1
        and PartitionerConfig(**option_values(placement, PartitionerConfig)).places_whole
        and needs.edges <= EDGES_MAX
    ):
        edge = max(edge, EDGE_BYTES + _WHOLE_EDGE_BYTES)
    rows = min(parts * needs.vertices, needs.vertices + 2 * needs.edges)  # an edge brings two replicas at most
    return edge * needs.edges + _VERTEX_BYTES * needs.vertices + _ROW_BYTES * rows + 2 * needs.text + 4 * _MIB


def memory_lines(
    needs: AnyNeeds, memory: int, placement: PartitioningOptions, other_ways: Sequence[str] = ()
) -> list[str]:
    """Describe, for people, the shares of the steps in the budget.

    `other_ways`: what else to advise where the budget is too small.
    Raises: UsageError when it is.
    """
    placing = placing_memory(needs, placement)
    if placing > memory:
        ways = [f"give {format_size(-(-placing // _MIB) * _MIB)} or more"]
        stream = placement.model_copy(update={"snapshot_placement": STREAM})
        ways += ["or --snapshot-placement stream"] if placing_memory(needs, stream) <= memory else []
        ways += other_ways
        msg = (
            f"--memory {format_size(memory)}: too little to place {needs.vertices:,} vertices and {needs.edges:,} "
            f"edges, which are held in memory; {', '.join(ways)}"
        )
        raise UsageError(msg)
    return [
        f"memory: {readable(memory)}, beside what Python and its libraries take",
        f"  placing the graph: up to {readable(placing)}",
        f"  layers: tables in mapped files, of which sums in {readable(memory // 2)} are written at random at a time",
        f"  a later `freshet run` on this graph: about {readable(needs.job_memory)} in its tables",
    ]


def disk_bytes(needs: AnyNeeds, linked: bool, parts: int, *, rows_alone: bool = False) -> int:
    """The most that lies on the disk at a time: with `rows_alone` one operator's tables, and partial synopses of it."""
    tables = max(needs.operator_bytes) * (1 + (parts > 1)) if rows_alone else needs.job_memory
    kept = tables + needs.out_bytes
    events = (_EVENT_BYTES + 8 * needs.edge_width) * needs.edges + _EVENT_BYTES * needs.vertices
    events += needs.feature_bytes + 2 * needs.text
    return kept + kept // 2 + 2 * needs.passed_bytes + events + (0 if linked else needs.files)


def make_image(
    model: Path,
    snapshot: Snapshot,
    work: Path,
    memory: int,
    parts: int,
    partitioning: PartitionerConfig,
    progress: Callable[[str], None],
    spread: Spread | None = None,
    *,
    rows_alone: bool = False,
) -> tuple[ImageReport, dict[str, Any]]:
    """Write base image, embeddings and epochs into the work folder, or go on with that; on Flink if it is spread.

    With `rows_alone` only embeddings. Returns what it came to, and more for the JSON line.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; JobFailed.
    """
    settings = settings_of(model, work, parts, partitioning)
    shared = memory if spread is None else memory // spread.parallelism
    told_steps = StepSettings(settings.to_dict(), str(snapshot.folder), shared, str(work), rows_alone=rows_alone)
    if spread is None:
        made, blocks = initial_image(told_steps, snapshot, progress)
        report, more = made.run(blocks), of_runtime(None, None)
    else:
        report, peak = run_on_flink(told_steps, snapshot, spread, progress)
        more = of_runtime(spread, peak)
    if not rows_alone:
        MadeImage.describe(work / layout.IMAGE, parts, partitioning, report.vertices, running())
    return report, more


def learned_vertices(work: Path) -> dict[str, int]:
    """Return the numbers of vertices of kinds with learned rows, and of those without such a row, in a made image."""
    columns = [mapped(path, "i1") for path in sorted((work / layout.IMAGE).glob("storage0-*/*.looked_up.bin"))]
    if not columns:
        return {}
    return {
        LEARNED: sum(int(np.count_nonzero(one)) for one in columns),
        UNLEARNED: sum(int(np.count_nonzero(one == UNKNOWN)) for one in columns),
    }


def decided_by(placement: PartitioningOptions, partitioning: PartitionerConfig, made_for: str) -> dict[str, Any]:
    """The options that an attempt which goes on must have as well."""
    options = {written(name): value for name, value in placement.model_dump().items()}
    return options | {"--parts": placement.parts or 1, "--for": made_for, HASH_SEED: partitioning.hash_seed}


def line(report: ImageReport, memory: int, parts: int, made_for: str) -> dict[str, Any]:
    """Return the result for the JSON line."""
    return {
        "vertices": report.vertices,
        "edges": report.edges,
        "replaced": report.replaced,
        "for": made_for,
        "memory": memory,
        "parts": parts,
        "resumed": report.resumed,
    }
