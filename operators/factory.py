"""Builds the stages of a job from plain data, the same for every runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from freshet.gnn.any_plan import AnyPlan, Returned, inner_plan, load_any_plan, returned_of
from freshet.gnn.own.loading import install_layers
from freshet.operators.core import Core
from freshet.operators.dataflow import FEATURES, PARSER, PARTITIONER, SINK, STORAGE, TAIL, Dataflow, Operator, Place
from freshet.operators.epochs.cut import AnyCutLog
from freshet.operators.epochs.event_time import EventTime, IntervalRule
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.operators.inbox import INBOX_BYTES
from freshet.operators.network import Network
from freshet.operators.output_folders import LogFolders, log_id, tails_of
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.letter_box import LetterBox
from freshet.operators.parser.registry.decoder import decoder_of
from freshet.operators.parser.stages import MessageStage, Originals, ParserStage
from freshet.operators.settings import Settings
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.core import Sink
from freshet.operators.sink.kafka_records import RecordBlocks
from freshet.operators.sink.kind_outputs import KindOutputs
from freshet.operators.sink.log_output import FileLimits, LogOutput
from freshet.operators.sink.outlet import Outlet, OutletStage
from freshet.operators.sink.output import Output
from freshet.operators.sink.tail.layout import TailNote
from freshet.operators.sink.tail.output import TailOutput
from freshet.operators.sink.task import TaskSink, of_task
from freshet.operators.stage import Stage
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.tail import LayerTail
from freshet.partitioner.core import Partitioner
from freshet.state.block_columns import kind_prefix

_SINK_INBOXES = 4  # a Sink of so many parts or more may have as many times the memory for blocks that wait

CoreFactory = Callable[[Settings, AnyPlan, Operator, int], Core]


@lru_cache(maxsize=4)
def load_plan(folder: str) -> AnyPlan:
    """The compiled model; one per process and folder."""
    return load_any_plan(folder)


@lru_cache(maxsize=4)
def _load_inner_plan(folder: str) -> AnyPlan:
    return inner_plan(load_plan(folder))


def plan_of(settings: Settings) -> AnyPlan:
    """Return the plan of what a job's operators compute: the model, or its inner layers alone."""
    return _load_inner_plan(settings.model) if settings.inner_widths else load_plan(settings.model)


def make_stage(config: dict[str, Any], operator: str, task: int) -> Any:
    """The stage of one operator's task."""
    settings = Settings.from_dict(config).at_home()
    install_layers(settings.layers)
    plan = plan_of(settings)
    row = dataflow_of(settings, plan)[operator]
    if row.kind == PARSER:
        return make_parser(settings, plan, row, task)
    pager = settings.memory.pager()
    if row.kind == PARTITIONER:
        stage = make_partitioner(settings, plan, settings.open_cut_log(), settings.letter_box(operator))
        if pager is not None:
            stage.core.tables.keep_within(pager)
        return stage
    core = make_core(settings, plan, row, task)
    if pager is not None:
        core.keep_within(pager)
    return _staged(settings, plan, row, task, core)


def dataflow_of(settings: Settings, plan: AnyPlan) -> Dataflow:
    """The table of a job's operators."""
    topics = dict(zip(settings.topics, settings.readers or (1,) * len(settings.topics), strict=True))
    return Dataflow(len(plan.layers), settings.parts, topics, settings.task_parts)


def stages_of(
    settings: Settings,
    plan: AnyPlan,
    operators: Iterable[Operator] | None = None,
    core_of: CoreFactory | None = None,
    **options: int,
) -> dict[Place, Stage]:
    """The stages after the Partitioner (or of these operators alone), in the order of the flow; not restored.

    `core_of` builds their cores (default: `make_core`); `options` go to each `Stage`.
    """
    core_of = core_of or make_core
    return {
        place: _staged(settings, plan, row, place.number, core_of(settings, plan, row, place.number), **options)
        for row in operators or dataflow_of(settings, plan).staged
        for place in row.places
    }


def open_network(settings: Settings, plan: AnyPlan, *, sinks: bool) -> Network:
    """Return the network of the stages after the Partitioner, begun from the base image if there is one."""
    flow = dataflow_of(settings, plan)
    stages = stages_of(settings, plan, [row for row in flow.staged if sinks or row.kind != SINK])
    for stage in stages.values():
        stage.restore(*((),) * len(stage.parts))
    return Network(flow, stages)


def _staged(settings: Settings, plan: AnyPlan, row: Operator, task: int, core: Core, **options: int) -> Stage:
    senders = dataflow_of(settings, plan).blocks_per_epoch(row.name)
    parts = settings.task_parts.of(row.name).parts_of[task]
    images = [settings.image_of(Place(row.name, part)) for part in parts]
    if row.kind == SINK:  # the rows of whole epochs wait for those of a tail
        options = {"inbox_bytes": INBOX_BYTES * min(len(parts), _SINK_INBOXES), **options}
    kind = OutletStage if isinstance(core, Sink | TaskSink) and any(core.outlets) else Stage
    return kind(str(Place(row.name, task)), core, senders, images, parts=parts, **options)


