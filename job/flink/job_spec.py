"""Specification of a Flink job: one JSON file of plain data, read on any machine of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.gnn.limits import MAX_CONVS
from freshet.job.errors import UsageError
from freshet.job.flink.pipeline import OperatorGroups, groups_max
from freshet.job.folder import layout
from freshet.job.kafka.topic_specs import TopicInput, TopicOutput
from freshet.job.options.runtime_options import FLINK_PARTS_MAX, MANAGED_MB, MANAGED_MB_MIN, StateBackend
from freshet.job.uris import file_uri, is_remote, local_path

RESTART_INTERVAL_S = 600


class JobSpec(BaseModel):
    """A job: its shape, its inputs and outputs, and the settings of its stages.

    `stage` is passed to the stage factory unchanged (for `freshet run` the Settings); the runtime reads only `tasks`
    (the number of parts of each task) and `processor` in it. A field with the name of an option has its value (see
    job/options/run_config.py).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "freshet"
    out: str
    parts: int = Field(default=1, ge=1, le=1024)
    layers: int = Field(ge=1, le=MAX_CONVS)
    factory: str = Field(default="freshet.operators.factory:make_stage", pattern=r"^[\w.]+:\w+$")
    stage: dict[str, Any] = Field(default_factory=dict)

    chunks: int = Field(default=0, ge=0)  # of a bounded input, numbered from 0
    topics: tuple[TopicInput, ...] = ()
    topic_readers: tuple[int, ...] = ()  # subtasks that read each of them and parse; empty: one
    embeddings_to: TopicOutput | None = None
    embeddings_by_kind: dict[str, TopicOutput] = Field(default_factory=dict)  # where the model returns several kinds
    letters_to: TopicOutput | None = None
    # Secrets may stand in them, so they are never written down: not in files, not in messages.
    kafka_properties: dict[str, str] = Field(default_factory=dict, exclude=True, repr=False)
    stay: bool = False  # go on after the last chunk until stopped
    ends_with_state: bool = False  # its client stops it with a savepoint at the end of its topics
    has_stayed: bool = False  # whether an earlier attempt was to stay, whose state has a source more
    epoch_ms: int = Field(default=20, ge=0)

    parallelism: int = Field(default=1, ge=1)  # slots, which Flink fills with a process each
    pipeline: int = Field(default=1, ge=1)  # groups of operators that share them (see flink.pipeline)
    layer_parallelism: tuple[int, ...] | None = None  # subtasks of layers 1, 2, ..., where they are given one by one
    max_parallelism: int = Field(default=FLINK_PARTS_MAX, ge=1, le=32768)
    cluster: str | None = None  # HOST:PORT of a cluster's REST endpoint; None: embedded
    state_backend: StateBackend = "rocksdb"
    checkpoint_dir: str = ""  # default: out/checkpoints
    checkpoint_interval_ms: int = Field(default=10_000, ge=0)  # 0: no checkpoints
    checkpoints_retained: int = Field(default=2, ge=1)
    restarts: int = Field(default=10, ge=0)  # within RESTART_INTERVAL_S; one failure more ends the job
    restart_delay_ms: int = Field(default=500, ge=0)
    resume: str | None = None  # a checkpoint or savepoint folder
    rest_port: int = 0  # embedded: 0 takes a free one
    # Embedded, of all processes that work together (see flink.memory):
    heap_mb: int = Field(default=2048, ge=256)
    managed_mb: int = Field(default=MANAGED_MB, ge=MANAGED_MB_MIN)
    network_mb: int = Field(default=256, ge=16)
    options: dict[str, str] = Field(default_factory=dict)  # further Flink options, which win
    # Those of the user, with secrets in them: like `kafka_properties`, never written down.
    user_options: dict[str, str] = Field(default_factory=dict, exclude=True, repr=False)

    @model_validator(mode="after")
    def _spread(self) -> JobSpec:
        if self.parts < max(self.by_layer):
            msg = f"parts {self.parts} < parallelism {max(self.by_layer)}: a subtask would have no part"
            raise ValueError(msg)
        if self.parallelism > self.max_parallelism or self.parts > self.max_parallelism:
            msg = f"parts {self.parts} and parallelism {self.parallelism} must be <= {self.max_parallelism}"
            raise ValueError(msg)
        return self

    @property
    def embedding_topics(self) -> dict[str, TopicOutput]:
        """The topics of changed embeddings by kind; of a model that returns one, under an empty name."""
        return self.embeddings_by_kind if self.embeddings_to is None else {"": self.embeddings_to}

    @property
    def ends_by_itself(self) -> bool:
        """True if the job ends with its input: topics and a job that stays have no end."""
        return not (self.topics or self.stay)

    @property
    def groups(self) -> int:
        """Number of groups of operators with slots of their own: as given, if that fits the parallelism."""
        fits = self.layer_parallelism is not None or self.parallelism % self.pipeline == 0
        return self.pipeline if fits and self.pipeline <= groups_max(self.layers) else 1

    @property
    def by_layer(self) -> tuple[int, ...]:
        """Number of subtasks of layers 1, 2, ..."""
        return self.layer_parallelism or (self.parallelism // self.groups,) * self.layers

    @property
    def operators(self) -> OperatorGroups:
        """The groups of operators."""
        return OperatorGroups(self.layers, self.groups, self.groups_with_readers, self.by_layer)

    @property
    def first_slots(self) -> int:
        """Number of slots of the first group of operators."""
        return OperatorGroups(self.layers, self.groups, by_layer=self.by_layer).slots[0]

    @property
    def readers_most(self) -> int:
        """Largest number of readers of a topic."""
        return max(self.topic_readers, default=1)

    @property
    def shares_slots(self) -> bool:
        """True if groups of operators share slots, since readers run beside each of them (see flink.pipeline)."""
        alike = self.layer_parallelism is None
        return alike and self.starts_task_managers and self.readers_most > self.first_slots

    @property
    def groups_with_readers(self) -> int:
        """Number of groups that share slots; 0: the readers fit into those of the first."""
        return min(self.groups, -(-self.readers_most // self.first_slots)) if self.shares_slots else 0

    @property
    def slots_of_process(self) -> int:
        """Number of slots of each process that the run starts: one, unless there are more readers than processes."""
        slots = self.readers_most if self.layer_parallelism is None else self.slots_of_cluster
        return -(-slots // self.parallelism)

    @property
    def slots_of_cluster(self) -> int:
        """Number of slots that the job needs on a cluster that others started: more readers take slots of their own."""
        return self.parallelism + max(0, self.readers_most - self.first_slots)

    @property
    def starts_task_managers(self) -> bool:
        """True if the run starts a TaskManager per subtask, since two subtasks must not share an interpreter."""
        return self.cluster is None and self.parallelism > 1

    @property
    def out_path(self) -> Path:
        """Return the output folder, absolute."""
        return Path(self.out).absolute()

    @property
    def logs(self) -> Path:
        """Return the folder of Flink's log, the Java process's output and Python's tracebacks."""
        return self.out_path / layout.LOGS

    @property
    def checkpoints(self) -> Path:
        """Return the checkpoint folder, absolute; the folder of local files if checkpoints go to another store."""
        return layout.checkpoint_folder(self.checkpoint_dir, self.out_path)

    @property
    def checkpoint_uri(self) -> str:
        """Return where Flink writes checkpoints: a folder as file://, another store (s3://...) as it was given."""
        return self.checkpoint_dir.rstrip("/") if is_remote(self.checkpoint_dir) else file_uri(self.checkpoints)

    @property
    def savepoint_uri(self) -> str:
        """Return where savepoints go by default: below the checkpoints, where a resume looks."""
        return f"{self.checkpoint_uri}/{layout.SAVEPOINTS}"

    @property
    def tmp(self) -> Path:
        """Return the folder of what Flink needs while it runs."""
        return self.out_path / layout.TMP

    def save(self, path: Path) -> None:
        """Write the spec as JSON."""
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> JobSpec:
        """Read a spec from JSON.

        Raises: UsageError where there is none; DamagedFileError naming the field that is wrong.
        """
        found = read_json(path, cls, "give the file of a job, as `freshet run` leaves it beside the checkpoints")
        if found is None:
            msg = f"{path}: there is no such file; give the {layout.SPEC} of a job, beside its checkpoints"
            raise UsageError(msg)
        return found


def after_former(spec: JobSpec, path: Path) -> JobSpec:
    """The spec of a job that goes on from the state of the one whose spec is there; one that begins has none."""
    return spec.model_copy(update={"has_stayed": spec.resume is not None and _has_stayed(path)})


def _has_stayed(path: Path) -> bool:
    """Return whether the job of this spec, or one before it, ran with --stay; True if unknown."""
    try:
        found = read_json(path, dict[str, Any], "the next run writes it again")
    except DamagedFileError:
        return True
    return found is None or bool(found.get("stay") or found.get("has_stayed"))


def savepoint_target(folder: Path | str) -> str:
    """Return a folder as a URI; a local one is made if need be."""
    if is_remote(str(folder)):
        return str(folder)
    path = local_path(str(folder))
    path.mkdir(parents=True, exist_ok=True)
    return file_uri(path)
