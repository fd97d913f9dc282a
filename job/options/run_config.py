"""What `freshet run` is told: its options from flags and the --config file, checked and refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from job.errors import UsageError
from job.kafka.address import KafkaAddress, is_kafka
from job.kafka.client import ClientProperties
from job.kafka.input import COMMITTED, EARLIEST, parse_start
from job.options.output_options import OutputOptions, size_in_bytes
from job.units import seconds
from operators.limits import ID_BYTES_MAX
from partitioner.config import PartitionerConfig

Runtime = Literal["flink", "local"]
PartitionerName = Literal["hybrid", "hdrf", "locality", "hash"]
IdType = Literal["int", "string"]
StateBackend = Literal["rocksdb", "hashmap"]
ProcessorName = Literal["host", "portable", "any"]

PARTS_MAX = 1024
_PARTITIONER = PartitionerConfig()  # its defaults are those of a run

# Options of the interface that this version does not have yet, and what one does without them.
LATER = {
    "flight_port": "read the embeddings from --out",
}


def _mapping_of(value: object, example: str) -> dict[Any, Any]:
    """The mapping; nothing is an empty one."""
    if value is not None and not isinstance(value, dict):
        msg = f"got {type(value).__name__}, expected a mapping such as `{example}`"
        raise ValueError(msg)
    return value or {}


class RunConfig(OutputOptions):
    """Every option of `freshet run`, by the name that its flag and its key in the --config file have.

    Units: `checkpoint_interval_s` seconds, `memory_bytes` bytes, `epoch_ms` milliseconds.
    Raises: ValidationError naming each option that does not fit; `load_run_config` words it for people.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Path = Field(description="Model folder (model.json, model.safetensors).")
    events: list[str] = Field(
        min_length=1,
        description="Event file (.jsonl, .parquet, .arrow), folder of such files, or kafka://HOST:PORT/TOPIC; "
        "repeatable.",
    )
    start_from: str = Field(
        default=EARLIEST,
        alias="from",
        description="Where to begin in a Kafka topic: earliest, latest, committed (by kafka: group.id), timestamp:MS.",
    )
    until: Literal["latest"] | None = Field(
        default=None, description="latest: end where the Kafka topics end at the start (default: run on)."
    )
    kafka: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Client properties for Kafka (SASL, TLS, ...); only in the file."
    )
    events_map: dict[str, str] = Field(
        default_factory=dict, description="JMESPath by event field, for records of another shape; only in the file."
    )
    out: Path = Field(description="Output folder; must be empty unless --resume.")
    snapshot: Path | None = Field(
        default=None, description="Graph to start from: a folder with vertices.parquet and edges.parquet."
    )
    ignore_positions: bool = Field(
        default=False,
        description="Read all events from their beginning, also those that the snapshot.json of an export covers.",
    )
    undirected: bool = Field(default=False, description="Mirror every edge of snapshot and events.")
    id_type: IdType | None = Field(
        default=None, description="Kind of vertex ids (default: the snapshot's, else the first accepted event's)."
    )
    id_bytes_max: int = Field(
        default=ID_BYTES_MAX,
        ge=1,
        le=1 << 20,
        description="Longest string id, and name of an edge type, in bytes of UTF-8, for the job's life; events with a "
        "longer one are rejected.",
    )
    stay: bool = Field(default=False, description="Keep running after bounded input has ended, until SIGTERM.")

    runtime: Runtime = Field(default="flink", description="Flink, or everything in this one process.")
    cluster: str | None = Field(
        default=None, description="HOST:PORT of a running Flink cluster (default: an embedded one)."
    )
    parallelism: int = Field(default=1, ge=1, le=PARTS_MAX, description="Subtasks of each keyed operator (Flink).")
    state_backend: StateBackend = Field(default="rocksdb", description="Where durable state lives between checkpoints.")
    memory_bytes: Annotated[int, BeforeValidator(size_in_bytes)] | None = Field(
        default=None, alias="memory", description="Memory for the state backend, such as 2GiB (default: the backend's)."
    )

    processor: ProcessorName | None = Field(
        default=None,
        description="What a new job computes for, for its life, since last bits depend on it: host (default), or "
        "portable (any of the last ten years; products take 1.6 times as long). any: on whatever runs.",
    )

    parts: int | None = Field(
        default=None, ge=1, le=PARTS_MAX, description="Parts of the graph, for the job's life (default: --parallelism)."
    )
    epoch_events: int = Field(default=1000, ge=1, description="Accepted events that make an epoch.")
    epoch_ms: int = Field(default=20, ge=0, description="Longest that an epoch stays open; 0: cut by count alone.")
    partitioner: PartitionerName = Field(default="hybrid", description="How edges and vertices find their part.")
    hybrid_threshold: int = Field(
        default=_PARTITIONER.hybrid_threshold,
        ge=1,
        description="hybrid: in-degree past which new in-edges are spread by HDRF.",
    )
    hdrf_lambda: float = Field(
        default=_PARTITIONER.hdrf_lambda,
        ge=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: weight of balance against replication.",
    )
    hdrf_epsilon: float = Field(
        default=_PARTITIONER.hdrf_epsilon,
        gt=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: keeps the balance term finite.",
    )

    checkpoint_dir: str | None = Field(
        default=None, description="Folder or URI, in which each job has a folder (default: OUT/checkpoints)."
    )
    checkpoint_interval_s: Annotated[float, BeforeValidator(seconds)] = Field(
        default=10.0, alias="checkpoint_interval", description="Time between checkpoints, such as 10s or 500ms."
    )
    keep_cuts: bool = Field(
        default=False,
        description="Keep all of the cut log: also savepoints older than the retained checkpoints can be resumed.",
    )
    restarts: int = Field(
        default=10,
        ge=0,
        description="Failures within 10 minutes that the job restarts after (Flink); one more ends it, 0: the first.",
    )
    resume: str | None = Field(
        default=None, description="Go on from `latest` or from the checkpoint or savepoint at PATH."
    )

    @field_validator(
        "parallelism",
        "parts",
        "epoch_events",
        "epoch_ms",
        "id_bytes_max",
        "restarts",
        "hybrid_threshold",
        "hdrf_lambda",
        "hdrf_epsilon",
        mode="before",
    )
    @classmethod
    def _no_boolean(cls, value: object) -> object:
        if isinstance(value, bool):  # what YAML makes of `yes`, and pydantic would make 1 of
            msg = f"got {value}, expected a number"
            raise ValueError(msg)
        return value

    @field_validator("events", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("events")
    @classmethod
    def _addresses(cls, values: list[str]) -> list[str]:
        for value in filter(is_kafka, values):
            KafkaAddress.parse(value)
        return values

    @field_validator("start_from")
    @classmethod
    def _start(cls, value: str) -> str:
        parse_start(value)
        return value

    # Before pydantic looks at them: its own messages repeat the value, and there may be a password in it.
    @field_validator("kafka", mode="before")
    @classmethod
    def _properties(cls, value: object) -> object:
        mapping = _mapping_of(value, "security.protocol: SASL_SSL")
        try:
            ClientProperties(mapping)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("kafka: ")) from None
        return mapping

    @field_validator("events_map", mode="before")
    @classmethod
    def _mapping(cls, value: object) -> object:
        mapping = _mapping_of(value, "src: user.id")
        from operators.parser.mapping import EventMap

        EventMap(mapping)
        return mapping

    @field_validator("cluster")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        host, _, port = (value or "localhost:1").rpartition(":")
        if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            msg = f"got {value!r}, expected HOST:PORT, such as localhost:8081"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> RunConfig:
        self._fit_kafka()
        if self.runtime == "local" and self.stay:
            msg = "--stay: --runtime local ends when its input does; take flink, or leave --stay out"
            raise ValueError(msg)
        if self.runtime == "local" and self.cluster:
            msg = "--cluster: goes with --runtime flink only; leave one of the two out"
            raise ValueError(msg)
        if self.runtime == "flink" and self.parts is not None and self.parts < self.parallelism:
            msg = (
                f"--parts: got {self.parts} with --parallelism {self.parallelism}, expected at least as many parts as "
                f"subtasks; give --parts {self.parallelism} or a lower --parallelism"
            )
            raise ValueError(msg)
        return self

    def _fit_kafka(self) -> None:
        topics = any(map(is_kafka, self.events))
        for name, given in (("--from", "start_from" in self.model_fields_set), ("--until", self.until is not None)):
            if given and not topics:
                msg = f"{name}: goes with a Kafka topic in --events only; leave it out"
                raise ValueError(msg)
        if topics and self.runtime == "local":
            msg = "--runtime local: reads files only, for Kafka's offsets belong to Flink's checkpoints; take flink"
            raise ValueError(msg)
        for option in self.output_topics if self.runtime == "local" else ():
            msg = f"{option}: --runtime local writes files only; take flink, or leave {option} out"
            raise ValueError(msg)
        read = [KafkaAddress.parse(value).topic for value in self.events if is_kafka(value)]
        used = read + [address.topic for address in self.output_topics.values()]
        if len(set(used)) < len(used):
            msg = f"--events, --embeddings-to, --dead-letters: expected different topics, got {', '.join(used)}"
            raise ValueError(msg)
        if topics and self.stay:
            msg = "--stay: a run on Kafka goes on by itself; leave --stay out (and --until too, to go on)"
            raise ValueError(msg)
        if self.start_from == COMMITTED and "group.id" not in self.kafka:
            msg = "--from committed: give the group whose offsets are meant as `kafka: {group.id: ...}` in --config"
            raise ValueError(msg)

    @property
    def client_properties(self) -> ClientProperties:
        """How Kafka's clients connect; `${NAME}` in them still stands for a secret."""
        return ClientProperties(self.kafka)

    @property
    def part_count(self) -> int:
        """Parts of a new job; a resumed one takes them from its state."""
        return self.parts if self.parts is not None else self.parallelism


