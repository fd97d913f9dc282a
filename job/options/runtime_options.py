"""The options of `freshet run` that say where the job runs, and how it survives failures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from freshet.job.console import LOG_FORMAT_HELP
from freshet.job.options.flink_keys import read_flink
from freshet.job.options.marks import (
    FAULTS,
    FILE,
    IO,
    RUNTIME,
    Count,
    Counts,
    Duration,
    Holds,
    Option,
    Options,
    ShareOrOff,
    Size,
)
from freshet.log_lines import LogFormat

Runtime = Literal["flink", "local"]
StateBackend = Literal["rocksdb", "hashmap"]
ProcessorName = Literal["host", "portable", "any"]
LATEST, AUTO = "latest", "auto"  # what --resume may name besides a path
NEWEST = frozenset({LATEST, AUTO})
PARTS_MAX = 1024
FLINK_PARTS_MAX = 128  # its key groups, for the job's life: a savepoint is divided by them
MANAGED_MB, MANAGED_MB_MIN = 512, 64  # RocksDB's caches and write buffers


def is_address(text: str) -> bool:
    """Return whether a value is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in host and port.isascii() and port.isdigit() and 0 < int(port) < 65536


class RuntimeOptions(Options):
    """Runtime of the job, its resources on the machine, and its duration."""

    stay: Annotated[bool, Option(IO)] = Field(
        default=False, description="Keep running after the end of bounded input, until SIGTERM."
    )
    runtime: Annotated[Runtime, Option(RUNTIME)] = Field(
        default="flink", description="Run on Flink, or everything in this one process (local)."
    )
    name: Annotated[str | None, Option(RUNTIME, Holds.KEPT)] = Field(
        default=None,
        description="Name of the job in Flink, in metrics and alerts (default: the last folder of --out).",
    )
    cluster: Annotated[str | None, Option(RUNTIME)] = Field(
        default=None, description="HOST:PORT of a running Flink cluster (default: an embedded one)."
    )
    detach: Annotated[bool, Option(RUNTIME)] = Field(
        default=False,
        description="Submit the job to --cluster, print its id and leave; --resume attaches to it.",
    )
    parallelism: Annotated[Count, Option(RUNTIME, Holds.KEPT)] = Field(
        default=1,
        ge=1,
        le=PARTS_MAX,
        description="Flink processes of one slot each; without --cluster the run starts them.",
    )
    pipeline: Annotated[Count | None, Option(RUNTIME, Holds.KEPT)] = Field(
        default=None,
        ge=1,
        description="Pipeline stages that the layers are divided into; each layer has --parallelism / --pipeline "
        "subtasks (default: the largest divisor of --parallelism up to the model's convs + 2).",
    )
    layer_parallelism: Annotated[Counts | None, Option(RUNTIME, Holds.KEPT)] = Field(
        default=None,
        description="Subtasks of each layer, such as 1,2,4, at most --parts; --parallelism is then the limit of "
        "processes, which share the layers first (default: the largest of the numbers).",
    )
    readers: Annotated[Count | None, Option(RUNTIME, Holds.KEPT)] = Field(
        default=None,
        ge=1,
        le=FLINK_PARTS_MAX,
        description="Readers of each Kafka topic, which divide its partitions and parse their messages, and threads "
        "that parse JSON Lines files (default: one for each of the --parallelism processes; topics on a --cluster: one "
        "for each subtask of a layer).",
    )
    state_backend: Annotated[StateBackend, Option(FILE, Holds.KEPT)] = Field(
        default="rocksdb", description="Backend of the durable state between checkpoints."
    )
    memory_bytes: Annotated[Size | None, Option(RUNTIME, Holds.KEPT)] = Field(
        default=None,
        alias="memory",
        description="Memory of the job, such as 2GiB. Local: of the process; tables that find no room lie in files "
        "below --out. Flink: for the state backend of the processes (default: the backend's).",
    )
    flink: Annotated[dict[str, str], Option(RUNTIME, Holds.KEPT, "-D")] = Field(
        default_factory=dict,
        repr=False,
        description="KEY=VALUE, a configuration option of Flink, such as s3.endpoint=http://minio:9000; repeatable. "
        "${NAME} is read from the environment: write secrets so.",
    )
    processor: Annotated[ProcessorName | None, Option(RUNTIME)] = Field(
        default=None,
        description="Processor that a new job's bits are fixed to: host (default), or portable (any of the last ten "
        "years; products take 1.5 to 3 times as long). any: do not check.",
    )

    log_format: Annotated[LogFormat | None, Option(RUNTIME)] = Field(default=None, description=LOG_FORMAT_HELP)

    @property
    def processes(self) -> tuple[int, int | None, tuple[int, ...] | None]:
        """Return the options that divide the work among processes: parallelism, pipeline, those by layer."""
        by_layer = None if self.layer_parallelism is None else tuple(self.layer_parallelism)
        return self.parallelism, self.pipeline, by_layer

    @property
    def processes_at_most(self) -> int:
        """Number of processes, where --pipeline takes no more."""
        return max(self.parallelism, *(self.layer_parallelism or (1,)))

    @property
    def managed_mb(self) -> int:
        """Memory for the state backend, in MiB."""
        return MANAGED_MB if self.memory_bytes is None else max(MANAGED_MB_MIN, self.memory_bytes >> 20)

    @field_validator("flink", mode="before")
    @classmethod
    def _flink_options(cls, value: Any) -> dict[str, str]:
        return read_flink(value)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        if value is not None and not (value.strip() and value.isprintable()):
            msg = f"got {value!r}, expected characters that can be printed, such as fraud-eu"
            raise ValueError(msg)
        return value

    @field_validator("cluster")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value and not is_address(value):
            msg = f"got {value!r}, expected HOST:PORT, such as localhost:8081"
            raise ValueError(msg)
        return value


