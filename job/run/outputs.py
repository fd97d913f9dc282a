"""The topics that a job writes: prepared before it starts, and described for its operators."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from freshet.gnn.any_plan import AnyPlan, names_of_returned, returned_of
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.kafka.address import KafkaAddress, KafkaAddressError
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import EXACTLY_ONCE, Seen, TopicOutput
from freshet.job.options.run_config import RunConfig, option_values, option_values_of_a_run
from freshet.kind_names import topic_end
from freshet.operators.limits import RECORD_BYTES, RECORD_SPARE
from freshet.operators.output_folders import log_id
from freshet.operators.record_blocks import TopicMark
from freshet.operators.settings import OutletConfig, Settings
from freshet.operators.sink.kafka_records import record_bytes_max
from freshet.partitioner.ids import STRING

_MODEL_DIGITS = 12
_INT_ID_BYTES = 20
_EMBEDDINGS = "--embeddings-to"


@dataclass(frozen=True)
class Outputs:
    """The topic of changed embeddings and the topic of rejected records; None where the job writes none.

    Where the model returns several kinds of vertices, `by_kind` has the topic of each in place of `embeddings`.
    """

    embeddings: TopicOutput | None = None
    letters: TopicOutput | None = None
    by_kind: Mapping[str, TopicOutput] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)  # by topic of embeddings

    @property
    def topics(self) -> Mapping[str, TopicOutput]:
        """The topics of changed embeddings by kind; of a model that returns one, under an empty name."""
        return self.by_kind if self.embeddings is None else {"": self.embeddings}

    @property
    def letter_bytes(self) -> int:
        """The largest record that the topic of rejected records takes."""
        return self.letters.record_bytes if self.letters is not None else RECORD_BYTES


def plan_outputs(config: RunConfig, job_id: str, say: Callable[[str], None], plan: AnyPlan | None = None) -> Outputs:
    """Ask the brokers for the topics, and make those that are missing: NAME.KIND for each of several returned kinds.

    Transactions go by the job's id: no two jobs may share one, and a resumed job must find those of its last attempt.
    Raises: UsageError when the brokers can't give what the options ask for; JobFailed when they can't be reached.
    """
    if not config.output_topics:
        return Outputs()
    from freshet.job.kafka.make_topics import plan_output

    def of(option: str, address: KafkaAddress, kind: str = "") -> TopicOutput:
        embeddings = option == _EMBEDDINGS
        prefix = f"freshet-{log_id(job_id, kind)}" if embeddings and config.delivery == EXACTLY_ONCE else None
        return plan_output(
            option,
            address,
            config.client_properties,
            say,
            compacted=embeddings,
            prefix=prefix,
            checkpoint_interval_ms=config.checkpoint_interval_ms,
        )

    given, used = config.output_topics, [address.topic for _, address in config.topics]
    kinds = [] if plan is None else [one.kind for one in returned_of(plan) if one.kind]
    apart = {kind: _topic_of(given[_EMBEDDINGS], kind, used) for kind in kinds if _EMBEDDINGS in given}
    _refuse_alike(apart)
    found = {option: of(option, address) for option, address in given.items() if option != _EMBEDDINGS or not apart}
    by_kind = {kind: of(_EMBEDDINGS, address, kind) for kind, address in apart.items()}
    return Outputs(found.get(_EMBEDDINGS), found.get("--dead-letters"), by_kind)


def claim_topics(
    outputs: Outputs,
    job_id: str,
    plan: AnyPlan,
    properties: ClientProperties,
    former: Mapping[str, Seen] | None,
    *,
    has_all: bool,
    goes_on: bool,
    take: bool,
) -> Outputs:
    """Return the topics with the marks of the job, once no other job is known to write to those of embeddings.

    `former` is what the job has seen of its topics; `has_all`: they get the rows of all vertices; `goes_on`: the job
    has written to them before. `take`: as the option.

    Raises: UsageError for the topic of another job; JobFailed without brokers.
    """
    if not outputs.topics:
        return outputs
    from freshet.job.kafka.topic_owner import claimed

    only = next(iter(names_of_returned(plan)), "")
    marked, seen = dict[str, TopicOutput](), dict[str, Seen]()
    for kind, topic in outputs.topics.items():
        mark, known = TopicMark(job_id, has_all, kind or only), None if former is None else former.get(topic.topic)
        before = goes_on and former is None
        marked[kind], seen[topic.topic] = claimed(topic, mark, known, properties, goes_on=before, take=take)
    if not has_all and not goes_on:
        say(
            f"--embeddings-to {', '.join(seen)}: without `embeddings-from-start: true` in --config no vertex of the "
            "snapshot has a row there before it changes, so that `freshet serve --kafka` has not all rows"
        )
    if outputs.embeddings is not None:
        return replace(outputs, embeddings=marked[""], seen=seen)
    return replace(outputs, by_kind=marked, seen=seen)


def watch_topics(outputs: Outputs, properties: Mapping[str, str]) -> AbstractContextManager[object]:
    """Return what says, while the job runs, that another one writes to its topics."""
    if not outputs.seen:
        return nullcontext()
    from freshet.job.kafka.topic_owner import OwnerWatch

    return OwnerWatch(list(outputs.topics.values()), outputs.seen, ClientProperties(properties))


def seen_topics(out: Path) -> dict[str, Seen] | None:
    """Return what the job has seen of its topics; None where nothing is recorded."""
    from freshet.job.kafka.topic_owner import read_seen

    return read_seen(out / layout.TOPICS_SEEN)


def note_topics(out: Path, seen: Mapping[str, Seen]) -> None:
    """Record what the job has seen of its topics, before it writes to them."""
    from freshet.job.kafka.topic_owner import write_seen

    write_seen(out / layout.TOPICS_SEEN, seen)


def _topic_of(address: KafkaAddress, kind: str, used: Sequence[str]) -> KafkaAddress:
    """Return the topic of a kind.

    Raises: UsageError for a name that Kafka would refuse, or that of another topic of the job.
    """
    try:
        found = KafkaAddress.parse(f"{address}.{topic_end(kind)}")
    except KafkaAddressError as error:
        msg = f"{_EMBEDDINGS}: the topic of the kind {kind}: {error}"
        raise UsageError(msg) from None
    if found.topic in used:
        msg = f"{_EMBEDDINGS} {address}: the topic {found.topic}, of the kind {kind}, is one that the job uses already"
        raise UsageError(msg)
    return found


def _refuse_alike(apart: Mapping[str, KafkaAddress]) -> None:
    """See that Kafka takes the topics of all kinds, before one of them is made.

    Raises: UsageError where two differ in dots and underscores alone, which its metrics do not tell apart.
    """
    known: dict[str, str] = {}
    for kind, address in apart.items():
        other = known.setdefault(address.topic.replace(".", "_"), kind)
        if other != kind:
            msg = (
                f"{_EMBEDDINGS}: the topics of the kinds {other!r} and {kind!r} differ in . and _ alone, which Kafka "
                "refuses; name one of the kinds otherwise, or leave the option out"
            )
            raise UsageError(msg)


def refuse_large_records(settings: Settings, outputs: Outputs, widths: Mapping[str, int]) -> None:
    """Refuse a job whose embeddings may be larger than a record of their topic: one such record would end it.

    `widths`: numbers of an embedding, by kind as in `Outputs.topics`.

    Raises: UsageError when an embedding is too wide, or ids may be too long.
    """
    for kind, topic in outputs.topics.items():
        _refuse_large(settings, topic, widths[kind])


def _refuse_large(settings: Settings, topic: TopicOutput, width: int) -> None:
    if settings.outlet is None:
        return
    most, form = topic.record_bytes, settings.outlet.embedding_format
    id_kind, id_bytes_max = settings.id_kind, settings.parsing.id_bytes_max
    longest = id_bytes_max if id_kind == STRING else _INT_ID_BYTES
    needed = record_bytes_max(width, form, "0" * _MODEL_DIGITS, longest) + RECORD_SPARE
    if needed > most:
        ids = f" with ids of up to {id_bytes_max} bytes (id-bytes-max)" if id_kind == STRING else ""
        msg = (
            f"--embeddings-to {topic.address}: an embedding of {width:,} numbers as {form}{ids} may take "
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
    values = option_values(config, OutletConfig) if former is None else option_values_of_a_run(config, OutletConfig)
    return replace(former or OutletConfig(), **values, model_tag=model_sha256[:_MODEL_DIGITS])


def new_job_id() -> str:
    """An id that no other job has."""
    return uuid.uuid4().hex[:16]
