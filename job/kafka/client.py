"""The client properties of Kafka (SASL, TLS, …): read from the config, secrets from the environment, never shown."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.key_stores import tls_files
from freshet.job.kafka.logins import IAM, OAUTH, for_java, login_of, refuse_javas_own
from freshet.job.kafka.tokens import URL, tokens_of
from freshet.job.references import with_variables
from freshet.operators.parser.registry.schema_registry import BEARER, USER_INFO

# What Freshet sets itself; a value of the user's would break what the job promises, or do nothing.
OWN = {
    "bootstrap.servers": "the brokers stand in the kafka:// address",
    "key.deserializer": "Freshet reads and writes bytes",
    "value.deserializer": "Freshet reads and writes bytes",
    "key.serializer": "Freshet reads and writes bytes",
    "value.serializer": "Freshet reads and writes bytes",
    "enable.auto.commit": "offsets belong to the checkpoints",
    "isolation.level": "Freshet reads committed records only",
    "transactional.id": "each job has its own",
    "enable.idempotence": "it is always on",
    "acks": "it is always `all`",
}
_REGISTRY = "schema.registry."
_CLASS = re.compile(r"(?<![\w.])(?=org\.apache\.kafka\.[a-z.]+\.[A-Z])")
SHADED = "org.apache.flink.kafka.shaded."
# Java's names of what kafka-python takes as it stands.
_SAME = {
    "security.protocol": "security_protocol",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "client.id": "client_id",
}
# What librdkafka calls the options of kafka-python.
LIBRDKAFKA = {
    "security_protocol": "security.protocol",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "client_id": "client.id",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_password": "ssl.key.password",
    "request_timeout_ms": "request.timeout.ms",
    "metadata_max_age_ms": "metadata.max.age.ms",
}
_BOOTSTRAP_MS = 10_000  # until a broker has answered for the first time
_MILLISECONDS = {"request.timeout.ms": "request_timeout_ms", "metadata.max.age.ms": "metadata_max_age_ms"}


class ClientProperties(Mapping[str, str]):
    """Properties by the names of Kafka's Java clients, as the user wrote them, with `${NAME}` in place of secrets.

    `resolve` inserts the secrets, as late as possible: files and logs keep the references.
    Neither `repr` nor `str` nor a message of this class shows a value.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._raw = {_name(key): _text(key, value) for key, value in (properties or {}).items()}

    def __getitem__(self, key: str) -> str:
        return self._raw[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"ClientProperties({', '.join(f'{key}=***' for key in self._raw)})"

    def resolve(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the properties for Flink's connector, with `${NAME}` replaced by what the environment has for it.

        The usual connector has Kafka's client in a package of another name, so the classes that properties name (login
        modules, callback handlers) are renamed too. What a login by tokens needs beside is added.
        Raises: UsageError naming the property and the variable that is not set.
        """
        given = for_java(self.given_by(environ))
        return {key: _CLASS.sub(SHADED, value) for key, value in given.items()} if self.is_shaded else given

    @property
    def mechanism(self) -> str:
        """Return the SASL mechanism, if any."""
        return self._raw.get("sasl.mechanism", "")

    @property
    def is_shaded(self) -> bool:
        """True if the job uses the connector that has Kafka's client in it; a login by tokens needs another one."""
        return self.mechanism not in (OAUTH, IAM)

    @property
    def token_url(self) -> str | None:
        """Return the address at which Java's client asks for tokens, if any."""
        return self.given_by(None).get(URL) if URL in self._raw else None

    def fetch_token(self) -> None:
        """Get the token of a login that needs one; all clients of this process use it.

        Raises: UsageError when there is none, with the reason.
        """
        if (source := login_of(self.given_by(None)).source) is not None:
            tokens_of(source).get()

    def kafka_python(self, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the keyword arguments by which kafka-python connects in the same way.

        Properties that only tune Java's client are left out.
        Raises: UsageError naming what Python's clients can't do, such as another login module.
        """
        given = self.given_by(environ)
        login = login_of(given)
        options = self._same(given) | login.kafka_python()
        return options | tls_files(given)

    def registry_login(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return how the schema registry is reached: its properties without `schema.registry.`."""
        env = os.environ if environ is None else environ
        found = {key: value for key, value in self._raw.items() if key.startswith(_REGISTRY)}
        return {
            key.removeprefix(_REGISTRY): with_variables(f"kafka: {key}", value, env) for key, value in found.items()
        }

    def given_by(self, environ: Mapping[str, str] | None) -> dict[str, str]:
        """Return the properties of Kafka's clients, with `${NAME}` replaced (default: by `os.environ`)."""
        env = os.environ if environ is None else environ
        given = {key: value for key, value in self._raw.items() if not key.startswith(_REGISTRY)}
        return {key: with_variables(f"kafka: {key}", value, env) for key, value in given.items()}

    def _same(self, given: Mapping[str, str]) -> dict[str, Any]:
        refuse_javas_own(given)
        options: dict[str, Any] = {_SAME[key]: value for key, value in given.items() if key in _SAME}
        for key in given.keys() & _MILLISECONDS.keys():
            options[_MILLISECONDS[key]] = _milliseconds(key, given[key])
        return options

    def librdkafka(self, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the properties by which librdkafka connects in the same way.

        Raises: UsageError, as `kafka_python`.
        """
        given = self.given_by(environ)
        login = login_of(given)
        same = self._same(given) | tls_files(given)
        options = {LIBRDKAFKA[key]: value for key, value in same.items() if key in LIBRDKAFKA} | login.librdkafka()
        if "ssl_certfile" in same:  # Java's PEM store has certificate and key in one file
            options["ssl.key.location"] = same["ssl_certfile"]
        if not same.get("ssl_check_hostname", True):
            options["ssl.endpoint.identification.algorithm"] = "none"
        return options


def connection(address: KafkaAddress, properties: ClientProperties) -> dict[str, Any]:
    """The options of a client of kafka-python, whose log is silent: what matters comes as an exception.

    Raises: UsageError for properties that it does not take, and a token that it does not get.
    """
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    own = {"bootstrap_servers": address.bootstrap.split(","), "bootstrap_timeout_ms": _BOOTSTRAP_MS}
    return {**properties.kafka_python(), **own}


@contextmanager
def admin_client(address: KafkaAddress, properties: ClientProperties) -> Iterator[Any]:
    """An admin client of kafka-python: it never makes a topic by asking for it.

    Raises: JobFailed for whatever goes wrong between it and the brokers.
    """
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(**connection(address, properties))
        try:
            yield admin
        finally:
            admin.close()
    except KafkaError as error:
        msg = f"{address}: {one_line(error)}"
        raise JobFailed(msg) from error


def connected_consumer(address: KafkaAddress, properties: ClientProperties, **options: Any) -> Any:
    """Return a consumer of kafka-python with these options: it commits nothing, and makes no topic by reading it."""
    from kafka import KafkaConsumer

    own = {"enable_auto_commit": False, "allow_auto_create_topics": False}
    return KafkaConsumer(**connection(address, properties), **own, **options)


@contextmanager
def consumer_of(address: KafkaAddress, properties: ClientProperties, **options: Any) -> Iterator[Any]:
    """Yield a `connected_consumer`.

    Raises: JobFailed for whatever goes wrong between it and the brokers.
    """
    from kafka.errors import KafkaError

    try:
        consumer = connected_consumer(address, properties, **options)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        msg = f"{address}: {one_line(error)}"
        raise JobFailed(msg) from error


def _name(key: object) -> str:
    if isinstance(key, str) and key.startswith(_REGISTRY) and key.removeprefix(_REGISTRY) not in (USER_INFO, BEARER):
        msg = f"kafka: {key}: expected {_REGISTRY}{USER_INFO} or {_REGISTRY}{BEARER}; leave it out"
        raise UsageError(msg)
    if not isinstance(key, str) or not key or key in OWN:
        why = OWN.get(key, "") if isinstance(key, str) else ""
        msg = f"kafka: {key}: can't be set; {why or 'expected a property of the Java client, such as sasl.mechanism'}"
        raise UsageError(msg)
    return key


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"kafka: {key}: got a {type(value).__name__}, expected text or a number"
    raise UsageError(msg)


def _milliseconds(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        msg = f"kafka: {key}: expected milliseconds as a whole number"
        raise UsageError(msg)
    return int(value)
