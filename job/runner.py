"""`freshet run`: prepares a job (input plan, base image), runs it on Flink or locally, and sums it up."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from gnn.plan import Plan
from job import run_file
from job.config import RunConfig
from job.errors import EXIT_DONE, JobFailed, UsageError, one_line
from job.progress import Progress, Stats
from job.spec import JobSpec
from job.summary import closing_summary, progress
from operators.event_files import EventFileError, list_files, plan_chunks
from operators.factory import Settings, load_plan
from operators.initial import build_image
from operators.parsing import read_plan, write_plan
from operators.snapshot import Snapshot, SnapshotError, open_snapshot
from partitioner.events import INT

_JOB, _IMAGE_DONE = "job", "complete"


def say(text: str) -> None:
    """A line of progress for people."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Job:
    """A prepared job: what the stages are told, and how much input there is."""

    settings: Settings
    chunks: int
    records: int
    resumed: bool


def run(config: RunConfig) -> int:
    """Run a job to its end; returns the exit code. The last line on stdout is the summary.

    Raises: UsageError for wrong use or a bad input file; JobFailed with the root cause.
    """
    out = config.out.absolute()
    clock = StartUp()
    job = _resume(config, out) if config.resume else _prepare(config, out)
    took = clock.reached("prepared")
    say(f"prepared in {took:.1f} s: {job.settings.parts} parts, {job.records:,} records of input")
    code = _run_local(job, config, out, clock) if config.runtime == "local" else _run_flink(job, config, out, clock)
    run_file.update_run(out, startup_seconds=clock.seconds)
    print(orjson.dumps(closing_summary(out)).decode(), flush=True)
    return code


