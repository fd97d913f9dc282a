"""Embeddings by the operators of a streaming job, with its initial state or alone: options and computation.

Alone they are for serving, of models that the passes of operators/embed do not take.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.job.embed.batch_job import Spread, of_runtime, run_on_flink
from freshet.job.embed.on_device import DeviceEmbedding, WantedDevice
from freshet.job.embed.step import StepSettings, initial_image, settings_of
from freshet.job.folder import layout
from freshet.job.folder.made_image import MadeImage
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import option_values, written
from freshet.kernels.processor import running
from freshet.operators.factory import load_plan
from freshet.operators.graph.rules import graph_rules
from freshet.operators.initial.image import ImageReport
from freshet.operators.snapshot.reader import Snapshot
from freshet.operators.storage.learned import UNKNOWN
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED
from freshet.partitioner.config import PartitionerConfig
from freshet.state.memory.mapped_file import mapped

HASH_SEED = "hash seed"  # in what was told


def partitioning_of(
    options: PartitioningOptions, plan: AnyPlan, snapshot: Snapshot, hash_seed: int, *, undirected: bool
) -> PartitionerConfig:
    """The configuration of the Partitioner that will place this snapshot."""
    placed = option_values(options, PartitionerConfig)
    placed |= {"id_kind": snapshot.id_kind, "edge_keys": snapshot.key_kind, "hash_seed": hash_seed}
    return PartitionerConfig.of(graph_rules(plan, undirected=undirected), **placed)


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
    wanted: WantedDevice | None = None,
) -> tuple[ImageReport, dict[str, Any]]:
    """Write base image, embeddings and epochs into the work folder, or go on with that; on Flink if it is spread.

    With `rows_alone` only embeddings, by torch where a device is `wanted`. Returns what it came to, and more for the
    JSON line.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; JobFailed.
    """
    settings = settings_of(model, work, parts, partitioning)
    shared = memory if spread is None else memory // spread.parallelism
    told_steps = StepSettings(settings.to_dict(), str(snapshot.folder), shared, str(work), rows_alone=rows_alone)
    if spread is None:
        made, blocks = initial_image(told_steps, snapshot, progress)
        if wanted is None:
            report, more = made.run(blocks), of_runtime(None, None)
        else:
            by_torch = DeviceEmbedding(made, settings, load_plan(settings.model), told_steps.folder, memory, progress)
            report, more = by_torch.run(blocks, wanted)
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
