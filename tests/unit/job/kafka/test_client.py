from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.job.errors import UsageError
from freshet.job.kafka.client import _LIBRDKAFKA, OWN, ClientProperties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="me" password="${{SECRET}}";',
}


def test_secrets_come_from_the_environment_at_the_end() -> None:
    properties = ClientProperties(SASL)
    assert properties["sasl.jaas.config"].endswith('password="${SECRET}";')
    login = properties.resolve({"SECRET": "a$b{c}"})["sasl.jaas.config"]
    assert login == f'org.apache.flink.kafka.shaded.{PLAIN} username="me" password="a$b{{c}}";'


def test_classes_have_the_names_that_they_have_in_flinks_connector() -> None:
    given = {
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.Handler",
        "sasl.client.callback.handler.class": "com.example.org.apache.kafka.own.Handler",
        "sasl.jaas.config": f"org.apache.flink.kafka.shaded.{PLAIN} username=a password=org.apache.kafka;",
    }
    resolved = ClientProperties(given).resolve({})
    changed = "sasl.login.callback.handler.class"
    assert resolved == given | {changed: f"org.apache.flink.kafka.shaded.{given[changed]}"}


def test_no_value_is_shown() -> None:
    properties = ClientProperties({"sasl.jaas.config": "hunter2", "ssl.key.password": "hunter2"})
    assert "hunter2" not in f"{properties!r} {properties}"
    assert repr(properties) == "ClientProperties(sasl.jaas.config=***, ssl.key.password=***)"


def test_numbers_and_booleans_become_text() -> None:
    assert dict(ClientProperties({"request.timeout.ms": 5, "some.flag": True})) == {
        "request.timeout.ms": "5",
        "some.flag": "true",
    }


def test_kafka_python_connects_in_the_same_way() -> None:
    assert ClientProperties(SASL).kafka_python({"SECRET": "s"}) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "s",
    }
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
        "request.timeout.ms": 1000,
        "fetch.min.bytes": 1,
    }
    assert ClientProperties(tls).kafka_python() == {
        "security_protocol": "SSL",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 1000,
    }
    assert ClientProperties().kafka_python() == {}


def test_librdkafka_connects_in_the_same_way() -> None:
    assert ClientProperties(SASL).librdkafka({"SECRET": "s"}) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "s",
    }
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
        "request.timeout.ms": 1000,
        "metadata.max.age.ms": 2000,
        "fetch.min.bytes": 1,
    }
    found = ClientProperties(tls).librdkafka()
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "none",
        "request.timeout.ms": 1000,
        "metadata.max.age.ms": 2000,
    }
    assert ClientProperties().librdkafka() == {}
    without = {"sasl.jaas.config": f'{PLAIN} username="me" password="x";'}
    assert ClientProperties(without).librdkafka()["sasl.mechanism"] == "PLAIN"


def test_librdkafka_knows_these_names() -> None:
    known = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"}  # files that it would look for
    names = dict.fromkeys(set(_LIBRDKAFKA.values()) - known, "x")
    numbers = {name: 1000 for name in names if name.endswith(".ms")}
    Producer(names | numbers | {"security.protocol": "plaintext", "sasl.mechanism": "PLAIN"})


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        (r"""x required username="a\"b" password="c\\d";""", 'a"b', "c\\d"),
        ("x required username='a b' password='c;d';", "a b", "c;d"),
        ("x required username=a password=b;", "a", "b"),
    ],
)
def test_logins_as_java_writes_them(login: str, user: str, password: str) -> None:
    options = ClientProperties({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login}).kafka_python()
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == (user, password)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"sasl.jaas.config": "${NOT_SET}"}, "sasl.jaas.config: the environment variable NOT_SET is not set"),
        ({"a": "${}"}, r"a: expected \$\{NAME\}"),
        ({"a": "${x y}"}, r"a: expected \$\{NAME\}"),
        ({"sasl.jaas.config": "hunter2"}, "sasl.jaas.config: expected `<LoginModule>"),
        ({"sasl.jaas.config": "hunter2", "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism: got OAUTHBEARER"),
        ({"ssl.truststore.location": "x.jks"}, "ssl.truststore.type: expected PEM"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms: expected milliseconds"),
    ],
)
def test_what_can_not_be_used_is_named(properties: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        ClientProperties(properties).kafka_python({})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", OWN)
def test_what_freshet_sets_itself_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        ClientProperties({name: "x"})


@pytest.mark.parametrize("properties", [{7: "x"}, {"": "x"}, {"a": None}, {"a": ["hunter2"]}])
def test_what_is_no_property_is_refused(properties: dict[Any, Any]) -> None:
    with pytest.raises(UsageError, match="kafka: ") as caught:
        ClientProperties(properties)
    assert "hunter2" not in str(caught.value)
