"""Runs `freshet embed`: checks, plan, the work itself, and the JSON line at its end."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from gnn.plan import Plan
from gnn.processor import running
from job.console import Progress, say
from job.embed import folder
from job.embed.needs import check_disk, memory_lines, needs_of
from job.errors import EXIT_DONE, EXIT_SIGTERM, JobFailed, UsageError
from job.local.malloc import give_freed_memory_back
from job.machine.signals import handled
from operators.embed.embedding import Embedding, EmbeddingReport
from operators.embed.engine import EngineOptions
from operators.embed.files import EmbedError
from operators.embed.memory_plan import MemoryError
from operators.factory import load_plan
from operators.snapshot.reader import MODEL_SHA256, Snapshot, open_snapshot

SERVING = "serving"


@dataclass(frozen=True)
class EmbedOptions:
    """What `freshet embed` is told."""

    model: Path
    snapshot: Path
    out: Path
    memory: int | None = None
    """In bytes; None: what an earlier attempt had, else half of what is free."""
    passes: int | None = None
    eviction: str = "min-pending"
    order: str = "given"
    undirected: bool | None = None


def embed(options: EmbedOptions) -> int:
    """Embed the snapshot, or go on where an earlier attempt ended, and print a JSON line.

    Raises: InputError for wrong use or bad rows; JobFailed for a full disk or a damaged file.
    """
    began = time.perf_counter()
    give_freed_memory_back()
    plan = load_plan(str(options.model.absolute()))
    snapshot = open_snapshot(options.snapshot.absolute(), plan.in_width, edge_types=plan.edge_types or None)
    undirected = _direction(options, snapshot)
    out = options.out.absolute()
    memory = options.memory or folder.told_before(out).get("--memory") or psutil.virtual_memory().available // 2
    engine = EngineOptions(int(memory), options.passes, options.eviction)
    with handled(_leave, signal.SIGTERM), folder.taken(out) as work:
        _tell(options, engine, plan, snapshot, work, undirected)
        if folder.keep_told(work, _told(options, engine, plan, snapshot, undirected)):
            say(f"{options.out}: going on where an earlier attempt ended")
        report = _run(options, engine, plan, snapshot, work, undirected)
        try:
            folder.finish(out, snapshot.folder, _info(plan, snapshot, report, undirected))
        except EmbedError as error:
            raise JobFailed(str(error)) from None
    line = _line(report, engine, time.perf_counter() - began)
    say(f"{options.out}: a snapshot with its embeddings; `freshet run --snapshot` on it computes the job's state anew")
    print(orjson.dumps(line).decode(), flush=True)
    return EXIT_DONE


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


def _tell(
    options: EmbedOptions, engine: EngineOptions, plan: Plan, snapshot: Snapshot, work: Path, undirected: bool
) -> None:
    """Say what it will need; refuse what is not there."""
    needs = needs_of(plan, snapshot, undirected=undirected)
    say(f"{snapshot.folder}: {snapshot.vertices:,} vertices, {needs.edges:,} edges, {plan.in_width} features")
    for line in memory_lines(needs, engine):
        say(line)
    linked = snapshot.folder.stat().st_dev == work.stat().st_dev
    say(check_disk(needs.disk(engine, options.order, linked), work.parent, folder.used_bytes(work)))


def _run(
    options: EmbedOptions, engine: EngineOptions, plan: Plan, snapshot: Snapshot, work: Path, undirected: bool
) -> EmbeddingReport:
    with Progress("embed") as bar:
        try:
            return Embedding(
                plan, snapshot, work, engine, undirected=undirected, order=options.order, progress=bar.update
            ).run(work)
        except MemoryError as error:
            msg = f"--memory: {error}; give more"
            raise UsageError(msg) from None
        except EmbedError as error:
            raise JobFailed(str(error)) from None


def _told(
    options: EmbedOptions, engine: EngineOptions, plan: Plan, snapshot: Snapshot, undirected: bool
) -> dict[str, Any]:
    """What an attempt that goes on must have been told too: all that decides what lies in the work folder."""
    files = {}
    for name in ("vertices.parquet", "edges.parquet"):
        stat = (snapshot.folder / name).stat()
        files[name] = [stat.st_size, stat.st_mtime_ns]
    return {
        "model": plan.sha256,
        "snapshot": str(snapshot.folder),
        "snapshot files": files,
        "--undirected": undirected,
        "--order": options.order,
        "--memory": engine.memory,
        "--passes": engine.passes,
        "processor": dict(running()),
    }


def _info(plan: Plan, snapshot: Snapshot, report: EmbeddingReport, undirected: bool) -> dict[str, Any]:
    made = {"for": SERVING, "epoch": 0, "vertices": report.vertices, "width": plan.out_width, "undirected": undirected}
    info = snapshot.info | ({"undirected": True} if undirected else {})
    return info | {MODEL_SHA256: plan.sha256, folder.OF_EMBED: made}


def _line(report: EmbeddingReport, engine: EngineOptions, seconds: float) -> dict[str, Any]:
    return {
        "vertices": report.vertices,
        "edges": report.edges,
        "for": SERVING,
        "memory": engine.memory,
        "passes": [layer.passes for layer in report.layers],
        "graduated": report.total("graduated"),
        "evicted": report.total("evicted"),
        "reloaded": report.total("reloaded"),
        "bytes_read": sum(layer.bytes_read for layer in report.layers),
        "bytes_written": sum(layer.bytes_written for layer in report.layers) + report.bytes_written,
        "resumed": report.resumed,
        "seconds": round(seconds, 2),
        "layers": [layer.record() for layer in report.layers],
    }
