"""The options of `freshet run` that say where embeddings and rejected records go besides files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from job.kafka_address import KafkaAddress, is_kafka
from job.kafka_output import UPSERT, Delivery
from job.units import seconds

EmbeddingFormat = Literal["base64", "list"]


class OutputOptions(BaseModel):
    """Outputs beside the change log.

    Units: `coalesce_s` seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    embeddings_to: str | None = Field(
        default=None, description="kafka://HOST:PORT/TOPIC for changed embeddings, keyed by vertex id (default: none)."
    )
    embedding_format: EmbeddingFormat = Field(
        default="base64", description="An embedding in Kafka: base64 of little-endian float32, or a list of numbers."
    )
    delivery: Delivery = Field(
        default=UPSERT,
        description="To Kafka: upsert repeats records after a failure (the last one of a vertex holds), exactly-once "
        "writes transactions, which readers see when a checkpoint is complete.",
    )
    coalesce_epochs: int = Field(
        default=1000, ge=1, description="Kafka gets the last embedding of a vertex per so many epochs, or sooner."
    )
    coalesce_s: Annotated[float, BeforeValidator(seconds)] = Field(
        default=0.5,
        alias="coalesce",
        description="Longest that a change waits for others; with --epoch-ms 0 only epochs count.",
    )
    dead_letters: str | None = Field(
        default=None,
        description="JSON Lines file, or kafka://HOST:PORT/TOPIC, for rejected records "
        "(default: OUT/dead_letters.jsonl).",
    )

    @field_validator("embeddings_to")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        return None if value is None else str(KafkaAddress.parse(value))

    @field_validator("dead_letters")
    @classmethod
    def _file_or_topic(cls, value: str | None) -> str | None:
        return str(KafkaAddress.parse(value)) if value is not None and is_kafka(value) else value

    @property
    def output_topics(self) -> dict[str, KafkaAddress]:
        """The topics that are written, by option."""
        given = {"--embeddings-to": self.embeddings_to, "--dead-letters": self.dead_letters}
        return {option: KafkaAddress.parse(value) for option, value in given.items() if value and is_kafka(value)}
