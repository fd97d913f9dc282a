"""The options of `freshet run` that say where embeddings and rejected records go besides files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.topic_specs import UPSERT, Delivery
from freshet.job.options.marks import FILE, IO, KAFKA, Count, Duration, Holds, Option, Options, Size
from freshet.job.units import format_duration
from freshet.job.uris import is_remote, local_path
from freshet.operators.limits import TAIL_BYTES
from freshet.operators.output_folders import TABLES

EmbeddingsMade = Literal["eager", "asked"]
EAGER: EmbeddingsMade = "eager"
ASKED: EmbeddingsMade = "asked"
EmbeddingFormat = Literal["base64", "list", "binary"]
PUBLISH_WITHIN_MIN_S = 0.1  # with each publication a file begins
DEAD_LETTERS_MIN_BYTES = 1 << 20


class OutputOptions(Options):
    """Outputs: when those in files are visible, and those beside the change log.

    Units: `coalesce_s` and `publish_within_s` seconds, `dead_letters_max_bytes` bytes.
    """

    publish_within_s: Annotated[Duration, Option(IO, Holds.KEPT)] = Field(
        default=10.0,
        alias="publish_within",
        description="Longest time until results are readable in OUT/embeddings and OUT/epochs, even when the stream "
        "pauses.",
    )
    flight_port: Annotated[Count | None, Option(IO)] = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of Arrow Flight on which to serve the embeddings while the job runs, 0 for any; HTTP gets a "
        "port beside it (default: no server; `freshet serve` starts one).",
    )
    embeddings: Annotated[EmbeddingsMade, Option(IO, Holds.FOR_LIFE)] = Field(
        default=EAGER,
        description="When embeddings are computed: as the graph changes (eager), or by `freshet serve` as they are "
        "read (asked), for jobs of which few rows are read.",
    )
    what_if: Annotated[bool, Option(IO, Holds.KEPT)] = Field(
        default=False,
        description="Have the servers of the job, that of --flight-port and `freshet serve --tables`, also answer what "
        "rows would be with other edges and features.",
    )
    tail_bytes: Annotated[Size, Option(FILE, Holds.KEPT)] = Field(
        default=TAIL_BYTES,
        alias="tail",
        description="Size of the recent changes that each part keeps in OUT/tables for `freshet serve`, once they are "
        "in OUT/embeddings.",
    )
    tables_folder: Annotated[str | None, Option(IO, Holds.KEPT, is_place=True)] = Field(
        default=None,
        alias="tables",
        description="Folder instead of OUT/tables, on each TaskManager's own machine and for this job alone, for a "
        "`freshet serve --tables` beside it; FRESHET_TABLES in a TaskManager's environment overrides it there.",
    )
    embeddings_to: Annotated[str | None, Option(KAFKA, Holds.KEPT)] = Field(
        default=None,
        description="kafka://HOST:PORT/TOPIC for changed embeddings, keyed by vertex id (default: none); TOPIC.KIND "
        "for each kind of vertices where the model returns several.",
    )
    embedding_format: Annotated[EmbeddingFormat, Option(KAFKA, Holds.KEPT)] = Field(
        default="base64",
        description="Format of an embedding in Kafka: JSON with base64 of little-endian float32 or with a list of "
        "numbers, or binary: a head of 16 bytes and little-endian float32.",
    )
    embeddings_from_start: Annotated[bool, Option(FILE, Holds.KEPT)] = Field(
        default=False,
        description="Also write the embeddings of the --snapshot to the topic, once, before all others.",
    )
    take_topic: Annotated[bool, Option(KAFKA)] = Field(
        default=False, description="Write to --embeddings-to even if another job has written there."
    )
    delivery: Annotated[Delivery, Option(KAFKA, Holds.KEPT)] = Field(
        default=UPSERT,
        description="Delivery to Kafka: upsert repeats records after a failure (the last one of a vertex is current); "
        "exactly-once writes transactions, which readers see when a checkpoint is complete.",
    )
    coalesce_epochs: Annotated[Count, Option(FILE, Holds.KEPT)] = Field(
        default=1000,
        ge=1,
        description="Maximum number of epochs in an interval; Kafka gets the last embedding of a vertex per interval.",
    )
    coalesce_s: Annotated[Duration, Option(KAFKA, Holds.KEPT)] = Field(
        default=0.5,
        alias="coalesce",
        description="Maximum time of an interval; with --epoch-ms 0 only coalesce-epochs counts.",
    )
    dead_letters: Annotated[str | None, Option(IO, Holds.KEPT, is_place=True)] = Field(
        default=None,
        description="JSON Lines file, or kafka://HOST:PORT/TOPIC, for rejected records "
        "(default: OUT/dead_letters.jsonl).",
    )
    dead_letters_max_bytes: Annotated[Size, Option(FILE, Holds.KEPT)] = Field(
        default=1 << 30,
        alias="dead_letters_max",
        description="Maximum total size of the files of rejected records; above it the oldest are dropped and counted.",
    )

    @field_validator("publish_within_s")
    @classmethod
    def _files_take_time(cls, value: float) -> float:
        if value < PUBLISH_WITHIN_MIN_S:
            msg = f"got {format_duration(value)}, expected at least 100ms: each time a file is written"
            raise ValueError(msg)
        return value

    @field_validator("dead_letters_max_bytes")
    @classmethod
    def _some_letters(cls, value: int) -> int:
        if value < DEAD_LETTERS_MIN_BYTES:
            msg = f"got {value} bytes, expected at least 1MiB"
            raise ValueError(msg)
        return value

    @field_validator("tables_folder")
    @classmethod
    def _from_anywhere(cls, value: str | None) -> str | None:
        if value is not None and local_path(value).name != TABLES:
            msg = f"got {value}, expected a folder of the name {TABLES}, such as /var/lib/freshet/tables"
            raise ValueError(msg)
        return None if value is None else str(local_path(value))

    @field_validator("embeddings_to")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        return None if value is None else str(KafkaAddress.parse(value))

    @field_validator("dead_letters")
    @classmethod
    def _file_or_topic(cls, value: str | None) -> str | None:
        if value is None or is_kafka(value):
            return None if value is None else str(KafkaAddress.parse(value))
        if is_remote(value):
            msg = f"got {value}, expected a file of this machine, or kafka://HOST:PORT/TOPIC"
            raise ValueError(msg)
        return value.removeprefix("file://")

    @property
    def publish_ms(self) -> int:
        """Longest time until results are readable, in milliseconds."""
        return int(self.publish_within_s * 1000)

    @property
    def coalesce_ms(self) -> int:
        """Longest that a change waits for others, in milliseconds."""
        return int(self.coalesce_s * 1000)

    @property
    def output_topics(self) -> dict[str, KafkaAddress]:
        """The topics that are written, by option."""
        given = {"--embeddings-to": self.embeddings_to, "--dead-letters": self.dead_letters}
        return {option: KafkaAddress.parse(value) for option, value in given.items() if value and is_kafka(value)}