def option_names() -> list[str]:
    """Return the options by the names that the --config file uses."""
    return [field.alias or name for name, field in RunConfig.model_fields.items()]


def load_run_config(flags: Mapping[str, Any], config_file: Path | None = None) -> RunConfig:
    """Return the configuration of a run: what `flags` hold wins over the file, the file over the defaults.

    Raises: UsageError with a line for each option that is unknown, missing, misspelt or out of range.
    """
    written = read_config_file(config_file) if config_file else {}
    options = {**written, **flags}
    for key in options.keys() & LATER.keys():
        msg = f"{_flag(key)}: not in this version of Freshet; {LATER[key]}"
        raise UsageError(msg)
    try:
        return RunConfig.model_validate(options)
    except ValidationError as error:
        from_file = written.keys() - flags.keys()
        lines = [
            _explain(dict(problem), f"{config_file}: " if _key(problem) in from_file else "")
            for problem in error.errors()
        ]
        raise UsageError("\n".join(lines)) from None


def read_config_file(path: Path) -> dict[str, Any]:
    """Return the options in a YAML file, by the names with underscores (dashes in keys are taken too).

    Raises: UsageError when it cannot be read, is no mapping, or has a key that is no option.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"--config {path}: can't be read: {' '.join(str(error).split())}"
        raise UsageError(msg) from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        msg = f"--config {path}: got {type(content).__name__}, expected a mapping such as `epoch-events: 1000`"
        raise UsageError(msg)
    known = [*option_names(), *LATER]
    options: dict[str, Any] = {}
    for written, value in content.items():
        key = written.replace("-", "_")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            hint = f"did you mean `{near[0].replace('_', '-')}`?" if near else "see `freshet run --help`"
            msg = f"--config {path}: unknown key `{written}`; {hint}"
            raise UsageError(msg)
        if key in options:
            msg = f"--config {path}: `{written}` stands there twice, with a dash and with an underscore; keep one"
            raise UsageError(msg)
        options[key] = value
    return options


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _key(problem: Mapping[str, Any]) -> str:
    return str(problem["loc"][0]) if problem["loc"] else ""


def _explain(problem: Mapping[str, Any], where: str) -> str:
    """Word one of pydantic's problems: the option, what it got, what was expected."""
    key, text = _key(problem), str(problem["msg"])
    if problem["type"] == "missing":
        return f"{_flag(key)}: missing; give the flag, or `{key.replace('_', '-')}:` in the --config file"
    if problem["type"] == "extra_forbidden":
        return f"{where}{_flag(key)}: unknown option; see `freshet run --help`"
    if problem["type"] == "value_error":
        own = text.removeprefix("Value error, ")
        return f"{where}{_flag(key)}: {own}" if key else own
    return f"{where}{_flag(key)}: got {problem['input']!r}, expected {text.removeprefix('Input should be ')}"
