"""Prepares a new job: plans its input, records what it was told, and computes its base image."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from freshet.files.whole import sync_tree, write_whole
from freshet.gnn.plan import Plan
from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink.pipeline import pipeline_of
from freshet.job.folder import layout, leftovers, run_file
from freshet.job.folder.job_file import SavedJob, paths_of
from freshet.job.folder.made_image import MadeImage, in_words
from freshet.job.kafka.topic_specs import as_recorded
from freshet.job.options.marks import Holds, Option
from freshet.job.options.run_config import RunConfig, that_hold
from freshet.job.options.runtime_options import FLINK_PARTS_MAX
from freshet.job.options.told import told, told_again
from freshet.job.run.outputs import Outputs, new_job_id, outlet_settings, plan_outputs, refuse_large_records
from freshet.job.run.positions import Position, known_topics, match, read_positions
from freshet.job.run.processor import of_new_job
from freshet.job.run.schemas import tell_schemas
from freshet.job.run.sources import Found, Sources, find_sources, plan_sources
from freshet.job.uris import is_remote, local_path
from freshet.operators.base_image import build_image
from freshet.operators.embed.files import EmbedError
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.factory import load_plan
from freshet.operators.initial.image import InitialImage
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.parser.core import Parser
from freshet.operators.settings import Settings, TailConfig
from freshet.operators.snapshot.reader import MODEL_SHA256, Snapshot, has_attr, open_snapshot
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.events import INT
from freshet.state.memory.machine_memory import available_memory
from freshet.state.seed import new_seed

# Epochs in a block of the local runtime, which hands on and commits by blocks: 17% more events/s than with one, and
# three times the latency where the input never pauses.
_LOCAL_EPOCHS = 8
_WORK = ".work"  # in the folder of images, while they are made


@dataclass(frozen=True)
class Job:
    """A prepared job: what the stages are told, and how much input there is."""

    settings: Settings
    sources: Sources
    outputs: Outputs = field(default_factory=Outputs)


def as_the_snapshot_was_made(config: RunConfig) -> RunConfig:
    """A new job's options, where they are not given those that its snapshot's state was made with; says which.

    Raises: UsageError where the job can't have so many parts.
    """
    made = None if config.snapshot is None else MadeImage.of(config.snapshot)
    if made is None:
        return config
    taken = {name: value for name, value in made.options().items() if name not in config.model_fields_set}
    if config.runtime == "flink":
        layers = len(load_plan(str(config.model.absolute())).layers)
        fit_parts(config, taken.get("parts", config.part_count), layers)
    defaults = config.model_copy(update={"parts": config.part_count})
    if new := {name: value for name, value in taken.items() if value != getattr(defaults, name)}:
        say(f"snapshot: its state was made with {in_words(new)}, which this job takes over")
    return config.model_copy(update=taken)


def fit_parts(config: RunConfig, parts: int, layers: int) -> None:
    """Refuse processes that leave a layer more subtasks than a snapshot's state has parts.

    Raises: UsageError, with what would fit.
    """

    def fits(parallelism: int) -> bool:
        return parallelism // (config.pipeline or pipeline_of(parallelism, None, layers, parts)) <= parts

    if fits(config.parallelism) and parts <= FLINK_PARTS_MAX:
        return
    fitting = (n for n in range(config.parallelism, 0, -(config.pipeline or 1)) if fits(n))
    expected = f"--parallelism {next(fitting)}" if parts <= FLINK_PARTS_MAX else "--runtime local"
    msg = f"--snapshot {config.snapshot}: its state was made with --parts {parts}; give {expected}"
    raise UsageError(msg)


def with_parts(config: RunConfig, layers: int) -> RunConfig:
    """A new job's options with the number of its parts: where none is given, a layer has a part for each subtask.

    Raises: UsageError where --pipeline does not fit.
    """
    if config.runtime != "flink":
        return config
    groups = pipeline_of(config.parallelism, config.pipeline, layers, config.part_count)
    return config if config.parts is not None else config.model_copy(update={"parts": config.parallelism // groups})


def prepare(config: RunConfig, out: Path) -> Job:
    """Plan the input and compute the base image of a new job.

    Raises: InputError for a bad input file.
    """
    plan = load_plan(str(config.model.absolute()))
    config = with_parts(config, len(plan.layers))
    job_id = new_job_id()
    found = find_sources(config.events)
    positions = _positions(config, plan)
    starts = _starts(config, positions, found)
    sources = plan_sources(found, starts, config, known_topics(positions))
    if not config.events_map:
        known = config.id_kind if config.snapshot is None else _snapshot(config, plan).id_kind
        tell_schemas(found.files, plan.features, known, say)
    outputs = plan_outputs(config, job_id, say)
    id_kind = _id_kind(config, plan, sources)
    refuse_large_records(config, plan.out_width, id_kind, config.id_bytes_max, outputs)
    block_events = config.epoch_events * (_LOCAL_EPOCHS if config.runtime == "local" else 1)
    processor = dict(of_new_job(config, plan))
    settings = Settings(
        model=str(config.model.absolute()),
        **paths_of(out),
        parts=config.part_count,
        partitioning=_partitioning(config, plan, id_kind, processor),
        parsing=ParserConfig(**told(config, ParserConfig) | {"block_events": block_events}),
        sealing=SealingConfig(**told(config, SealingConfig)),
        cuts=CutLogConfig(**told(config, CutLogConfig)),
        letters=LetterConfig(**told(config, LetterConfig)),
        tail=TailConfig(**told(config, TailConfig) | {"begins_empty": config.snapshot is None}),
        sources=found.names,
        topics=tuple(found.topics),
        processor=processor,
    )
    settings = settings_of_run(settings, config, out, job_id, outputs, plan.sha256)
    _make_room(config, out)
    # SAVED_JOB comes last of these files: a folder that has it can be resumed, one that has less counts as empty.
    sources.save(out)
    snapshot = None if config.snapshot is None else str(config.snapshot.absolute())
    SavedJob(settings, plan.sha256, snapshot, config.runtime, sources.topic_specs, kept_options(config)).write(out)
    run_file.update_run(
        out,
        state=run_file.STARTING,
        model=settings.model,
        model_sha256=plan.sha256,
        snapshot=snapshot,
        events=list(config.events),
        sources=list(settings.sources),
        topics=as_recorded(sources.topic_specs),
        events_map=settings.parsing.events_map,
        parts=settings.parts,
        id_type=settings.id_kind,
        id_bytes_max=settings.parsing.id_bytes_max,
        undirected=config.undirected,
        runtime=config.runtime,
        processor=settings.processor,
        **run_file.this_process(),
    )
    make_image(settings, config)
    return Job(settings, sources, outputs)


def _make_room(config: RunConfig, out: Path) -> None:
    """Remove what a run left that never began; say what of the snapshot this one does not keep."""
    if config.snapshot is not None and has_attr(config.snapshot):
        say(
            f"--snapshot {config.snapshot}: edges.parquet has a column attr: it is checked and not kept, no layer "
            "reads it and no export of this job has it"
        )
    if leftovers.clear(out):
        say(f"{out}: a run ended in it before its first epoch; what it had prepared is removed, and this one begins")


def settings_of_run(
    settings: Settings, config: RunConfig, out: Path, job_id: str, outputs: Outputs, model_sha256: str
) -> Settings:
    """A job's settings with what each of its runs says anew."""
    settings = replace(settings, job_id=job_id, outlet=outlet_settings(config, model_sha256, settings.outlet))
    parts = {name: replace(part, **told_again(config, type(part))) for name, part in settings.in_parts().items()}
    target = layout.dead_letters_to(config.dead_letters, out)
    return replace(
        settings,
        **parts
        | {
            "cuts": replace(parts["cuts"], **_cut_log(config, out, job_id)),
            "letters": replace(parts["letters"], target=target, record_bytes=outputs.letter_bytes),
        },
    )


