"""Settings of all operators of a job, as plain data: written by `freshet run`, read when a stage is built."""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from freshet.gnn.any_plan import AnyPlan, aggregated
from freshet.gnn.kind_layers.plans import KindsPlan, RelationPlan
from freshet.gnn.layers.base import LayerPlan
from freshet.operators.dataflow import LayerTasks, Place
from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.epochs.cut import AnyCutLog
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_topic import CutTopic
from freshet.operators.epochs.retention import CheckpointFolder, ReportedCheckpoints
from freshet.operators.limits import TAIL_BYTES
from freshet.operators.output_folders import TABLES_VARIABLE, home_of
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.parser.letter_box import DeadLetterFile, LetterBox, LetterQueue
from freshet.partitioner.config import PartitionerConfig
from freshet.schema import KEY_BYTES
from freshet.state.memory.pager import MemoryBudget, Pager, shared_pager

TIME_BYTES = 8  # of an edge that may expire: the `ts` of its last add


class NoSharedFolderError(RuntimeError):
    """A process does not see the output folder, and the job does not run without."""


@dataclass(frozen=True, slots=True)
class OutletConfig:
    """Settings of a topic of changed embeddings: of its records (`RecordBlocks`) and of `Intervals`."""

    model_tag: str = ""  # the beginning of the model's sha256
    embedding_format: str = "base64"
    coalesce_epochs: int = 0
    coalesce_ms: int = 0


@dataclass(frozen=True, slots=True)
class TailConfig:
    """Settings of the recent changes that sink parts publish to readers in other processes.

    `tail_bytes` is what the files of a part may take; `tables_folder`: on each TaskManager's machine, in place of the
    one below `--out` (empty); `begins_empty`: epoch 0 has no rows, so that the tails alone make a table.
    """

    tail_bytes: int = TAIL_BYTES
    tables_folder: str = ""
    begins_empty: bool = False