def make_partitioner(
    settings: Settings, plan: AnyPlan, log: AnyCutLog, dead_letters: LetterBox | None = None
) -> PartitionerStage:
    """The Partitioner, which cuts epochs as the log says and goes on with it."""
    graph = Partitioner(settings.parts, plan.features, settings.partitioning, settings.task_parts.of(FEATURES))
    sealing, image = settings.sealing_of(plan), settings.image_of(Place(PARTITIONER, 0))
    names, streams, original = settings.sources, settings.topics, Originals(Path(settings.chunks))
    time = None
    if length_ms := sealing.epoch_event_time_ms:
        rule, ends = IntervalRule(length_ms, settings.partitioning.rules.jump_ms), settings.lane_ends
        time = EventTime(rule, sealing.idle_ms, {(one, partition): (at, end) for one, partition, at, end in ends})
    return PartitionerStage(graph, sealing, log, image, dead_letters, names, streams, original, time)


def make_parser(settings: Settings, plan: AnyPlan, row: Operator, task: int = 0) -> ParserStage | MessageStage:
    """The Parser of the files, or a task of that of a topic."""
    parser = parser_of(settings, plan)
    block_events = settings.parsing.block_events or settings.sealing.epoch_events
    dead = settings.letter_box(str(Place(row.name, task)) if task else row.name)
    if row.topic is None:
        ahead = [parser_of(settings, plan) for _ in range(1, settings.file_readers)]
        return ParserStage(Path(settings.chunks), parser, dead, block_events, ahead)
    origin = Origin(row.topic, settings.sources[row.topic])
    return MessageStage(parser, origin, dead, block_events, Path(settings.out), task)


def parser_of(settings: Settings, plan: AnyPlan) -> Parser:
    """The Parser's core: the rules by which the job's records become events."""
    config, types = settings.parsing, plan.edge_types or None
    decoder = decoder_of(config.message_format, config.registry, settings.registry_login)
    rules = plan.features, settings.id_kind, types, config.events_map, config.id_bytes_max
    kind, sources = settings.partitioning.edge_keys, len(settings.sources)
    keys = KeyRules(config.edge_key, kind, config.id_bytes_max, sources)
    return Parser(*rules, decoder=decoder, cast_ids=config.cast_ids, ts_unit=config.ts_unit, keys=keys)


def make_core(settings: Settings, plan: AnyPlan, row: Operator, task: int) -> Core:
    """The core of a task of an operator after the Partitioner."""
    tasks = settings.task_parts.of(row.name)
    if row.kind == SINK:
        return of_task([make_sink(settings, plan, part) for part in tasks.parts_of[task]], settings.parts)
    receivers = settings.task_parts.of(row.receivers[STORAGE if row.layer < len(plan.layers) else SINK])
    layers: Sequence[LayerOfKinds] = plan.layers
    if row.layer == 0:
        return FeatureStorage(task, tasks, plan.features, layers[0], receivers, plan.learned)
    following = layers[row.layer] if row.layer < len(layers) else None
    is_keyed, seed = bool(settings.partitioning.edge_keys), settings.partitioning.hash_seed
    shape = LayerShape(task, tasks, row.layer, layers[row.layer - 1], following, receivers, is_keyed, seed)
    return LayerTail(shape) if row.kind == TAIL else LayerStorage(shape)


def make_sink(settings: Settings, plan: AnyPlan, part: int) -> Sink:
    """The core of a sink part."""
    kinds = []
    for one in returned_of(plan):
        prefix = kind_prefix(one.number) if one.kind else ""
        kinds.append(KindOutputs(one.width, make_outputs(settings, one, part), prefix))
    return Sink(part, settings.out, kinds, settings.id_kind)


def make_outputs(settings: Settings, returned: Returned, part: int) -> list[Output]:
    """Return the outputs of a kind in a sink part: recent changes for servers come first, the change log, and a topic.

    Where the process does not see the output folder, only the topic is left.
    """
    topic: list[Output] = [make_outlet(settings, returned, part)] if settings.outlet else []
    if not settings.is_out_here:
        return topic
    log = make_log(settings, returned, part)
    return [make_tail(settings, returned, part, log), log, *topic]


def make_log(settings: Settings, returned: Returned, part: int) -> LogOutput:
    """The change log of a kind in a sink part."""
    sealing, folders = settings.sealing, LogFolders(Path(settings.out), returned.kind)
    publish_ms = 0 if sealing.epoch_ms else sealing.publish_after_ms  # else the Partitioner sees to it
    log = ChangeLog(folders, part, returned.width, settings.id_kind, list(settings.sources))
    return LogOutput(log, FileLimits(publish_ms=publish_ms))


def make_tail(settings: Settings, returned: Returned, part: int, log: LogOutput) -> TailOutput:
    """Return the output of recent changes of a kind in a sink part, for readers in other processes."""
    config, strings = settings.tail, settings.id_kind == "string"
    shape, job_id = (settings.parts, returned.width, strings), log_id(settings.job_id, returned.kind)
    name = returned.kind or next(iter(settings.written), "")
    note = TailNote(job_id, *shape, settings.sources, settings.model, config.begins_empty, name)
    folder = tails_of(LogFolders(Path(settings.out), returned.kind), config.tables_folder)
    return TailOutput(folder, part, note, log, config.tail_bytes)


def make_outlet(settings: Settings, returned: Returned, part: int) -> Outlet:
    """Return the output of a kind in a sink part for the topic of changed embeddings."""
    assert settings.outlet is not None
    records = RecordBlocks(settings.outlet.model_tag, settings.outlet.embedding_format)
    return Outlet(part, returned.width, settings.id_kind, records, kind=returned.kind)
