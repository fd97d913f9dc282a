from __future__ import annotations

import pytest

from freshet.job.kafka.address import KafkaAddress, KafkaAddressError, is_kafka


@pytest.mark.parametrize(
    ("text", "bootstrap", "topic"),
    [
        ("kafka://localhost:9092/events", "localhost:9092", "events"),
        ("kafka://a.example:1,b-2:65535/my.topic_1-x", "a.example:1,b-2:65535", "my.topic_1-x"),
        ("kafka://[::1]:9092/t", "[::1]:9092", "t"),
    ],
)
def test_addresses_are_read_and_written_back(text: str, bootstrap: str, topic: str) -> None:
    address = KafkaAddress.parse(text)
    assert (address.bootstrap, address.topic) == (bootstrap, topic)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("localhost:9092/events", "another scheme"),
        ("http://localhost:9092/events", "another scheme"),
        ("kafka:/localhost:9092/events", "another scheme"),
        ("kafka://localhost:9092", "no topic"),
        ("kafka://localhost:9092/", "no topic"),
        ("kafka:///events", "'' is no HOST:PORT"),
        ("kafka://localhost/events", "'localhost' is no HOST:PORT"),
        ("kafka://localhost:0/events", "no HOST:PORT"),
        ("kafka://localhost:65536/events", "no HOST:PORT"),
        ("kafka://localhost:٣/events", "no HOST:PORT"),
        ("kafka://a:1,/events", "'' is no HOST:PORT"),
        ("kafka://a:1/eve nts", "the topic 'eve nts'"),
        ("kafka://a:1/x/y", "the topic 'x/y'"),
        ("kafka://a:1/..", "the topic '..'"),
        ("kafka://a:1/" + "t" * 250, "the topic"),
    ],
)
def test_what_is_no_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(KafkaAddressError, match="expected kafka://HOST:PORT/TOPIC") as caught:
        KafkaAddress.parse(text)
    assert why in str(caught.value)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(KafkaAddressError) as caught:
        KafkaAddress.parse("kafka://me:hunter2@localhost:9092/events")
    assert "hunter2" not in str(caught.value)


def test_what_means_kafka() -> None:
    assert is_kafka("kafka://a:1/t")
    assert is_kafka("Kafka:a")
    assert not is_kafka("kafka/events.jsonl")