@dataclass(frozen=True, slots=True)
class TableMemory:
    """Memory for the tables of a process, and the folder of those that find no room in it.

    `budget_bytes` 0: all tables lie in memory. `counts_process`: what the process holds beside its tables is part of
    the budget. `folder`: empty for the folder of temporary files.
    """

    budget_bytes: int = 0
    folder: str = ""
    counts_process: bool = True

    def pager(self) -> Pager | None:
        """Return this process's pager of tables, the same one at each call; None without a budget."""
        if not self.budget_bytes:
            return None
        return shared_pager(
            Path(self.folder or tempfile.gettempdir()), MemoryBudget(self.budget_bytes, self.counts_process)
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all operators of a job; JSON-able by `to_dict`.

    The options that operators read are in the classes of their rooms, which are parts of this one.

    Units: paths are absolute.
    """

    model: str
    out: str
    parts: int
    partitioning: PartitionerConfig = field(default_factory=PartitionerConfig)
    parsing: ParserConfig = field(default_factory=ParserConfig)
    sealing: SealingConfig = field(default_factory=SealingConfig)
    cuts: CutLogConfig = field(default_factory=CutLogConfig)
    letters: LetterConfig = field(default_factory=LetterConfig)
    tail: TailConfig = field(default_factory=TailConfig)
    memory: TableMemory = field(default_factory=TableMemory)
    outlet: OutletConfig | None = None  # None: no topic
    image: str = ""  # folder of base images, one folder per operator and part
    sources: tuple[str, ...] = ()
    topics: tuple[int, ...] = ()  # those of the sources (by index) that are Kafka topics
    chunks: str = ""  # the reading plan of a file input
    job_id: str = ""  # for the job's life
    run: int = 0  # how often it was taken up
    processor: dict[str, str] = field(
        default_factory=dict
    )  # what it computes with (see kernels/processor.py); empty: any
    tasks: tuple[int, ...] = ()  # how many parts each task of a Storage has in this run; empty: one each
    layer_tasks: tuple[tuple[int, ...], ...] = ()  # the same by layer from 0 on, where layers differ
    file_readers: int = 1  # threads that parse files in this run
    # How the schema registry is reached: secrets, which are in no file.
    registry_login: dict[str, str] = field(default_factory=dict, repr=False)
    # Sources of the modules of layers that users write, by name: in no file, since each run is given them.
    layers: dict[str, str] = field(default_factory=dict, repr=False)
    readers: tuple[int, ...] = ()  # how many tasks the Parser of each topic has in this run; empty: one each
    # The lanes of the input in this run, where epochs end by event time (see `EventTime`): source, partition, and the
    # source and position at which each ends.
    lane_ends: tuple[tuple[int, int, int, int], ...] = ()
    artifacts: str = ""  # URI of the list of files that processes may fetch (artifacts.py); empty: all share them
    is_out_here: bool = True  # whether the process that builds a stage sees `out`
    returned: tuple[str, ...] = ()  # names of the kinds of vertices that the model returns, where they have any
    # Of a job whose embeddings are computed at the read (`--embeddings asked`): widths of the rows of the last inner
    # layer by the kind's name, which are written in the place of embeddings. Empty: embeddings are.
    inner_widths: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def from_dict(config: dict[str, Any]) -> Settings:
        """The inverse of `to_dict`; also reads what was saved before the settings had parts."""
        config = _in_parts(config) if "partitioner" in config else config
        parts = {name: config[name] for name in _PARTS if config.get(name) is not None}
        return Settings(**_tuples(config) | {name: _PARTS[name](**_tuples(part)) for name, part in parts.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without secrets and code."""
        return {name: value for name, value in asdict(self).items() if name not in ("registry_login", "layers")}

    def in_parts(self) -> dict[str, Any]:
        """The parts that there are, by name: one for each class of options."""
        found = {name: getattr(self, name) for name in _PARTS}
        return {name: part for name, part in found.items() if part is not None}

    def at_home(self) -> Settings:
        """Return the settings for the stages of this process, which may not see the output folder.

        Raises: NoSharedFolderError where it does not, and the job writes to that folder.
        """
        home = home_of(Path(self.out), self.job_id)
        if home == Path(self.out):
            return self
        if wanted := self._needs_folder():
            msg = (
                f"--out {self.out}: the process on {socket.gethostname()} does not see this folder of job "
                f"{self.job_id}; share it with all processes, or {', '.join(wanted)}"
            )
            raise NoSharedFolderError(msg)
        return replace(self, out=str(home), is_out_here=False)

    def _needs_folder(self) -> list[str]:
        """Describe what to change for a job whose processes do not share the output folder."""
        return [
            what
            for what, needed in (
                ("give --embeddings-to kafka://...", self.outlet is None),
                ("give --dead-letters kafka://...", not self.letters.target.startswith("kafka:")),
                ("leave --tables out", bool(self.tail.tables_folder or os.environ.get(TABLES_VARIABLE))),
                ("put the checkpoints on an object store", not self.cuts.topic),
            )
            if needed
        ]

    @property
    def id_kind(self) -> str:
        """The kind of vertex ids."""
        return self.partitioning.id_kind

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the kinds of vertices whose rows are written, where they have any."""
        return tuple(filter(None, self.inner_widths)) or self.returned

    @property
    def task_parts(self) -> LayerTasks:
        """The parts of each task of every operator."""
        return LayerTasks.of_counts(self.parts, self.tasks, self.layer_tasks)

    def image_of(self, place: Place) -> Path | None:
        """The base image of one part of an operator; None where the job starts from nothing."""
        return Path(self.image) / str(place) if self.image else None

    def open_cut_log(self) -> AnyCutLog:
        """Take the job's cut log over."""
        cuts = self.cuts
        if cuts.topic:
            module, _, name = cuts.opener.partition(":")
            open_channel = getattr(importlib.import_module(module), name)
            return CutTopic(open_channel(cuts.topic, cuts.properties, cuts.secrets, self.job_id), self.job_id, self.run)
        kind = ReportedCheckpoints if cuts.checkpoints_away else CheckpointFolder
        retention = kind(Path(cuts.checkpoints)) if cuts.checkpoints else None
        path = Path(cuts.folder) if cuts.folder else None
        return CutLog(path, self.job_id, run=self.run, keep=cuts.keep_cuts, retention=retention)

    def letter_box(self, operator: str) -> LetterBox | None:
        """Return the target of an operator's rejected records."""
        letters = self.letters
        if not letters.target:
            return None
        to_topic = letters.target.startswith("kafka:")
        limit = letters.dead_letters_max_bytes
        target = LetterQueue(letters.record_bytes) if to_topic else DeadLetterFile(letters.target, limit)
        return LetterBox(target, Path(self.out), operator)

    def sealing_of(self, plan: AnyPlan) -> SealingConfig:
        """Return the rules of epochs, with values derived from the model and from the topic of changed embeddings."""
        vertex_bytes, edge_bytes = state_bytes(plan)
        edge_bytes += TIME_BYTES if self.partitioning.edge_ttl_ms else 0
        edge_bytes += key_bytes(plan) if self.partitioning.edge_keys else 0
        outlet = self.outlet or OutletConfig()
        return replace(
            self.sealing,
            vertex_bytes=vertex_bytes,
            edge_bytes=edge_bytes,
            flush_epochs=outlet.coalesce_epochs,
            flush_ms=outlet.coalesce_ms if self.sealing.epoch_ms else 0,
        )


_PARTS: dict[str, Any] = {
    "partitioning": PartitionerConfig,
    "parsing": ParserConfig,
    "sealing": SealingConfig,
    "cuts": CutLogConfig,
    "letters": LetterConfig,
    "tail": TailConfig,
    "memory": TableMemory,
    "outlet": OutletConfig,
}
# What had another name before there were parts.
_RENAMED = {
    "cut_log": "folder",
    "dead_letters": "target",
    "letter_bytes": "record_bytes",
    "dead_letters_max": "dead_letters_max_bytes",
}
_RENAMED_IN_OUTLET = {
    "model": "model_tag",
    "form": "embedding_format",
    "epochs": "coalesce_epochs",
    "ms": "coalesce_ms",
}


def _in_parts(flat: dict[str, Any]) -> dict[str, Any]:
    """Settings as they were saved first, all on one level but for two."""
    flat = {_RENAMED.get(name, name): value for name, value in flat.items()}
    outlet = {_RENAMED_IN_OUTLET[name]: value for name, value in flat.pop("outlet", {}).items()}
    flat |= flat.pop("partitioner")
    nested: dict[str, Any] = {"outlet": outlet or None}
    for part, kind in _PARTS.items():
        nested.setdefault(part, {one.name: flat.pop(one.name) for one in fields(kind) if one.name in flat})
    return nested | flat


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples, and settings have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


_PAIR_BYTES = 60  # of a (vertex, relation) pair: its row and place, a list, its entry in the index


def state_bytes(plan: AnyPlan) -> tuple[int, int]:
    """About how many bytes of tables a vertex and an edge have in all operators together; of several kinds the most."""
    if isinstance(plan, KindsPlan):
        vertices, edges = state_bytes_by_kind(plan)
        return max(vertices), max(edges)
    vertex, edge = plan.features.row_bytes + 100, 60
    for layer in plan.layers:
        vertex += 4 * (layer.message_width + layer.self_width + layer.out_width) + 44
        vertex += layer.synopsis.state_bytes(layer.message_width)
        edge += _edge_bytes(layer)
    return vertex, edge


def state_bytes_by_kind(plan: KindsPlan) -> tuple[list[int], list[int]]:
    """The same of vertices by kind, and of edges by relation."""
    kinds = plan.features.kinds
    assert kinds is not None  # as each such model has them
    vertices, edges = [4 * width + 100 for width in plan.row_widths], [60] * len(kinds.relations)
    for layer in plan.layers:
        for kind, one in enumerate(layer.kinds):
            vertices[kind] += 0 if one is None else 4 * (one.message_width + one.self_width + one.out_width) + 44
            vertices[kind] += 0 if one is None else 16 * (len(one.read_degrees) + len(one.sent_degrees))
        for relation in layer.relations:
            state, alone = relation.synopsis.state_bytes(relation.message_width), len(relation.numbers) == 1
            vertices[relation.target] += state if alone else 0
            for number in relation.numbers:  # of many there are at most as many pairs as edges
                edges[number] += _edge_bytes(relation) + (0 if alone else state + _PAIR_BYTES)
    return vertices, edges


def key_bytes(plan: AnyPlan) -> int:
    """About how many bytes of tables an edge has for its key in all operators together, besides a text.

    The Partitioner has the key, and the lists of each layer have a number in as much room again.
    """
    weighted = [one.edge.weighted or one.edge.row_width > 0 for one in aggregated(plan)]
    return KEY_BYTES + sum(24 if one else 12 for one in weighted)


def _edge_bytes(messages: LayerPlan | RelationPlan) -> int:
    """Bytes of an edge in the tables of one layer."""
    width = messages.edge.row_width
    return (24 if messages.edge.weighted or width else 12) + (4 + 4 * width if width else 0)
