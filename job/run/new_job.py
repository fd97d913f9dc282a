"""Prepares a new job: its model, its sources and outputs, its record and folder, and its base image."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from freshet.files.whole import sync_tree
from freshet.gnn.any_plan import names_of_returned, widths_of
from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.folder import layout, leftovers, run_file
from freshet.job.folder.job_file import SavedJob, paths_of
from freshet.job.folder.returned_kinds import logs_of, refuse_alike
from freshet.job.folder.run_file import write_begun
from freshet.job.options.run_config import RunConfig, option_values
from freshet.job.run.column_report import tell_columns
from freshet.job.run.first_events import decide_kinds, tell_other_ids
from freshet.job.run.key_rules import key_rules
from freshet.job.run.model import PreparedModel, Start, learned_ids, read_model
from freshet.job.run.outputs import Outputs, claim_topics, new_job_id, plan_outputs, refuse_large_records
from freshet.job.run.positions import Position, covered, known_topics, match, read_positions, times_of
from freshet.job.run.processor import of_new_job
from freshet.job.run.schemas import tell_fields, tell_schemas
from freshet.job.run.settings import BEGUN, cuts_of_new_job, kept_options, settings_of_run
from freshet.job.run.sources import FoundSources, Sources, TopicReading, find_sources, plan_sources
from freshet.operators.base_image import build_image, write_initial_image
from freshet.operators.embed.files import EmbedError
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.graph.rules import graph_rules
from freshet.operators.initial.image import ImageReport
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.parser.core import Parser
from freshet.operators.parser.registry.decoder import decoder_of
from freshet.operators.settings import Settings, TailConfig
from freshet.operators.sink.epoch_files import write_epoch_0
from freshet.operators.snapshot.reader import OF_EMBED, Snapshot, dropped_columns
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.ids import INT
from freshet.state.memory.machine_memory import available_memory
from freshet.state.seed import new_seed
from freshet.state.served.times import NOTHING_KNOWN


def write_folders(saved: SavedJob, ends: Ends, start: Start | None, out: Path) -> None:
    """Remove what an earlier run left that never began, and record the job."""
    folder = None if start is None else start.graph.folder
    for name in () if start is None else dropped_columns(folder, start.graph.features):
        say(
            f"--snapshot {folder}: edges.parquet has a column {name}: it is checked and not kept, no layer reads it "
            "and no export of this job has it"
        )
    if leftovers.clear(out):
        say(f"{out}: a run ended in it before its first epoch; what it had prepared is removed, and this one begins")
    refuse_alike(out, saved.settings.written)
    # SAVED_JOB comes last of these files: a folder that has it can be resumed, one that has less counts as empty.
    ends.sources.save(out)
    if saved.settings.inner_widths:
        (out / layout.INNER).mkdir(exist_ok=True)
    saved.write(out)
    fields = saved.run_fields() | {"events": list(ends.given)}
    run_file.update_run(out, state=run_file.STARTING, **fields, **run_file.this_process())


# Epochs in a block of the local runtime, which hands on and commits by blocks: 17% more events/s than with one, and
# three times the latency where the input never pauses.
_LOCAL_EPOCHS = 8
_WORK = ".work"  # in the folder of images, while they are made


def make_image(settings: Settings, start: Start | None, *, ignore_positions: bool = False) -> None:
    """Take the snapshot's image over, or make one; IMAGE_DONE says that it is whole.

    Epoch 0 has the positions and times that the snapshot covers, unless the input is read from its beginning.

    Raises: SnapshotError for bad rows; JobFailed for a full disk.
    """
    folder, out = Path(settings.image), Path(settings.out)
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    if start is None:
        build_image(settings, ())
    elif start.made is not None:
        start.made.start(out)
        if repeats := dict(start.graph.info.get(OF_EMBED, {})).get("replaced"):
            say(start.graph.repeats_in_words(repeats))
        say(f"snapshot: {start.made.vertices:,} vertices, state taken over in {time.perf_counter() - began:.1f} s")
    else:
        made = _compute(settings, start.graph, folder / _WORK)
        if made.replaced:
            say(start.graph.repeats_in_words(made.replaced))
        say(f"snapshot: {made.vertices:,} vertices, embeddings computed in {time.perf_counter() - began:.1f} s")
    if start is not None and not ignore_positions:
        _write_coverage(settings, start.graph)
    sync_tree(folder)
    write_begun(out)


def _write_coverage(settings: Settings, graph: Snapshot) -> None:
    """Write what the snapshot covers into epoch 0 of each change log."""
    starts = covered(read_positions(graph.info, graph.folder), settings.sources)
    times = times_of(graph.info, graph.folder)
    if starts or times != NOTHING_KNOWN:
        for log in logs_of(Path(settings.out)):
            write_epoch_0(log.epochs, settings.sources, starts, times)


def _compute(settings: Settings, graph: Snapshot, work: Path) -> ImageReport:
    """Compute the image of a graph."""

    def report(line: str) -> None:
        if not line.startswith("reading"):  # one a block
            say(line)

    memory = min(available_memory() // 2, settings.memory.budget_bytes or sys.maxsize)
    try:
        made = write_initial_image(settings, graph.blocks, work, memory, report)
    except EmbedError as error:
        raise JobFailed(str(error)) from None
    shutil.rmtree(work, ignore_errors=True)
    return made


@dataclass(frozen=True)
class Ends:
    """The sources of a new job (`given` as its options name them), its output topics, and the kind of its ids."""

    given: tuple[str, ...]
    found: FoundSources
    sources: Sources
    outputs: Outputs
    id_kind: str
    edge_keys: str = ""


def plan_ends(config: RunConfig, model: PreparedModel, job_id: str) -> Ends:
    """Plan inputs and outputs; make missing topics, and read first events where they decide kinds.

    Raises: InputError for a bad input file; UsageError for options that do not fit; JobFailed without brokers.
    """
    graph = None if model.start is None else model.start.graph
    found = find_sources(config.events)
    given = config.model_fields_set
    has_direction, start = "undirected" in given, config.start_from if "start_from" in given else None
    positions = [] if graph is None else _positions(graph, has_direction, config.ignore_positions)
    starts = {} if graph is None else _starts(start, graph, positions, found)
    reading = TopicReading(config.start_from, config.until is not None, config.client_properties)
    sources = plan_sources(found, starts, reading, known_topics(positions))
    keys = key_rules(config, config, graph, found, sources)
    known = config.id_kind if graph is None or graph.is_empty else graph.id_kind
    empty = {file.index for file in sources.files if not file.chunks}
    tell_columns(found.files, model.plan.features, keys, config.events_map, known, say, empty=empty)
    if not config.events_map:
        tell_schemas(found.files, model.plan.features, known, say, cast_ids=config.cast_ids, keys=keys)
        for topic in sources.topics if config.message_format is None else ():
            tell_fields(topic.name, topic.first_values(), model.plan.features, say, keys)
    planned, has_all = plan_outputs(config, job_id, say, model.plan), graph is None or config.embeddings_from_start
    claim = {"has_all": has_all, "goes_on": False, "take": config.take_topic}
    outputs = claim_topics(planned, job_id, model.plan, config.client_properties, None, **claim)
    given_kind, types = config.id_kind, model.plan.edge_types or None
    of_graph = None if graph is None or graph.is_empty else graph.id_kind
    learned = learned_ids(model.plan, {"--id-type": given_kind, "--snapshot": of_graph})
    if graph is not None and not graph.is_empty:
        id_kind = _of_snapshot(given_kind, graph)
    elif learned is not None:
        id_kind = learned
    elif given_kind is not None:
        id_kind = given_kind
    else:
        id_kind = None
    if id_kind is None or keys.kind is None:
        login = config.client_properties.registry_login()
        decoder = decoder_of(config.message_format or "", config.registry or "", login)
        options = config.events_map, config.id_bytes_max
        rest: dict[str, Any] = {"cast_ids": config.cast_ids, "ts_unit": config.ts_unit, "keys": keys}
        parser = Parser(model.plan.features, id_kind, types, *options, decoder=decoder, **rest)
        decide_kinds(sources, parser)
        if id_kind is None:
            tell_other_ids(sources, parser)
        id_kind = parser.id_kind or INT
    return Ends(tuple(config.events), found, sources, outputs, id_kind, keys.kind_at_end)


def _positions(graph: Snapshot, has_direction: bool, are_ignored: bool) -> list[Position]:
    """Return the positions of the snapshot where the events continue, unless they are to be ignored.

    `has_direction`: --undirected or --directed is given.

    Raises: UsageError if they do not fit the options.
    """
    if graph.info.get("undirected") and not has_direction:
        msg = (
            f"--snapshot {graph.folder}: the graph of an undirected job (every edge stands both ways): give "
            "--undirected to have events mirrored too, or --directed if they are not to be"
        )
        raise UsageError(msg)
    positions = read_positions(graph.info, graph.folder)
    return [] if are_ignored else positions


def _starts(
    start_from: str | None, graph: Snapshot, positions: list[Position], found: FoundSources
) -> dict[int, dict[int, int]]:
    """Return where the events continue after the snapshot, if it has positions, by source and partition.

    `start_from`: as --from has it, None where it is not given.

    Raises: UsageError if they do not fit the options.
    """
    if not positions:
        return {}
    starts = match(positions, found, graph.folder, say)
    if found.topics and starts.keys() >= found.topics.keys() and start_from is not None:
        msg = (
            f"--from {start_from}: the topics go on where {graph.folder} stands; leave --from out, or give "
            "`ignore-positions: true` in --config"
        )
        raise UsageError(msg)
    return starts


def _of_snapshot(given: str | None, graph: Snapshot) -> str:
    """Return the kind of the snapshot's ids, which `--id-type` may only repeat."""
    if given not in (None, graph.id_kind):
        msg = f"--id-type {given}: the snapshot {graph.folder} has {graph.id_kind} ids; leave --id-type out"
        raise UsageError(msg)
    return graph.id_kind


