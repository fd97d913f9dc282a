"""The output topic of the job that a swap begins: no topic has rows of two models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties
from freshet.job.options.run_config import written
from freshet.job.service.current_topic import base_of, free_topic, pointer_of, topic_of_options


def topic_options(saved: SavedJob, generation: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a new job that writes to a topic, where the one that serves does: NAME-gN.

    All rows go there, since all of them are of another model. A topic that is given is taken.

    Raises: UsageError for the topic of the job that serves, or a name that Kafka would refuse; JobFailed without
    brokers.
    """
    former = topic_of_options(saved.options)
    if former is None:
        return {}
    name = "embeddings_to"
    if (own := topic_of_options(given)) is not None:
        if own.topic == former.topic:
            msg = (
                f"{written(name)} {former}: the job that serves writes there, and a topic must not have rows of two "
                f"models; leave {written(name)} out, or give another topic"
            )
            raise UsageError(msg)
        if base_of(own.topic) != base_of(former.topic):
            say(f"{written(name)} {own}: readers of {pointer_of(former)} stay with the job before", "warning")
        return {"embeddings_from_start": True}
    properties = ClientProperties(given.get("kafka") or {})
    await_brokers([(written(name), former)], properties)
    return {name: str(free_topic(former, generation, properties)), "embeddings_from_start": True}
