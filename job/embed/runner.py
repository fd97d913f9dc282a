"""Runs `freshet embed`: checks, plan, the work itself, and the JSON line at its end."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from freshet.gnn.any_plan import AnyPlan, widths_of
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.plan import Plan
from freshet.job.console import ProgressDisplay, say
from freshet.job.embed import folder, serving, streaming
from freshet.job.embed.batch_job import Spread
from freshet.job.embed.needs import check_disk, disk_bytes, lines_of_placing, needs_of
from freshet.job.embed.on_device import CPU, WantedDevice, wanted_device
from freshet.job.embed.serving import Serve
from freshet.job.embed.streaming import partitioning_of
from freshet.job.errors import EXIT_DONE, EXIT_SIGTERM, JobFailed, UsageError
from freshet.job.folder import layout
from freshet.job.lifecycle.summary import unlearned_in_words
from freshet.job.local.malloc import give_freed_memory_back
from freshet.job.machine.processes import handled
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.run.model import learned_ids, plan_to_run
from freshet.kernels.processor import running
from freshet.operators.embed.embedding import EmbeddingReport
from freshet.operators.embed.engine import EngineOptions, unsupported
from freshet.operators.embed.files import EmbedError
from freshet.operators.embed.memory_plan import BudgetError
from freshet.operators.initial.image import ImageReport
from freshet.operators.snapshot.reader import MODEL_SHA256, OF_EMBED, Snapshot, open_snapshot
from freshet.operators.telemetry.figures import UNLEARNED
from freshet.state.memory.machine_memory import available_memory
from freshet.state.seed import new_seed

SERVING, STREAMING = "serving", "streaming"
_ALSO = {SERVING: (), STREAMING: (layout.IMAGE, layout.EPOCHS)}  # what there is beside the embeddings
_ENDS = {
    SERVING: "; `freshet run --snapshot` on it computes the state of the job",
    STREAMING: " and the state that `freshet run --snapshot` starts from",
}
_BY_TORCH = "computed by torch"
_PASSES = "--passes, --order, --eviction"


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
    made_for: str = SERVING
    """SERVING: embeddings alone; STREAMING: and the state that a job starts from."""
    placement: PartitioningOptions = field(default_factory=PartitioningOptions)
    """Of the operators of a streaming job; passes out of core have none."""
    spread: Spread | None = None
    """How Flink deals the steps; None: one after the other, without Flink."""
    device: str = CPU
    """What computes the layers, as --device says it; on the processor by torch with `device_memory`, else without."""
    device_memory: int | None = None


def embed(options: EmbedOptions) -> int:
    """Embed the snapshot, or go on where an earlier attempt ended, and print a JSON line.

    Raises: InputError for wrong use or bad rows; JobFailed for a full disk or a damaged file.
    """
    began = time.perf_counter()
    give_freed_memory_back()
    plan = plan_to_run(options.model, undirected=bool(options.undirected))
    if options.device != CPU or options.device_memory is not None:
        _check_device(options)
    wanted = wanted_device(options.model, options.device, options.device_memory)
    is_in_passes = options.made_for == SERVING and why_not_in_passes(plan) is None and wanted is None
    if not is_in_passes:
        _check_by_operators(options, plan)
    snapshot = open_snapshot(options.snapshot.absolute(), plan.features, edge_types=plan.edge_types or None)
    if snapshot.remark:
        say(snapshot.remark)
    learned_ids(plan, {"--snapshot": snapshot.id_kind})
    undirected = _direction(options, snapshot)
    out = options.out.absolute()
    with handled(_leave, signal.SIGTERM), folder.taken(out) as work:
        memory = options.memory or folder.told_before(out).get("--memory") or available_memory() // 2
        if is_in_passes:
            assert isinstance(plan, Plan)
            engine = EngineOptions(int(memory), options.passes, options.eviction)
            serve = Serve(engine, options.order, undirected, options.spread)
            line = _in_passes(options, serve, plan, snapshot, work)
        else:
            line = _by_operators(options, int(memory), plan, snapshot, work, undirected, wanted)
    if line["replaced"]:
        say(snapshot.repeats_in_words(line["replaced"]))
    say(f"{options.out}: a snapshot with its embeddings{_ENDS[options.made_for]}")
    print(orjson.dumps(line | {"seconds": round(time.perf_counter() - began, 2)}).decode(), flush=True)
    return EXIT_DONE


def why_not_in_passes(plan: AnyPlan) -> str | None:
    """Return why a model is not embedded by passes over edges on disk, in words; None if it is."""
    return "a model with kinds of vertices" if isinstance(plan, KindsPlan) else unsupported(plan)


def _check_device(options: EmbedOptions) -> None:
    """Refuse options that do not go with a device.

    Raises: UsageError.
    """
    option = "--device-memory" if options.device == CPU else f"--device {options.device}"
    if options.made_for != SERVING:
        msg = f"{option}: torch computes embeddings, and not the state of a stream; give --for serving, or leave it out"
        raise UsageError(msg)
    if options.spread is not None or options.placement.parts not in (None, 1):
        what = "--runtime flink" if options.spread is not None else f"--parts {options.placement.parts}"
        msg = f"{option}: one process computes on a device; leave out {what}"
        raise UsageError(msg)


def _check_by_operators(options: EmbedOptions, plan: AnyPlan) -> None:
    """Refuse options that do not fit an embedding by operators.

    Raises: UsageError.
    """
    parts = options.placement.parts or 1
    if options.spread is not None and options.spread.parallelism > parts:
        msg = f"--parallelism {options.spread.parallelism}: more than --parts {parts}; a part is made by one process"
        raise UsageError(msg)
    if options.passes is not None or (options.order, options.eviction) != (EmbedOptions.order, EmbedOptions.eviction):
        why = why_not_in_passes(plan) or ("embedded for a stream" if options.made_for == STREAMING else _BY_TORCH)
        msg = f"{_PASSES}: --model {options.model}: {why}: its edges are held in memory; leave these options out"
        raise UsageError(msg)


def _in_passes(options: EmbedOptions, serve: Serve, plan: Plan, snapshot: Snapshot, work: Path) -> dict[str, Any]:
    """Compute embeddings alone, out of core; the JSON line."""
    if options.placement != PartitioningOptions():
        say("--parts and placement are not used: without the state of a job, it is embedded in passes, not parts")
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
    _finish(work, snapshot, _info(plan, snapshot, SERVING, report, serve.undirected))
    return serving.line(report, memory) | more


def _by_operators(
    options: EmbedOptions,
    memory: int,
    plan: AnyPlan,
    snapshot: Snapshot,
    work: Path,
    mirror: bool,
    wanted: WantedDevice | None,
) -> dict[str, Any]:
    """Compute embeddings by the operators of a streaming job, whose base image is kept for a stream; the JSON line."""
    placement, made_for, rows_alone = options.placement, options.made_for, options.made_for == SERVING
    needs = needs_of(plan, snapshot, undirected=mirror)
    say(f"{snapshot.folder}: {snapshot.vertices:,} vertices, {needs.edges:,} edges, {plan.features}")
    why = _BY_TORCH if wanted else why_not_in_passes(plan)
    if rows_alone:
        say(f"--model {options.model}: {why}: its edges are held in memory, as for a stream")
    other_ways = ["or --for serving"] if why is None else []
    for line in lines_of_placing(needs, memory, placement, other_ways):
        say(line)
    linked = snapshot.folder.stat().st_dev == work.stat().st_dev
    needed = disk_bytes(needs, linked, placement.parts or 1, rows_alone=rows_alone)
    say(check_disk(needed, work.parent, folder.used_bytes(work)))
    seed = folder.told_before(work.parent).get(streaming.HASH_SEED, new_seed())
    parts, partitioning = placement.parts or 1, partitioning_of(placement, plan, snapshot, seed, undirected=mirror)
    decided = streaming.decided_by(placement, partitioning, made_for)
    _keep_told(options, work, _told_of_all(plan, snapshot, memory, mirror, wanted) | decided)
    folder.take_back(work.parent, (layout.EMBEDDINGS, *_ALSO[made_for]))
    pa.set_memory_pool(pa.system_memory_pool())  # gives memory back, where the others keep it for later
    with ProgressDisplay("embed") as bar:
        try:
            report, more = streaming.make_image(
                options.model, snapshot, work, memory, parts, partitioning, bar.update, options.spread,
                rows_alone=rows_alone, wanted=wanted,
            )  # fmt: skip
        except EmbedError as error:
            raise JobFailed(str(error)) from None
    found = streaming.learned_vertices(work)
    _finish(work, snapshot, _info(plan, snapshot, made_for, report, mirror), _ALSO[made_for])
    if words := unlearned_in_words(found):
        say(words)
    return (
        streaming.line(report, memory, parts, made_for)
        | more
        | {name: found[name] for name in (UNLEARNED,) if name in found}
    )


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


def _told_of_all(
    plan: AnyPlan, snapshot: Snapshot, memory: int, undirected: bool, wanted: WantedDevice | None = None
) -> dict[str, Any]:
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
        "--device": None if wanted is None else wanted.kind,
        "processor": dict(running()),
    }


def _info(
    plan: AnyPlan, snapshot: Snapshot, made_for: str, report: EmbeddingReport | ImageReport, undirected: bool
) -> dict[str, Any]:
    widths = widths_of(plan)
    width: dict[str, Any] = {"widths": widths} if len(widths) > 1 else {"width": plan.out_width}
    made = {"for": made_for, "epoch": 0, "vertices": report.vertices, **width, "undirected": undirected}
    made |= {"replaced": report.replaced} if report.replaced else {}
    info = snapshot.info | ({"undirected": True} if undirected else {})
    return info | {MODEL_SHA256: plan.sha256, OF_EMBED: made}
