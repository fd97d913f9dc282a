"""What the brokers are asked before a job writes a topic, and what the connector is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.job.errors import UsageError
from freshet.job.kafka import make_topics
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.flink_topics import producer_properties
from freshet.job.kafka.make_topics import plan_output, tell_compaction
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.job.options.config_file import load_run_config
from freshet.job.options.run_config import RunConfig
from freshet.job.run.outputs import Outputs, outlet_settings, plan_outputs, refuse_large_records
from freshet.operators.parser.config import ParserConfig
from freshet.operators.settings import OutletConfig, Settings
from freshet.partitioner.config import PartitionerConfig
from tests.support.graphs.kinds import KINDS, kinds_model, relation, sage_everywhere


class Brokers:
    """As far as an admin client is asked."""

    def __init__(self, topics: dict[str, str], cap_ms: int = 900_000) -> None:
        self.topics, self.cap_ms = topics, cap_ms
        self.max_bytes: dict[str, str] = {}

    def list_topics(self) -> list[str]:
        return list(self.topics)

    def create_topics(self, topics: list[Any]) -> None:
        for topic in topics:
            self.topics[topic.name] = (topic.topic_configs or {}).get("cleanup.policy", "delete")

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": 7}]}

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all", "defaults too"
        [resource] = resources
        kind = resource.resource_type.name.lower()
        if kind == "broker":
            assert resource.name == "7"
            return {"broker": {"7": {"transaction.max.timeout.ms": {"value": str(self.cap_ms)}}}}
        found = {"cleanup.policy": self.topics[resource.name], "max.message.bytes": self.max_bytes.get(resource.name)}
        return {"topic": {resource.name: {name: {"value": value} for name, value in found.items() if value}}}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers({"kept": "compact", "short": "delete"})

    @contextmanager
    def admin(*_: Any) -> Iterator[Brokers]:
        yield found

    monkeypatch.setattr(make_topics, "admin_client", admin)
    return found


def plan(topic: str, said: list[str], **options: Any) -> TopicOutput:
    address = KafkaAddress("h:1", topic)
    options = {"compacted": True, **options}
    return plan_output("--embeddings-to", address, ClientProperties(), said.append, **options)


def test_a_missing_topic_is_made(brokers: Brokers) -> None:
    said: list[str] = []
    assert plan("new", said) == TopicOutput(bootstrap="h:1", topic="new")
    plan("letters", said, compacted=False)
    assert brokers.topics == {"kept": "compact", "short": "delete", "new": "compact", "letters": "delete"}
    assert said == ["--embeddings-to: made the topic new, compacted", "--embeddings-to: made the topic letters"]


def test_a_topic_that_forgets_is_warned_of(brokers: Brokers) -> None:
    said: list[str] = []
    plan("kept", said)
    plan("short", said, compacted=False)
    assert said == []
    plan("short", said)
    assert said[0].startswith("warning: --embeddings-to: the topic short has cleanup.policy=delete: ")
    assert brokers.topics["short"] == "delete", "it is the user's"


def test_a_topic_of_events_that_is_compacted_is_said(brokers: Brokers) -> None:
    said: list[str] = []
    brokers.topics["both"] = "compact,delete"
    for topic in ("kept", "short", "none", "both"):
        tell_compaction(KafkaAddress("h:1", topic), ClientProperties(), said.append)
    assert [line.partition(": brokers remove")[0] for line in said] == [
        "warning: --events kafka://h:1/kept: the topic has cleanup.policy=compact",
        "warning: --events kafka://h:1/both: the topic has cleanup.policy=compact,delete",
    ]


def test_transactions_may_last_as_long_as_the_brokers_allow(brokers: Brokers) -> None:
    found = plan("kept", [], prefix="freshet-1", checkpoint_interval_ms=10_000)
    assert (found.transactional_id_prefix, found.transaction_timeout_ms) == ("freshet-1", 900_000)
    brokers.cap_ms = 79_999
    with pytest.raises(UsageError) as caught:
        plan("kept", [], prefix="freshet-1", checkpoint_interval_ms=10_000)
    assert "needs transactions of up to 80 s, but the brokers cap them at 79.999 s" in str(caught.value)
    assert "(transaction.max.timeout.ms); raise that, take a shorter --checkpoint-interval" in str(caught.value)
    assert plan("kept", []).transaction_timeout_ms == 0, "nobody asks without transactions"


def test_a_record_may_be_as_large_as_producer_and_topic_take(brokers: Brokers) -> None:
    def record_bytes(**properties: str) -> int:
        address, given = (
            KafkaAddress("h:1", "kept"),
            ClientProperties({k.replace("_", "."): v for k, v in properties.items()}),
        )
        return plan_output("--embeddings-to", address, given, print, compacted=True).record_bytes

    assert record_bytes() == 1 << 20
    assert record_bytes(max_request_size="2000000") == 1 << 20, "the topic takes no more"
    brokers.max_bytes["kept"] = "5000000"
    assert record_bytes() == 1 << 20, "nor does the producer"
    assert record_bytes(max_request_size="2000000") == 2_000_000
    brokers.max_bytes["kept"] = "30000"
    assert record_bytes() == 30_000


@pytest.mark.parametrize(
    ("width", "form", "kind", "longest", "said"),
    [
        (300_000, "base64", "int", 1024, "an embedding of 300,000 numbers as base64 may take 1,600,"),
        (70_000, "list", "int", 1024, "an embedding of 70,000 numbers as list may take"),
        (8, "base64", "string", 300_000, "with ids of up to 300000 bytes (id-bytes-max) may take 2,100,"),
        (150_000, "base64", "int", 1024, None),
        (150_000, "base64", "string", 1024, None),
        (8, "base64", "int", 300_000, None),
    ],
)
def test_records_that_a_topic_would_not_take_are_refused_at_the_start(
    width: int, form: str, kind: str, longest: int, said: str | None
) -> None:
    settings = Settings(
        "M",
        "O",
        1,
        PartitionerConfig(id_kind=kind),
        ParserConfig(id_bytes_max=longest),
        outlet=OutletConfig(embedding_format=form),
    )
    outputs = Outputs(TopicOutput(bootstrap="h:1", topic="kept"))
    if said is None:
        refuse_large_records(settings, outputs, {"": width})
        return
    with pytest.raises(UsageError) as caught:
        refuse_large_records(settings, outputs, {"": width})
    assert said in str(caught.value)
    assert "the producer and the topic take records of 1,048,576; raise max.request.size" in str(caught.value)
    refuse_large_records(settings, Outputs(), {"": width})


def options_of(**flags: Any) -> RunConfig:
    return load_run_config({"model": "M", "events": ["e"], "out": "O", **flags})


def test_the_outputs_of_a_run(brokers: Brokers) -> None:
    assert plan_outputs(options_of(), "id", print) == Outputs()
    config = options_of(embeddings_to="kafka://h:1/kept", dead_letters="kafka://h:1/short", delivery="exactly-once")
    found = plan_outputs(config, "id", print)
    assert found.embeddings is not None
    assert found.embeddings.transactional_id_prefix == "freshet-id"
    assert found.letters == TopicOutput(bootstrap="h:1", topic="short")
    assert outlet_settings(options_of(), "a" * 64) is None
    assert outlet_settings(config, "a" * 64) == OutletConfig("a" * 12, "base64", 1000, 500)


def test_each_of_several_returned_kinds_has_a_topic_and_transactions_of_its_own(brokers: Brokers) -> None:
    plan = compile_kinds(kinds_model([sage_everywhere(KINDS, 4)], ["item", "user"]))
    given = {"embeddings_to": "kafka://h:1/out", "dead_letters": "kafka://h:1/short", "delivery": "exactly-once"}
    found = plan_outputs(options_of(**given), "id", print, plan)
    assert found.embeddings is None
    assert found.letters == TopicOutput(bootstrap="h:1", topic="short")
    told = {kind: (topic.topic, topic.transactional_id_prefix) for kind, topic in found.topics.items()}
    assert told == {"item": ("out.item", "freshet-id.item"), "user": ("out.user", "freshet-id.user")}
    assert brokers.topics["out.item"] == brokers.topics["out.user"] == "compact"
    for topic, said in (
        ("out", "the topic out.user, of the kind user, is one that the job"),
        ("a" * 246, "is not made of 1 to 249"),
    ):
        config = options_of(events=["kafka://h:1/out.user"], embeddings_to=f"kafka://h:1/{topic}")
        with pytest.raises(UsageError, match=said):
            plan_outputs(config, "id", print, plan)


def test_the_topic_of_any_kind_has_a_name_that_brokers_take(brokers: Brokers) -> None:
    kinds = {"Blue Hammer": 6, "a/b": 4}
    relations = [relation("Blue Hammer", "to it", "a/b"), relation("a/b", "back", "Blue Hammer")]
    layer = sage_everywhere(kinds, 4, relations)
    plan = compile_kinds(kinds_model([layer], [*kinds], kinds=kinds, relations=relations))
    found = plan_outputs(options_of(embeddings_to="kafka://h:1/out", delivery="exactly-once"), "id", print, plan)
    told = {kind: (topic.topic, topic.transactional_id_prefix) for kind, topic in found.topics.items()}
    assert told["Blue Hammer"] == ("out.-Blue-20Hammer", "freshet-id.Blue%20Hammer")
    assert told["a/b"] == ("out.-a-2Fb", "freshet-id.a%2Fb")


def test_topics_that_kafka_takes_for_one_are_refused_before_any_is_made(brokers: Brokers) -> None:
    kinds = {"a.b": 6, "a_b": 4}
    relations = [relation("a.b", "to", "a_b"), relation("a_b", "back", "a.b")]
    plan = compile_kinds(
        kinds_model([sage_everywhere(kinds, 4, relations)], [*kinds], kinds=kinds, relations=relations)
    )
    before = dict(brokers.topics)
    with pytest.raises(UsageError, match=r"the kinds 'a.b' and 'a_b' differ in \. and _ alone, which Kafka refuses"):
        plan_outputs(options_of(embeddings_to="kafka://h:1/out"), "id", print, plan)
    assert brokers.topics == before


def test_the_producer_is_patient() -> None:
    output = TopicOutput(bootstrap="h:1", topic="t")
    options = producer_properties(output, ClientProperties({"linger.ms": 50}))
    assert options["linger.ms"] == "50", "the user's properties win"
    assert options["max.block.ms"] == options["delivery.timeout.ms"] == "600000"
    once = output.model_copy(update={"transactional_id_prefix": "p", "transaction_timeout_ms": 60_000})
    options = producer_properties(once, ClientProperties())
    assert options["transaction.timeout.ms"] == options["max.block.ms"] == "60000"
