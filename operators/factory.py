"""Builds the stages of a job from plain data, the same for every runtime."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from gnn.model import load_model
from gnn.plan import Plan, compile_plan
from operators.epochs.partitioner_stage import PartitionerStage
from operators.messages import SINK, STORAGE, TAIL
from operators.network import PARTITIONER, senders_of
from operators.parser.core import Origin, Parser
from operators.parser.file_stage import ParserStage
from operators.parser.topic_stage import MessageStage
from operators.settings import Settings
from operators.sink.core import Sink
from operators.sink.kafka_lines import Lines
from operators.sink.outlet import Outlet, OutletStage
from operators.stage import Stage
from operators.storage.layer import FeatureStorage, LayerShape, LayerStorage
from operators.storage.tail import LayerTail
from partitioner.core import Partitioner

PARSER = "parser"  # of the files; that of topic k among the sources is "parser-k"


@lru_cache(maxsize=4)
def load_plan(folder: str) -> Plan:
    """The compiled model; one per process and folder."""
    return compile_plan(load_model(Path(folder)))


def make_stage(config: dict[str, Any], operator: str, part: int) -> Any:
    """The stage of one operator's part."""
    settings = Settings.from_dict(config)
    plan = load_plan(settings.model)
    if operator.startswith(PARSER):
        return make_parser(settings, plan, operator)
    image = settings.image_of(operator, part)
    if operator == PARTITIONER:
        graph = Partitioner(settings.parts, plan.in_width, settings.partitioning)
        log = settings.open_cut_log()
        sealing, dead = settings.sealing(plan), settings.letter_box(operator)
        return PartitionerStage(graph, sealing, log, image, dead, settings.sources, settings.topics)
    core = make_core(settings, plan, operator, part)
    kind = OutletStage if operator == SINK and settings.outlet else Stage
    return kind(f"{operator}-{part}", core, senders_of(operator, settings.parts), image)


def make_parser(settings: Settings, plan: Plan, operator: str) -> ParserStage | MessageStage:
    """The Parser of the files, or of one topic."""
    types, longest = plan.edge_types or None, settings.id_bytes_max
    parser = Parser(plan.in_width, settings.id_kind, types, settings.events_map, longest)
    block_events, dead = settings.block_events or settings.epoch_events, settings.letter_box(operator)
    if operator == PARSER:
        return ParserStage(Path(settings.chunks), parser, dead, block_events)
    source = int(operator.removeprefix(f"{PARSER}-"))
    return MessageStage(parser, Origin(source, settings.sources[source]), dead, block_events, Path(settings.out))


def make_core(settings: Settings, plan: Plan, operator: str, part: int) -> Any:
    """The core of a keyed operator after the Partitioner."""
    parts, layers = settings.parts, plan.layers
    if operator == SINK:
        outlet = make_outlet(settings, plan, part) if settings.outlet else None
        sources, width = list(settings.sources), plan.out_width
        publish_ms = 0 if settings.epoch_ms else settings.publish_after_ms  # else the Partitioner sees to it
        return Sink(part, parts, settings.out, width, settings.id_kind, sources, outlet=outlet, publish_ms=publish_ms)
    number = int(operator.removeprefix(STORAGE).removeprefix(TAIL))
    if number == 0:
        return FeatureStorage(part, parts, layers[0])
    following = layers[number] if number < len(layers) else None
    shape = LayerShape(part, parts, number, layers[number - 1], following)
    return LayerTail(shape) if operator.startswith(TAIL) else LayerStorage(shape)


def make_outlet(settings: Settings, plan: Plan, part: int) -> Outlet:
    """What a sink part hands to the topic of changed embeddings."""
    lines = Lines(settings.outlet["model"], settings.outlet["form"])
    return Outlet(part, plan.out_width, settings.id_kind, lines)


def warm_up(config: dict[str, Any]) -> None:
    """Have every kernel of the job ready; called once per process before the first event (see operators/warm_up.py)."""
    from operators import warm_up as warming  # it builds stages by this module

    warming.warm_up(config)
