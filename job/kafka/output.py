"""A Kafka topic that a job writes, as it stands in the job's description."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from operators.limits import RECORD_BYTES

Delivery = Literal["upsert", "exactly-once"]
UPSERT: Delivery = "upsert"
EXACTLY_ONCE: Delivery = "exactly-once"


class TopicOutput(BaseModel):
    """A topic that is written; with a prefix in transactions, which end with the checkpoints.

    Units: transaction_timeout_ms milliseconds; record_bytes bytes, the largest record that producer and topic take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap: str
    topic: str
    transactional_id_prefix: str | None = None
    transaction_timeout_ms: int = 0
    record_bytes: int = RECORD_BYTES