class StartUp:
    """Seconds from the start of the command to the milestones of its start-up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = psutil.Process().create_time()

    def reached(self, milestone: str) -> float:
        """Note a milestone, the first time; returns when it was reached."""
        return self.seconds.setdefault(milestone, round(time.time() - self._began, 2))


# -- preparation ------------------------------------------------------------------------------------------------


def _prepare(config: RunConfig, out: Path) -> Job:
    """Plan the input and compute the base image of a new job."""
    plan = load_plan(str(config.model.absolute()))
    try:
        chunks = plan_chunks(config.events)
        id_kind = _id_kind(config, plan, chunks)
    except (EventFileError, SnapshotError) as error:
        raise UsageError(str(error)) from None
    out.mkdir(parents=True, exist_ok=True)
    folder = out / _JOB
    write_plan(chunks, folder / "chunks.jsonl")
    settings = Settings(
        model=str(config.model.absolute()),
        out=str(out),
        parts=config.part_count,
        partitioner=_partitioning(config, plan),
        image=str(out / "base"),
        sources=tuple(file.name for file in list_files(config.events)),
        chunks=str(folder / "chunks.jsonl"),
        id_kind=id_kind,
        epoch_events=config.epoch_events,
        epoch_ms=config.epoch_ms,
        marker_interval_ms=max(1, int(config.checkpoint_interval_s * 1000)),
        cut_log=str(_checkpoints(config, out) / "cuts.jsonl"),
        dead_letters=str(config.dead_letters_path.absolute()),
    )
    _save(folder, settings, plan, config)
    _build_image(settings, config)
    return Job(settings, len(chunks), sum(chunk.count for chunk in chunks), resumed=False)


def _id_kind(config: RunConfig, plan: Plan, chunks: list[Any]) -> str:
    """The snapshot's, else `--id-type`, else the first accepted event's."""
    if config.snapshot is not None:
        kind = _snapshot(config, plan).id_kind
        if config.id_type not in (None, kind):
            message = f"--id-type {config.id_type}: the snapshot {config.snapshot} has {kind} ids; leave --id-type out"
            raise UsageError(message)
        return kind
    if config.id_type is not None:
        return config.id_type
    from operators.event_files import ChunkReader
    from operators.parser import Parser

    parser, reader = Parser(plan.in_width, None, plan.edge_types or None), ChunkReader()
    for chunk in chunks:
        parser.parse_chunk(chunk, reader.read(chunk))
        if parser.id_kind is not None:
            return parser.id_kind
    return INT


def _snapshot(config: RunConfig, plan: Plan) -> Snapshot:
    assert config.snapshot is not None
    return open_snapshot(config.snapshot, plan.in_width, edge_types=plan.edge_types or None)


def _partitioning(config: RunConfig, plan: Plan) -> dict[str, Any]:
    return {
        "strategy": config.partitioner,
        "hdrf_lambda": config.hdrf_lambda,
        "hdrf_epsilon": config.hdrf_epsilon,
        "hybrid_threshold": config.hybrid_threshold,
        "undirected": config.undirected,
        "forbid_typed_loops": any(layer.skip_loops for layer in plan.layers),
        "edge_types": plan.edge_types or None,
    }


def _save(folder: Path, settings: Settings, plan: Plan, config: RunConfig) -> None:
    snapshot = str(config.snapshot.absolute()) if config.snapshot else None
    content = {"settings": settings.to_dict(), "model_sha256": plan.sha256, "snapshot": snapshot}
    run_file.write_json(folder / "job.json", content)
    run_file.update_run(
        Path(settings.out),
        state=run_file.STARTING,
        model=settings.model,
        model_sha256=plan.sha256,
        snapshot=snapshot,
        events=list(config.events),
        sources=list(settings.sources),
        parts=settings.parts,
        id_type=settings.id_kind,
        undirected=config.undirected,
        runtime=config.runtime,
    )


def _build_image(settings: Settings, config: RunConfig) -> None:
    """Take the snapshot through the cores; the marker file says that the image is whole."""
    folder = Path(settings.image)
    shutil.rmtree(folder, ignore_errors=True)
    plan = load_plan(settings.model)
    began = time.perf_counter()
    try:
        blocks = _snapshot(config, plan).blocks() if config.snapshot else ()
        vertices = build_image(settings, blocks, say if config.snapshot else lambda _: None)
    except SnapshotError as error:
        raise UsageError(str(error)) from None
    if config.snapshot:
        say(f"snapshot: {vertices:,} vertices, embeddings computed in {time.perf_counter() - began:.1f} s")
    (folder / _IMAGE_DONE).touch()


def _resume(config: RunConfig, out: Path) -> Job:
    """Take a job up where it stopped; what decides its results comes from when it began."""
    try:
        saved = orjson.loads((out / _JOB / "job.json").read_bytes())
    except FileNotFoundError:
        message = f"--resume: {out} holds no job; start one without --resume"
        raise UsageError(message) from None
    settings = Settings.from_dict(saved["settings"])
    plan = load_plan(str(config.model.absolute()))
    if plan.sha256 != saved["model_sha256"]:
        message = f"--model {config.model}: another model than the job in {out} was begun with; give that one"
        raise UsageError(message)
    chunks = read_plan(Path(settings.chunks))
    try:
        now = plan_chunks(config.events)
    except EventFileError as error:
        raise UsageError(str(error)) from None
    if [(c.name, c.first, c.count) for c in now] != [(c.name, c.first, c.count) for c in chunks]:
        names = ", ".join(settings.sources)
        message = f"--events: not the files that the job in {out} reads ({names}), or they changed"
        raise UsageError(message)
    if config.parts is not None and config.parts != settings.parts:
        message = f"--parts {config.parts}: the job in {out} has {settings.parts} for its life; leave --parts out"
        raise UsageError(message)
    if not (Path(settings.image) / _IMAGE_DONE).exists():
        _build_image(settings, config)
    return Job(settings, len(chunks), sum(chunk.count for chunk in chunks), resumed=True)


# -- running ----------------------------------------------------------------------------------------------------


def _watch(job: Job, out: Path, bar: Progress, clock: StartUp) -> Callable[[], None]:
    """A callback that shows the newest figures, at most five times a second."""
    last = [0.0]

    def update() -> None:
        now = time.monotonic()
        if now - last[0] < 0.2:
            return
        last[0] = now
        figures = progress(out)
        seconds, events = figures["seconds"], figures["events"]
        if figures["epochs"]:
            clock.reached("first_epoch")
        bar.update(
            Stats(
                events=events,
                events_per_s=events / seconds if seconds else 0.0,
                epoch=figures["epoch"],
                rows=figures["rows"],
                lag_events=max(0, job.records - events),
                latency_ms_p50=figures["latency_ms_p50"],
                latency_ms_p99=figures["latency_ms_p99"],
            )
        )

    return update


def _run_local(job: Job, config: RunConfig, out: Path, clock: StartUp) -> int:
    from job.flink_runtime import stop_signals
    from job.local_runtime import LocalRuntime

    runtime = LocalRuntime(job.settings, job.chunks, out / "state")
    run_file.update_run(out, state=run_file.RUNNING, runtime="local", pids={"client": os.getpid()}, started_ms=_now_ms())
    with Progress() as bar, stop_signals() as caught:
        update = _watch(job, out, bar, clock)

        def on_progress() -> None:
            if caught:
                runtime.stop()
            update()

        try:
            runtime.run(on_progress)
        except Exception as error:
            run_file.update_run(out, state=run_file.FAILED, error=one_line(error), ended_ms=_now_ms())
            raise JobFailed(one_line(error)) from error
    profile = {name: round(seconds, 3) for name, seconds in runtime.times.seconds.items()}
    state = run_file.STOPPED if caught else run_file.FINISHED
    run_file.update_run(out, state=state, profile_seconds=profile, ended_ms=_now_ms())
    if caught:
        say(f"stopped; the output is complete up to epoch {progress(out)['epoch']}; go on with --resume latest")
        return 128 + caught[0]
    return EXIT_DONE


def _run_flink(job: Job, config: RunConfig, out: Path, clock: StartUp) -> int:
    from job.flink_errors import JobFailedError
    from job.flink_runtime import FlinkRun, run_job

    spec = _spec(job, config, out)

    def started(run: FlinkRun) -> None:
        clock.reached("job_submitted")
        say(f"job {run.job_id}; Flink UI at http://{run.rest_address}")

    with Progress() as bar:
        try:
            watch = _watch(job, out, bar, clock)
            result = run_job(spec, started, watch, lambda cause: say(f"restarted after: {cause}"))
        except JobFailedError as error:
            raise JobFailed(str(error)) from error
    if result.signal or result.state == run_file.STOPPED:
        say(f"stopped with savepoint {result.savepoint}; the output is complete up to epoch {progress(out)['epoch']}")
    return 128 + result.signal if result.signal else EXIT_DONE


def _spec(job: Job, config: RunConfig, out: Path) -> JobSpec:
    memory = {} if config.memory_bytes is None else {"managed_mb": max(64, config.memory_bytes >> 20)}
    return JobSpec(
        out=str(out),
        parts=job.settings.parts,
        layers=len(load_plan(job.settings.model).layers),
        stage=job.settings.to_dict(),
        chunks=job.chunks,
        stay=config.stay,
        epoch_ms=config.epoch_ms,
        parallelism=config.parallelism,
        cluster=config.cluster,
        backend=config.state_backend,
        checkpoint_dir=config.checkpoint_dir or "",
        checkpoint_interval_ms=int(config.checkpoint_interval_s * 1000),
        resume=_state_to_resume(job, config, out),
        **memory,  # type: ignore[arg-type]
    )


def _state_to_resume(job: Job, config: RunConfig, out: Path) -> str | None:
    """The checkpoint or savepoint; a job that died before its first checkpoint begins again, by the same cuts."""
    from job.checkpoints import NoCheckpointError, find_state

    if not config.resume:
        return None
    try:
        return str(find_state(config.resume, _checkpoints(config, out)))
    except NoCheckpointError as error:
        if config.resume != "latest":
            raise UsageError(str(error)) from None
        say("no checkpoint was complete: the job begins again, with the same epochs")
        return None


def _checkpoints(config: RunConfig, out: Path) -> Path:
    return Path(config.checkpoint_dir).absolute() if config.checkpoint_dir else out / "checkpoints"


def _now_ms() -> int:
    return int(time.time() * 1e3)
