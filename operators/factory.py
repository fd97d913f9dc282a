"""Builds the stages of a job from plain data, the same for every runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gnn.model import load_model
from gnn.plan import Plan, compile_plan
from operators.core import Core
from operators.dataflow import PARSER, PARTITIONER, SINK, TAIL, Dataflow, Operator, Place
from operators.epochs.cut_log import CutLog
from operators.epochs.journal import JOURNAL_BYTES
from operators.epochs.partitioner_stage import PartitionerStage, SealingConfig
from operators.epochs.retention import CheckpointFolder, ToldCheckpoints
from operators.epochs.waiting_events import WAITING_BYTES
from operators.limits import ID_BYTES_MAX, RECORD_BYTES
from operators.parser.core import Origin, Parser
from operators.parser.dead_letters import DeadLetterFile
from operators.parser.file_stage import ParserStage
from operators.parser.letter_box import LetterBox, LetterQueue
from operators.parser.topic_stage import MessageStage
from operators.sink.core import Sink
from operators.sink.kafka_lines import Lines
from operators.sink.outlet import Outlet
from operators.sink.outlet_stage import OutletStage
from operators.stage import Stage
from operators.storage.layer import FeatureStorage, LayerShape, LayerStorage
from operators.storage.tail import LayerTail
from partitioner.config import PartitionerConfig
from partitioner.core import Partitioner


@dataclass(frozen=True, slots=True)
class Settings:
    """What every operator of a job is told; JSON-able by `to_dict`.

    Units: epoch_ms, marker_interval_ms, publish_ms milliseconds; journal_bytes, waiting_bytes, id_bytes_max,
    letter_bytes, dead_letters_max bytes; paths are absolute.
    """

    model: str
    out: str
    parts: int
    partitioner: dict[str, Any] = field(default_factory=dict)
    image: str = ""  # folder of base images, one folder per operator and part
    sources: tuple[str, ...] = ()
    topics: tuple[int, ...] = ()  # those of the sources (by index) that are Kafka topics
    events_map: dict[str, str] = field(default_factory=dict)  # foreign records to events, JMESPath by field
    chunks: str = ""  # the reading plan of a file input
    id_kind: str = "int"
    id_bytes_max: int = ID_BYTES_MAX  # of string ids and names of edge types, for the job's life
    epoch_events: int = 1000
    epoch_ms: int = 20
    publish_ms: int = 0  # how long what is done may stay unreadable; 0: no limit
    block_events: int = 0  # what the Parser cuts its blocks by, for the job's life; 0: by epoch_events
    marker_interval_ms: int = 10_000
    journal_bytes: int = JOURNAL_BYTES
    waiting_bytes: int = WAITING_BYTES
    cut_log: str = ""  # its folder
    keep_cuts: bool = False
    checkpoints: str = ""  # the folder of Flink's, or of what is told here about those in another store
    checkpoints_away: bool = False  # whether they are in another store
    dead_letters: str = ""
    letter_bytes: int = RECORD_BYTES  # the largest record that the topic of dead letters takes
    dead_letters_max: int = 0  # bytes of their files; 0: no limit
    job_id: str = ""  # for the job's life
    run: int = 0  # how often it was taken up
    # What a topic of changed embeddings gets: model and form (see Lines), epochs and ms (see Intervals); empty: nothing
    outlet: dict[str, Any] = field(default_factory=dict)
    processor: dict[str, str] = field(default_factory=dict)  # what it computes with (see gnn/processor.py); empty: any

    @staticmethod
    def from_dict(config: dict[str, Any]) -> Settings:
        """The inverse of `to_dict`."""
        return Settings(**config | {name: tuple(config.get(name, ())) for name in ("sources", "topics")})

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def image_of(self, operator: str, part: int) -> Path | None:
        """The base image of an operator's part, None where the job starts from nothing."""
        return Path(self.image) / f"{operator}-{part}" if self.image else None

    def open_cut_log(self) -> CutLog:
        """Take the job's cut log over."""
        kind = ToldCheckpoints if self.checkpoints_away else CheckpointFolder
        retention = kind(Path(self.checkpoints)) if self.checkpoints else None
        path = Path(self.cut_log) if self.cut_log else None
        return CutLog(path, self.job_id, run=self.run, keep=self.keep_cuts, retention=retention)

    def letter_box(self, operator: str) -> LetterBox | None:
        """Where an operator's rejected records go."""
        if not self.dead_letters:
            return None
        to_topic = self.dead_letters.startswith("kafka:")
        limit = self.dead_letters_max
        target = LetterQueue(self.letter_bytes) if to_topic else DeadLetterFile(self.dead_letters, limit)
        return LetterBox(target, Path(self.out), operator)

    def sealing(self, plan: Plan) -> SealingConfig:
        """How epochs are cut."""
        vertex_bytes, edge_bytes = state_bytes(plan)
        return SealingConfig(
            self.epoch_events,
            self.epoch_ms,
            self.marker_interval_ms,
            vertex_bytes=vertex_bytes,
            edge_bytes=edge_bytes,
            journal_bytes=self.journal_bytes,
            waiting_bytes=self.waiting_bytes,
            flush_epochs=self.outlet.get("epochs", 0),
            flush_ms=self.outlet.get("ms", 0) if self.epoch_ms else 0,
            publish_ms=self.publish_after_ms,
        )

    @property
    def publish_after_ms(self) -> int:
        """When files close: a tenth of the time is left for the way through the operators and to the disk."""
        return self.publish_ms * 9 // 10

    @property
    def partitioning(self) -> PartitionerConfig:
        """How edges are placed."""
        options = dict(self.partitioner)
        types = options.pop("edge_types", None)
        return PartitionerConfig(**options, id_kind=self.id_kind, edge_types=None if types is None else tuple(types))