class FaultOptions(Options):
    """Checkpoints and restarts."""

    checkpoint_dir: Annotated[str | None, Option(FAULTS, Holds.KEPT, is_place=True)] = Field(
        default=None, description="Folder or URI for checkpoints, with a subfolder per job (default: OUT/checkpoints)."
    )
    checkpoint_interval_s: Annotated[Duration, Option(FAULTS, Holds.KEPT)] = Field(
        default=10.0, alias="checkpoint_interval", description="Time between checkpoints, such as 10s or 500ms."
    )
    keep_cuts: Annotated[bool, Option(FILE, Holds.KEPT)] = Field(
        default=False,
        description="Keep the whole cut log, so that savepoints older than the retained checkpoints can be resumed.",
    )
    restarts: Annotated[Count, Option(FILE, Holds.KEPT)] = Field(
        default=10,
        ge=0,
        description="Failures within 10 minutes after which the job restarts (Flink); one more ends it. 0: the first "
        "ends it.",
    )
    max_rejected: Annotated[ShareOrOff, Option(FAULTS, Holds.KEPT)] = Field(
        default=None,
        description="End the run with exit code 1, keeping its state, when more than this share of the records read is "
        "rejected, such as 5%; checked from the 1,000th record on, and at the end (default: off).",
    )
    resume: Annotated[str | None, Option(FAULTS)] = Field(
        default=None,
        description="Resume from `latest`, or from the checkpoint or savepoint at PATH; `auto` begins in a new folder, "
        "and else goes on.",
    )

    @property
    def names_newest(self) -> bool:
        """Return whether --resume goes on from wherever the job is."""
        return self.resume in NEWEST

    @property
    def checkpoint_interval_ms(self) -> int:
        """Time between checkpoints, in milliseconds."""
        return int(self.checkpoint_interval_s * 1000)

    @property
    def marker_interval_ms(self) -> int:
        """Time between markers, in milliseconds: as between checkpoints."""
        return max(1, self.checkpoint_interval_ms)
