"""What every operator of a job is told, as plain data: written by `freshet run`, read wherever a stage is built."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gnn.plan import Plan
from operators.dataflow import Place
from operators.epochs.config import SealingConfig
from operators.epochs.cut_log import CutLog
from operators.epochs.journal import JOURNAL_BYTES
from operators.epochs.retention import CheckpointFolder, ToldCheckpoints
from operators.epochs.waiting_events import WAITING_BYTES
from operators.limits import ID_BYTES_MAX, RECORD_BYTES
from operators.parser.dead_letters import DeadLetterFile
from operators.parser.letter_box import LetterBox, LetterQueue
from partitioner.config import PartitionerConfig


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

    def image_of(self, place: Place) -> Path | None:
        """The base image of one part of an operator; None where the job starts from nothing."""
        return Path(self.image) / str(place) if self.image else None

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


def state_bytes(plan: Plan) -> tuple[int, int]:
    """About how many bytes of tables a vertex and an edge have in all operators together."""
    vertex, edge = 4 * plan.in_width + 100, 60
    for layer in plan.layers:
        vertex += 4 * (3 * layer.message_width + layer.self_width + layer.out_width) + 60  # a sum is float64
        edge += 24 if layer.weighted else 12
    return vertex, edge