def _cut_log(config: RunConfig, out: Path, job_id: str) -> dict[str, Any]:
    """Where the cut log lies, and what it is told: it is beside the job's checkpoints."""
    where = layout.checkpoint_dir_of_job(config.checkpoint_dir, job_id)
    folder = layout.checkpoint_folder(where, out)
    return {
        "folder": str(folder / layout.CUT_LOG),
        "checkpoints": str(folder) if config.runtime == "flink" else "",
        "checkpoints_away": is_remote(where or ""),
    }


def kept_options(config: RunConfig) -> dict[str, Any]:
    """The options that need not be repeated to go on with the job; a path as one that holds anywhere."""
    return {name: _kept(getattr(config, name), mark) for name, mark in that_hold(Holds.KEPT)}


def _kept(value: Any, mark: Option) -> Any:
    return str(local_path(value)) if mark.is_place and value is not None and not is_remote(value) else value


def make_image(settings: Settings, config: RunConfig) -> None:
    """Take the snapshot's image over, or make one; IMAGE_DONE says that it is whole.

    Raises: SnapshotError for bad rows; JobFailed for a full disk.
    """
    folder, out = Path(settings.image), Path(settings.out)
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    made = None if config.snapshot is None else MadeImage.of(config.snapshot)
    if config.snapshot is None:
        build_image(settings, ())
    elif made is not None:
        made.start(out)
        say(f"snapshot: {made.vertices:,} vertices, state taken over in {time.perf_counter() - began:.1f} s")
    else:
        vertices = _build_from_snapshot(settings, config, folder / _WORK)
        say(f"snapshot: {vertices:,} vertices, embeddings computed in {time.perf_counter() - began:.1f} s")
    sync_tree(folder)
    write_whole(out / layout.IMAGE_DONE, b"")