def _record_of(config: RunConfig, model: PreparedModel, ends: Ends, job_id: str, out: Path) -> SavedJob:
    """Return the record of a new job.

    Raises: UsageError where the options do not fit the snapshot's state, the processor or the topic of embeddings.
    """
    block_events = config.epoch_events * (_LOCAL_EPOCHS if config.runtime == "local" else 1)
    processor = dict(of_new_job(config.processor, model.plan))
    rules = graph_rules(model.plan, undirected=config.undirected)
    placed = option_values(config, PartitionerConfig) | {"id_kind": ends.id_kind, "edge_keys": ends.edge_keys}
    wanted = PartitionerConfig.of(rules, **placed, hash_seed=new_seed())
    wanted = replace(wanted, ts_jump_ms=wanted.rules.jump_ms)
    settings = Settings(
        model=str(model.folder),
        **paths_of(out),
        parts=model.parts,
        partitioning=_placed(model, wanted, processor),
        parsing=ParserConfig(**option_values(config, ParserConfig) | {"block_events": block_events}),
        sealing=SealingConfig(**option_values(config, SealingConfig)),
        cuts=CutLogConfig(**option_values(config, CutLogConfig)),
        letters=LetterConfig(**option_values(config, LetterConfig)),
        tail=TailConfig(**option_values(config, TailConfig) | {"begins_empty": model.start is None}),
        sources=ends.found.names,
        returned=names_of_returned(model.plan),
        inner_widths=model.inner_widths,
        topics=tuple(ends.found.topics),
        processor=processor,
    )
    settings = settings_of_run(settings, config, out, job_id, ends.outputs, model.plan.sha256)
    refuse_large_records(settings, ends.outputs, widths_of(model.plan))
    cuts = cuts_of_new_job(settings.cuts, config.topics, config.client_properties, job_id)
    settings = replace(settings, cuts=cuts)
    snapshot = None if model.start is None else str(model.start.graph.folder.absolute())
    topics = ends.sources.topic_specs
    begun = {name: getattr(config, name) for name in BEGUN}
    return SavedJob(settings, model.plan.sha256, snapshot, config.runtime, topics, kept_options(config), begun)


def _placed(model: PreparedModel, wanted: PartitionerConfig, processor: dict[str, str]) -> PartitionerConfig:
    """Return how the graph is placed; of a snapshot with an image, as there.

    Raises: UsageError where the options do not fit that.
    """
    made = None if model.start is None else model.start.made
    if made is None:
        return wanted
    made.check(model.parts, wanted, processor)
    return replace(made.partitioning, ts_jump_ms=wanted.ts_jump_ms)


@dataclass(frozen=True)
class Job:
    """A prepared job: the settings of its stages, its input and its output topics."""

    settings: Settings
    sources: Sources
    outputs: Outputs = field(default_factory=Outputs)


def prepare(config: RunConfig, out: Path) -> Job:
    """Plan the input and compute the base image of a new job.

    Raises: InputError for a bad input file.
    """
    job_id = new_job_id()
    model = read_model(config)
    ends = plan_ends(config, model, job_id)
    saved = _record_of(config, model, ends, job_id, out)
    write_folders(saved, ends, model.start, out)
    make_image(saved.settings, model.start, ignore_positions=config.ignore_positions)
    return Job(saved.settings, ends.sources, ends.outputs)
