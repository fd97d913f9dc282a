from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.job.errors import UsageError
from freshet.job.kafka.client import LIBRDKAFKA, OWN, ClientProperties
from freshet.job.kafka.cut_channel import CarriedProperties
from freshet.job.kafka.logins import login_of
from freshet.job.kafka.tokens import ClientCredentials
from tests.support.kafka.secured import STORE_PASSWORD, make_key_store

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="me" password="${{SECRET}}";',
}
TOKENS = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
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
    names = dict.fromkeys(set(LIBRDKAFKA.values()) - known, "x")
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
        ({"sasl.jaas.config": "hunter2", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: got GSSAPI, expected PLAIN"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url: missing"),
        ({**TOKENS, "sasl.jaas.config": "x required a=hunter2;"}, "sasl.jaas.config: a: Python's clients can't"),
        (
            {**TOKENS, "sasl.oauthbearer.client.credentials.client.id": ""},
            "client.id: missing; give it, or clientId",
        ),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "file:hunter2"}, "token.endpoint.url: expected an address"),
        ({**TOKENS, "sasl.login.callback.handler.class": "mine"}, "callback.handler.class: only Java's client honours"),
        ({"ssl.engine.factory.class": "hunter2"}, "ssl.engine.factory.class: only Java's client honours it"),
        ({"sasl.oauthbearer.assertion.file": "hunter2"}, "assertion.file: only Java's client honours it"),
        ({"ssl.truststore.location": "/no/x.jks"}, "ssl.truststore.location: /no/x.jks can't be read: No such file"),
        ({"ssl.keystore.location": "x", "ssl.keystore.type": "BKS"}, "ssl.keystore.type: expected one of PEM, JKS"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "hunter2"}, "ssl.keystore.certificate.chain: missing"),
        ({"ssl.truststore.certificates": "hunter2"}, "ssl.truststore.type: expected PEM and no ssl.truststore.loc"),
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


def test_java_gets_what_a_login_by_tokens_needs_beside() -> None:
    """The connector with Kafka's own names, whose classes are none of the renamed ones."""
    properties = ClientProperties(TOKENS)
    package = "org.apache.kafka.common.security.oauthbearer"
    assert properties.resolve({}) == TOKENS | {
        "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.retriever.class": f"{package}.ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.jwt.validator.class": f"{package}.ClientJwtValidator",
    }
    assert not properties.is_shaded
    assert properties.token_url == "https://login/token"
    former = {"sasl.login.callback.handler.class": f"{package}.secured.OAuthBearerLoginCallbackHandler"}
    found = ClientProperties(TOKENS | former).resolve({})["sasl.login.callback.handler.class"]
    assert found == f"{package}.OAuthBearerLoginCallbackHandler"
    iam = ClientProperties({"sasl.mechanism": "AWS_MSK_IAM"})
    assert iam.resolve({}) == {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    assert (iam.is_shaded, iam.token_url) == (False, None)


def test_tokens_of_both_clients_of_python() -> None:
    """Client id and secret of the login module, as older clients read them."""
    jaas = 'x required clientId="me" clientSecret="hunter2" scope="kafka" extension_logicalCluster="one";'
    properties = ClientProperties(
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://x", "sasl.jaas.config": jaas}
    )
    login = login_of(properties.resolve({}))
    assert login.source == ClientCredentials("http://x", "me", "hunter2", "kafka")
    assert "hunter2" not in f"{login!r}"
    provider = properties.kafka_python({})["sasl_oauth_token_provider"]
    assert provider.extensions() == {"logicalCluster": "one"}
    assert properties.librdkafka({}).keys() == {"sasl.mechanism", "oauth_cb"}


def test_iam_without_amazons_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(UsageError, match=r"AWS_MSK_IAM needs aws-msk-iam-sasl-signer-python, .*pip install"):
        ClientProperties({"sasl.mechanism": "AWS_MSK_IAM"}).fetch_token()


def test_certificates_in_the_properties() -> None:
    """Both clients of Python read them from memory: no file has them."""
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ROOT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
    }
    found = ClientProperties(given).kafka_python()
    assert (Path(found["ssl_cafile"]).read_text(), Path(found["ssl_certfile"]).read_text()) == (
        "ROOT\n",
        "KEY\nCHAIN\n",
    )
    assert ClientProperties(given).librdkafka()["ssl.key.location"] == found["ssl_certfile"]
    assert found["ssl_certfile"].startswith("/proc/self/fd/")


def test_a_store_with_another_password_is_named(tmp_path: Path) -> None:
    store = make_key_store(tmp_path, "PKCS12")
    given = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store), "ssl.keystore.password": "hunter2"}
    with pytest.raises(UsageError, match=r"ssl.keystore.location: .*me.PKCS12 can't be read as PKCS12: keystore pass"):
        ClientProperties(given).kafka_python()
    own = given | {"ssl.keystore.password": STORE_PASSWORD}
    text = Path(ClientProperties(own).kafka_python()["ssl_certfile"]).read_text()
    assert text.count("-----BEGIN PRIVATE KEY-----") == text.count("-----BEGIN CERTIFICATE-----") == 1


def test_properties_that_carry_their_secrets() -> None:
    """On another machine the environment has none; a password may look like a reference."""
    carried = CarriedProperties(SASL, {"SECRET": "a${b}c"})
    assert carried.resolve() == ClientProperties(SASL).resolve({"SECRET": "a${b}c"})
    assert carried.kafka_python()["sasl_plain_password"] == "a${b}c"
    secret = {"sasl.oauthbearer.client.credentials.client.secret": "${SECRET}"}
    login = login_of(CarriedProperties(TOKENS | secret, {"SECRET": "s"}).given_by(None))
    assert login.source == ClientCredentials("https://login/token", "me", "s")


def test_the_login_of_a_schema_registry_is_none_of_kafkas() -> None:
    given = {"schema.registry.basic.auth.user.info": "me:${SECRET}", "client.id": "x"}
    properties = ClientProperties(given)
    assert properties.registry_login({"SECRET": "s"}) == {"basic.auth.user.info": "me:s"}
    assert properties.resolve({}) == {"client.id": "x"}
    assert properties.kafka_python({}) == {"client_id": "x"}