def _build_from_snapshot(settings: Settings, config: RunConfig, work: Path) -> int:
    plan = load_plan(settings.model)
    snapshot = _snapshot(config, plan, settings.parsing.id_bytes_max)
    memory = available_memory() // 2

    def tell(line: str) -> None:
        if not line.startswith("reading"):  # one a block
            say(line)

    try:
        report = InitialImage(settings, plan, work, memory, tell).run(snapshot.blocks)
    except EmbedError as error:
        raise JobFailed(str(error)) from None
    shutil.rmtree(work)
    return report.vertices


def _positions(config: RunConfig, plan: Plan) -> list[Position]:
    """What the snapshot says of where the events go on, unless that is to be ignored.

    Raises: UsageError when that does not fit what is given; SnapshotError.
    """
    if config.snapshot is None:
        return []
    info = _snapshot(config, plan).info
    if info.get("undirected") and "undirected" not in config.model_fields_set:
        msg = (
            f"--snapshot {config.snapshot}: the graph of an undirected job (every edge stands both ways): give "
            "--undirected to have events mirrored too, or --directed if they are not to be"
        )
        raise UsageError(msg)
    positions = read_positions(info, config.snapshot)
    return [] if config.ignore_positions else positions


def _starts(config: RunConfig, positions: list[Position], found: Found) -> dict[int, dict[int, int]]:
    """Where the events go on after the snapshot, if it says so, by source and partition.

    Raises: UsageError when that does not fit what is given.
    """
    if config.snapshot is None or not positions:
        return {}
    starts = match(positions, found, config.snapshot, say)
    if found.topics and starts.keys() >= found.topics.keys() and "start_from" in config.model_fields_set:
        msg = (
            f"--from {config.start_from}: the topics go on where {config.snapshot} stands; leave --from out, or give "
            "--ignore-positions"
        )
        raise UsageError(msg)
    return starts


def _id_kind(config: RunConfig, plan: Plan, sources: Sources) -> str:
    """The snapshot's, else `--id-type`, else the first accepted event's (which is waited for in a topic)."""
    if config.snapshot is not None:
        kind = _snapshot(config, plan).id_kind
        if config.id_kind not in (None, kind):
            msg = f"--id-type {config.id_kind}: the snapshot {config.snapshot} has {kind} ids; leave --id-type out"
            raise UsageError(msg)
        return kind
    if config.id_kind is not None:
        return config.id_kind

    def waits() -> None:
        say("waiting for the first event, which decides the kind of ids; --id-type int or string saves the wait")

    parser = Parser(plan.features, None, plan.edge_types or None, config.events_map, config.id_bytes_max)
    for _ in sources.first_events(parser, waits):
        if parser.id_kind is not None:
            return parser.id_kind
    return INT


def _snapshot(config: RunConfig, plan: Plan, id_bytes_max: int | None = None) -> Snapshot:
    assert config.snapshot is not None
    types, longest = plan.edge_types or None, id_bytes_max or config.id_bytes_max
    snapshot = open_snapshot(config.snapshot, plan.features, edge_types=types, id_bytes_max=longest)
    embedded = snapshot.info.get(MODEL_SHA256)
    if embedded not in (None, plan.sha256):
        msg = (
            f"--snapshot {config.snapshot}: has the embeddings of another model (SHA-256 {str(embedded)[:12]}, that of "
            f"--model {config.model} is {plan.sha256[:12]}); give that model, or the snapshot that was embedded"
        )
        raise UsageError(msg)
    return snapshot


def _partitioning(config: RunConfig, plan: Plan, id_kind: str, processor: dict[str, str]) -> PartitionerConfig:
    """How the graph is placed; of a snapshot with an image, as there.

    Raises: UsageError where the options do not fit that.
    """
    made = None if config.snapshot is None else MadeImage.of(config.snapshot)
    found = {
        "id_kind": id_kind,
        "forbid_typed_loops": any(layer.one_loop for layer in plan.layers),
        "edge_types": plan.edge_types or None,
        "hash_seed": new_seed(),
    }
    wanted = PartitionerConfig(**told(config, PartitionerConfig) | found)
    if made is None:
        return wanted
    made.check(config.part_count, wanted, processor)
    return made.partitioning
