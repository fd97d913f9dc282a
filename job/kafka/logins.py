"""Logins (SASL) to Kafka, from the properties of Java's client: for Java, kafka-python and librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from freshet.job.errors import UsageError
from freshet.job.kafka.key_stores import tls_files
from freshet.job.kafka.tokens import (
    URL,
    ClientCredentials,
    IamRole,
    TokenSource,
    token_callback,
    token_provider,
    tokens_of,
)

OAUTH, IAM = "OAUTHBEARER", "AWS_MSK_IAM"

_JAAS, _MECHANISM = "sasl.jaas.config", "sasl.mechanism"
_LOGIN_HANDLER, _CLIENT_HANDLER = "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_PAIR = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_OAUTH_HANDLER = f"{_OAUTH_PACKAGE}OAuthBearerLoginCallbackHandler"
_OAUTH_FORMER = f"{_OAUTH_PACKAGE}secured.OAuthBearerLoginCallbackHandler"  # its name until Kafka 4.0
_OAUTH_RETRIEVER = f"{_OAUTH_PACKAGE}ClientCredentialsJwtRetriever"
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
# The property, and what it is called in `sasl.jaas.config`, which older clients read alone.
_ID = ("sasl.oauthbearer.client.credentials.client.id", "clientId")
_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")
_SCOPE = ("sasl.oauthbearer.scope", "scope")
_ENCODED = "sasl.oauthbearer.header.urlencode"
_EXTENSION = "extension_"
_IAM_OPTIONS = {"awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion"}
# Added for Java where they are missing.
_DEFAULTS = {
    OAUTH: {
        _JAAS: f"{_OAUTH_PACKAGE}OAuthBearerLoginModule required;",
        _LOGIN_HANDLER: _OAUTH_HANDLER,
        # Kafka's own defaults load what only brokers have.
        _RETRIEVER: _OAUTH_RETRIEVER,
        "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH_PACKAGE}ClientJwtValidator",
    },
    IAM: {_JAAS: "software.amazon.msk.auth.iam.IAMLoginModule required;", _CLIENT_HANDLER: _IAM_HANDLER},
}
# What only Java's client can honour, with the values that Python's clients follow anyway.
_JAVAS_OWN: dict[str, set[str]] = {
    _LOGIN_HANDLER: {_OAUTH_HANDLER, _OAUTH_FORMER},
    _CLIENT_HANDLER: {_IAM_HANDLER},
    "sasl.login.class": set(),
    _RETRIEVER: {_OAUTH_RETRIEVER, f"{_OAUTH_PACKAGE}DefaultJwtRetriever"},
    "security.providers": set(),
    "ssl.cipher.suites": set(),
    "ssl.engine.factory.class": set(),
    "ssl.keymanager.algorithm": {"SunX509", "PKIX"},
    "ssl.provider": set(),
    "ssl.trustmanager.algorithm": {"PKIX", "SunX509"},
}
_ASSERTION = "sasl.oauthbearer.assertion."


@dataclass(frozen=True, slots=True)
class Login:
    """Login of Python's clients: by user and password, by tokens, or as the mechanism alone says."""

    mechanism: str | None = None
    user: tuple[str, str] | None = field(default=None, repr=False)
    source: TokenSource | None = None
    extensions: tuple[tuple[str, str], ...] = ()

    def kafka_python(self) -> dict[str, Any]:
        """Return the options of kafka-python."""
        found: dict[str, Any] = {} if self.mechanism is None else {"sasl_mechanism": self.mechanism}
        if self.user is not None:
            found |= {"sasl_plain_username": self.user[0], "sasl_plain_password": self.user[1]}
        if self.source is not None:
            found["sasl_oauth_token_provider"] = token_provider(tokens_of(self.source), dict(self.extensions))
        return found

    def librdkafka(self) -> dict[str, Any]:
        """Return the properties of librdkafka."""
        found: dict[str, Any] = {} if self.mechanism is None else {_MECHANISM: self.mechanism}
        if self.user is not None:
            found = {_MECHANISM: "PLAIN"} | found | {"sasl.username": self.user[0], "sasl.password": self.user[1]}
        if self.source is not None:
            found["oauth_cb"] = token_callback(tokens_of(self.source), dict(self.extensions))
        return found