CoreFactory = Callable[[Settings, Plan, Operator, int], Core]


@lru_cache(maxsize=4)
def load_plan(folder: str) -> Plan:
    """The compiled model; one per process and folder."""
    return compile_plan(load_model(Path(folder)))


def make_stage(config: dict[str, Any], operator: str, part: int) -> Any:
    """The stage of one operator's part."""
    settings = Settings.from_dict(config)
    plan = load_plan(settings.model)
    row = dataflow_of(settings, plan)[operator]
    if row.kind == PARSER:
        return make_parser(settings, plan, row)
    if row.kind == PARTITIONER:
        return make_partitioner(settings, plan, settings.open_cut_log(), settings.letter_box(operator))
    return _staged(settings, plan, row, part, make_core(settings, plan, row, part))


def dataflow_of(settings: Settings, plan: Plan) -> Dataflow:
    """The table of a job's operators."""
    return Dataflow(len(plan.layers), settings.parts, settings.topics)


def stages_of(
    settings: Settings,
    plan: Plan,
    operators: Iterable[Operator] | None = None,
    core_of: CoreFactory | None = None,
    **options: int,
) -> dict[Place, Stage]:
    """The stages after the Partitioner (or of these operators alone), in the order of the flow; not restored.

    `core_of` builds their cores (default: `make_core`); `options` go to each `Stage`.
    """
    core_of = core_of or make_core
    return {
        place: _staged(settings, plan, row, place.part, core_of(settings, plan, row, place.part), **options)
        for row in operators or dataflow_of(settings, plan).staged
        for place in row.places
    }


def _staged(settings: Settings, plan: Plan, row: Operator, part: int, core: Core, **options: int) -> Stage:
    senders, image = dataflow_of(settings, plan).blocks_per_epoch(row.name), settings.image_of(row.name, part)
    kind = OutletStage if isinstance(core, Sink) and core.outlet is not None else Stage
    return kind(str(Place(row.name, part)), core, senders, image, **options)


def make_partitioner(
    settings: Settings, plan: Plan, log: CutLog, dead_letters: LetterBox | None = None
) -> PartitionerStage:
    """The Partitioner, which cuts epochs as the log says and goes on with it."""
    graph = Partitioner(settings.parts, plan.in_width, settings.partitioning)
    sealing, image = settings.sealing(plan), settings.image_of(PARTITIONER, 0)
    return PartitionerStage(graph, sealing, log, image, dead_letters, settings.sources, settings.topics)


def make_parser(settings: Settings, plan: Plan, row: Operator) -> ParserStage | MessageStage:
    """The Parser of the files, or of one topic."""
    types, longest = plan.edge_types or None, settings.id_bytes_max
    parser = Parser(plan.in_width, settings.id_kind, types, settings.events_map, longest)
    block_events, dead = settings.block_events or settings.epoch_events, settings.letter_box(row.name)
    if row.topic is None:
        return ParserStage(Path(settings.chunks), parser, dead, block_events)
    origin = Origin(row.topic, settings.sources[row.topic])
    return MessageStage(parser, origin, dead, block_events, Path(settings.out))


def state_bytes(plan: Plan) -> tuple[int, int]:
    """About how many bytes of tables a vertex and an edge have in all operators together."""
    vertex, edge = 4 * plan.in_width + 100, 60
    for layer in plan.layers:
        vertex += 4 * (3 * layer.message_width + layer.self_width + layer.out_width) + 60  # a sum is float64
        edge += 24 if layer.weighted else 12
    return vertex, edge


def make_core(settings: Settings, plan: Plan, row: Operator, part: int) -> Core:
    """The core of an operator after the Partitioner."""
    if row.kind == SINK:
        return make_sink(settings, plan, part)
    parts, layers = settings.parts, plan.layers
    if row.layer == 0:
        return FeatureStorage(part, parts, layers[0])
    following = layers[row.layer] if row.layer < len(layers) else None
    shape = LayerShape(part, parts, row.layer, layers[row.layer - 1], following)
    return LayerTail(shape) if row.kind == TAIL else LayerStorage(shape)


def make_sink(settings: Settings, plan: Plan, part: int) -> Sink:
    """The core of a sink part."""
    outlet = make_outlet(settings, plan, part) if settings.outlet else None
    sources, width = list(settings.sources), plan.out_width
    publish_ms = 0 if settings.epoch_ms else settings.publish_after_ms  # else the Partitioner sees to it
    return Sink(
        part, settings.parts, settings.out, width, settings.id_kind, sources, outlet=outlet, publish_ms=publish_ms
    )


def make_outlet(settings: Settings, plan: Plan, part: int) -> Outlet:
    """What a sink part hands to the topic of changed embeddings."""
    lines = Lines(settings.outlet["model"], settings.outlet["form"])
    return Outlet(part, plan.out_width, settings.id_kind, lines)
