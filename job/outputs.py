"""The topics that a job writes: asked for before it starts, and what its operators are told about them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from job.config import RunConfig
from job.kafka_output import EXACTLY_ONCE, TopicOutput

_MODEL_DIGITS = 12


@dataclass(frozen=True)
class Outputs:
    """The topic of changed embeddings and that of rejected records, where there is one."""

    embeddings: TopicOutput | None = None
    letters: TopicOutput | None = None


def plan_outputs(config: RunConfig, job_id: str, say: Callable[[str], None]) -> Outputs:
    """Ask the brokers for the topics, and make those that are missing.

    Transactions go by the job's id: no two jobs may share one, and a resumed job must find those of its last attempt.
    Raises: UsageError when the brokers can't give what the options ask for; JobFailed when they can't be reached.
    """
    if not config.output_topics:
        return Outputs()
    from job.output_topics import plan_output

    found: dict[str, TopicOutput] = {}
    for option, address in config.output_topics.items():
        embeddings = option == "--embeddings-to"
        found[option] = plan_output(
            option,
            address,
            config.client_properties,
            say,
            compacted=embeddings,
            prefix=f"freshet-{job_id}" if embeddings and config.delivery == EXACTLY_ONCE else None,
            checkpoint_interval_ms=int(config.checkpoint_interval_s * 1000),
        )
    return Outputs(found.get("--embeddings-to"), found.get("--dead-letters"))


def outlet_settings(config: RunConfig, model_sha256: str) -> dict[str, Any]:
    """What the Sink and the Partitioner are told of the topic of changed embeddings; empty where there is none."""
    if config.embeddings_to is None:
        return {}
    return {
        "model": model_sha256[:_MODEL_DIGITS],
        "form": config.embedding_format,
        "epochs": config.coalesce_epochs,
        "ms": int(config.coalesce_s * 1000),
    }


def new_job_id() -> str:
    """An id that no other job has."""
    return uuid.uuid4().hex[:16]