def login_of(given: Mapping[str, str]) -> Login:
    """Return how Python's clients log in.

    Raises: UsageError naming a property that is missing, or that they can't honour.
    """
    mechanism, jaas = given.get(_MECHANISM), given.get(_JAAS)
    if mechanism == OAUTH:
        return _by_token(given)
    if mechanism == IAM:
        options = _options(jaas)
        _refuse_options(options, _IAM_OPTIONS)
        return Login(OAUTH, source=IamRole(tuple(sorted(options.items()))))  # which MSK takes as well
    if jaas is None:
        return Login(mechanism)
    if mechanism not in (None, "PLAIN") and not str(mechanism).startswith("SCRAM-"):
        expected = f"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, {OAUTH} or {IAM}"
        msg = f"kafka: {_MECHANISM}: got {mechanism}, expected {expected} here"
        raise UsageError(msg)
    found = _options(jaas)
    if not {"username", "password"} <= found.keys():
        msg = f'kafka: {_JAAS}: expected `<LoginModule> required username="…" password="…";`'
        raise UsageError(msg)
    return Login(mechanism, user=(found["username"], found["password"]))


def for_java(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with those that Java's client needs beside for a login by tokens."""
    mechanism = given.get(_MECHANISM, "")
    if mechanism == OAUTH and URL not in given:
        return dict(given)  # a handler of the user's
    found = {**_DEFAULTS.get(mechanism, {}), **given}
    if found.get(_LOGIN_HANDLER) == _OAUTH_FORMER:
        found[_LOGIN_HANDLER] = _OAUTH_HANDLER
    return found


def refuse_javas_own(given: Mapping[str, str]) -> None:
    """See that Python's clients, which each command uses too, can do what is wanted.

    Raises: UsageError naming the first property that they can't honour.
    """
    for name, value in given.items():
        if name.startswith(_ASSERTION) or value not in _JAVAS_OWN.get(name, {value}):
            msg = f"kafka: {name}: only Java's client honours it, and Python's clients connect too; leave it out"
            raise UsageError(msg)


def _by_token(given: Mapping[str, str]) -> Login:
    if URL not in given:
        msg = f"kafka: {URL}: missing; {_MECHANISM} {OAUTH} needs the address at which clients get their tokens"
        raise UsageError(msg)
    if not given[URL].startswith(("http://", "https://")):
        msg = f"kafka: {URL}: expected an address that begins with https:// or http://"
        raise UsageError(msg)
    options = _options(given.get(_JAAS))
    tls = {name: value for name, value in options.items() if name.startswith("ssl.")}
    extensions = {name: value for name, value in options.items() if name.startswith(_EXTENSION)}
    _refuse_options(options, {_ID[1], _SECRET[1], _SCOPE[1], *tls, *extensions})
    found = [given.get(name) or options.get(short) for name, short in (_ID, _SECRET, _SCOPE)]
    for (name, short), value in zip((_ID, _SECRET), found, strict=False):
        if not value:
            msg = f"kafka: {name}: missing; give it, or {short} in {_JAAS}"
            raise UsageError(msg)
    source = ClientCredentials(
        given[URL],
        str(found[0]),
        str(found[1]),
        found[2],
        given.get(_ENCODED, "false").lower() == "true",
        tls_files(tls).get("ssl_cafile"),
    )
    named = tuple((name.removeprefix(_EXTENSION), value) for name, value in extensions.items())
    return Login(OAUTH, source=source, extensions=named)


def _refuse_options(options: Mapping[str, str], known: set[str]) -> None:
    for name in options.keys() - known:
        msg = f"kafka: {_JAAS}: {name}: Python's clients can't honour it; leave it out"
        raise UsageError(msg)


def _options(jaas: str | None) -> dict[str, str]:
    """Return the options of a login module, as they stand behind its name."""
    return {name: _unquote(value) for name, value in _PAIR.findall(jaas or "")}


def _unquote(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
