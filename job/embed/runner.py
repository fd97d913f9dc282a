"""Runs `freshet embed`: checks, plan, the work itself, and the JSON line at its end."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from freshet.gnn.plan import Plan
from freshet.job.console import ProgressDisplay, say
from freshet.job.embed import folder, serving, streaming
from freshet.job.embed.batch_job import Spread
from freshet.job.embed.needs import check_disk, needs_of
from freshet.job.embed.serving import Serve
from freshet.job.embed.step import plan_to_embed
from freshet.job.embed.streaming import partitioning_of
from freshet.job.errors import EXIT_DONE, EXIT_SIGTERM, JobFailed, UsageError
from freshet.job.folder import layout
from freshet.job.local.malloc import give_freed_memory_back
from freshet.job.machine.signals import handled
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.kernels.processor import running
from freshet.operators.embed.engine import EngineOptions, unsupported
from freshet.operators.embed.files import EmbedError
from freshet.operators.embed.memory_plan import BudgetError
from freshet.operators.snapshot.reader import MODEL_SHA256, Snapshot, open_snapshot
from freshet.state.memory.machine_memory import available_memory
from freshet.state.seed import new_seed

SERVING, STREAMING = "serving", "streaming"
_ALSO = layout.IMAGE, layout.EPOCHS  # what a stream gets beside the embeddings


@dataclass(frozen=True)
class EmbedOptions:
    """Options of `freshet embed`."""

    model: Path
    snapshot: Path
    out: Path
    memory: int | None = None
    """In bytes; None: what an earlier attempt had, else half of what is free."""
    passes: int | None = None
    eviction: str = "min-pending"
    order: str = "given"
    undirected: bool | None = None
    placement: PartitioningOptions | None = None
    """Of the state that a streaming job starts from; None: embeddings alone, for serving."""
    spread: Spread | None = None
    """How Flink deals the steps; None: one after the other, without Flink."""


def embed(options: EmbedOptions) -> int:
    """Embed the snapshot, or go on where an earlier attempt ended, and print a JSON line.

    Raises: InputError for wrong use or bad rows; JobFailed for a full disk or a damaged file.
    """
    began = time.perf_counter()
    give_freed_memory_back()
    plan = plan_to_embed(str(options.model.absolute()))
    if options.placement is None and (layer := unsupported(plan)) is not None:
        msg = (
            f"--model {options.model}: {layer}, which is not kept out of core by --for serving; leave that out: "
            "embeddings for streaming have all layers, with the graph's edges in memory"
        )
        raise UsageError(msg)
    snapshot = open_snapshot(options.snapshot.absolute(), plan.features, edge_types=plan.edge_types or None)
    undirected = _direction(options, snapshot)
    out = options.out.absolute()
    with handled(_leave, signal.SIGTERM), folder.taken(out) as work:
        memory = options.memory or folder.told_before(out).get("--memory") or available_memory() // 2
        if options.placement is None:
            engine = EngineOptions(int(memory), options.passes, options.eviction)
            serve = Serve(engine, options.order, undirected, options.spread)
            line = _for_serving(options, serve, plan, snapshot, work)
            end = "a snapshot with its embeddings; `freshet run --snapshot` on it computes the job's state anew"
        else:
            line = _for_streaming(options, options.placement, int(memory), plan, snapshot, work, undirected)
            end = "a snapshot with its embeddings and the state that `freshet run --snapshot` starts from"
    say(f"{options.out}: {end}")
    print(orjson.dumps(line | {"seconds": round(time.perf_counter() - began, 2)}).decode(), flush=True)
    return EXIT_DONE


def _for_serving(options: EmbedOptions, serve: Serve, plan: Plan, snapshot: Snapshot, work: Path) -> dict[str, Any]:
    """Embeddings alone; the JSON line."""
    needs = needs_of(plan, snapshot, undirected=serve.undirected)
    say(f"{snapshot.folder}: {snapshot.vertices:,} vertices, {needs.edges:,} edges, {plan.features}")
    serving.check(needs, serve, snapshot, work)
    memory = serve.engine.memory
    _keep_told(options, work, _told_of_all(plan, snapshot, memory, serve.undirected) | serving.told(serve))
    folder.take_back(work.parent, (layout.EMBEDDINGS,))
    try:
        report, more = serving.make_embeddings(options.model, plan, snapshot, work, serve, needs)
    except BudgetError as error:
        msg = f"--memory: {error}; give more"
        raise UsageError(msg) from None
    _finish(work, snapshot, _info(plan, snapshot, SERVING, report.vertices, serve.undirected))
    return serving.line(report, memory) | more


def _for_streaming(
    options: EmbedOptions,
    placement: PartitioningOptions,
    memory: int,
    plan: Plan,
    snapshot: Snapshot,
    work: Path,
    mirror: bool,
) -> dict[str, Any]:
    """Embeddings and the base image; the JSON line."""
    needs = needs_of(plan, snapshot, undirected=mirror)
    say(f"{snapshot.folder}: {snapshot.vertices:,} vertices, {needs.edges:,} edges, {plan.features}")
    for line in streaming.memory_lines(needs, memory, placement):
        say(line)
    linked = snapshot.folder.stat().st_dev == work.stat().st_dev
    say(check_disk(streaming.disk_bytes(needs, linked), work.parent, folder.used_bytes(work)))
    seed = folder.told_before(work.parent).get(streaming.HASH_SEED, new_seed())
    parts, partitioning = placement.parts or 1, partitioning_of(placement, plan, snapshot, seed, undirected=mirror)
    told = _told_of_all(plan, snapshot, memory, mirror) | streaming.decided_by(placement, partitioning)
    _keep_told(options, work, told)
    folder.take_back(work.parent, (layout.EMBEDDINGS, *_ALSO))
    pa.set_memory_pool(pa.system_memory_pool())  # gives memory back, where the others keep it for later
    with ProgressDisplay("embed") as bar:
        try:
            report, more = streaming.make_image(
                options.model, snapshot, work, memory, parts, partitioning, bar.update, options.spread
            )
        except EmbedError as error:
            raise JobFailed(str(error)) from None
    _finish(work, snapshot, _info(plan, snapshot, STREAMING, report.vertices, mirror), _ALSO)
    return streaming.line(report, memory, parts) | more


def _keep_told(options: EmbedOptions, work: Path, told: dict[str, Any]) -> None:
    if folder.keep_told(work, told):
        say(f"{options.out}: going on where an earlier attempt ended")


def _finish(work: Path, snapshot: Snapshot, info: dict[str, Any], also: tuple[str, ...] = ()) -> None:
    try:
        folder.finish(work.parent, snapshot.folder, info, also)
    except EmbedError as error:
        raise JobFailed(str(error)) from None


def _leave(_number: int, _frame: object) -> None:
    sys.exit(EXIT_SIGTERM)


def _direction(options: EmbedOptions, snapshot: Snapshot) -> bool:
    if snapshot.info.get("undirected") and options.undirected is None:
        msg = (
            f"--snapshot {options.snapshot}: the graph of an undirected job: give --undirected, or --directed to take "
            "its edges as they stand"
        )
        raise UsageError(msg)
    return bool(options.undirected)


def _told_of_all(plan: Plan, snapshot: Snapshot, memory: int, undirected: bool) -> dict[str, Any]:
    files = {}
    for name in ("vertices.parquet", "edges.parquet"):
        stat = (snapshot.folder / name).stat()
        files[name] = [stat.st_size, stat.st_mtime_ns]
    return {
        "model": plan.sha256,
        "snapshot": str(snapshot.folder),
        "snapshot files": files,
        "--undirected": undirected,
        "--memory": memory,
        "processor": dict(running()),
    }


def _info(plan: Plan, snapshot: Snapshot, made_for: str, vertices: int, undirected: bool) -> dict[str, Any]:
    made = {"for": made_for, "epoch": 0, "vertices": vertices, "width": plan.out_width, "undirected": undirected}
    info = snapshot.info | ({"undirected": True} if undirected else {})
    return info | {MODEL_SHA256: plan.sha256, folder.OF_EMBED: made}
