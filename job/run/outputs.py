"""The topics that a job writes: prepared before it starts, and described for its operators."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from freshet.job.errors import UsageError
from freshet.job.kafka.topic_specs import EXACTLY_ONCE, TopicOutput
from freshet.job.options.run_config import RunConfig
from freshet.job.options.told import told, told_again
from freshet.operators.limits import RECORD_BYTES, RECORD_SPARE
from freshet.operators.settings import OutletConfig, Settings
from freshet.operators.sink.kafka_records import record_bytes_max
from freshet.partitioner.events import STRING

_MODEL_DIGITS = 12
_INT_ID_BYTES = 20


@dataclass(frozen=True)
class Outputs:
    """The topic of changed embeddings and the topic of rejected records; None where the job writes none."""

    embeddings: TopicOutput | None = None
    letters: TopicOutput | None = None

    @property
    def letter_bytes(self) -> int:
        """The largest record that the topic of rejected records takes."""
        return self.letters.record_bytes if self.letters is not None else RECORD_BYTES


def plan_outputs(config: RunConfig, job_id: str, say: Callable[[str], None]) -> Outputs:
    """Ask the brokers for the topics, and make those that are missing.

    Transactions go by the job's id: no two jobs may share one, and a resumed job must find those of its last attempt.
    Raises: UsageError when the brokers can't give what the options ask for; JobFailed when they can't be reached.
    """
    if not config.output_topics:
        return Outputs()
    from freshet.job.kafka.make_topics import plan_output

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
            checkpoint_interval_ms=config.checkpoint_interval_ms,
        )
    return Outputs(found.get("--embeddings-to"), found.get("--dead-letters"))


def refuse_large_records(settings: Settings, outputs: Outputs, width: int) -> None:
    """Refuse a job whose embeddings may be larger than a record of their topic: one such record would end it.

    Raises: UsageError when an embedding is too wide, or ids may be too long.
    """
    if outputs.embeddings is None or settings.outlet is None:
        return
    most, form = outputs.embeddings.record_bytes, settings.outlet.embedding_format
    id_kind, id_bytes_max = settings.id_kind, settings.parsing.id_bytes_max
    longest = id_bytes_max if id_kind == STRING else _INT_ID_BYTES
    needed = record_bytes_max(width, form, "0" * _MODEL_DIGITS, longest) + RECORD_SPARE
    if needed > most:
        ids = f" with ids of up to {id_bytes_max} bytes (id-bytes-max)" if id_kind == STRING else ""
        msg = (
            f"--embeddings-to {outputs.embeddings.address}: an embedding of {width:,} numbers as {form}{ids} may take "
            f"{needed:,} bytes, and the producer and the topic take records of {most:,}; raise max.request.size in "
            "`kafka:` of --config and max.message.bytes of the topic"
        )
        raise UsageError(msg)


def outlet_settings(config: RunConfig, model_sha256: str, former: OutletConfig | None = None) -> OutletConfig | None:
    """Return the settings of the topic of changed embeddings, for Sink and Partitioner; None if there is none.

    `former` are those of the job's former run, if it wrote to a topic.
    """
    if config.embeddings_to is None:
        return None
    values = told(config, OutletConfig) if former is None else told_again(config, OutletConfig)
    return replace(former or OutletConfig(), **values, model_tag=model_sha256[:_MODEL_DIGITS])


def new_job_id() -> str:
    """An id that no other job has."""
    return uuid.uuid4().hex[:16]
