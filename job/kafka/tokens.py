"""Tokens by which Python's Kafka clients log in: OAuth's client credentials, and AWS IAM."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote_plus

import orjson

from freshet.job.errors import UsageError, one_line

URL = "sasl.oauthbearer.token.endpoint.url"
SIGNER = "aws_msk_iam_sasl_signer"

LibrdkafkaToken = tuple[str, float, str, dict[str, str]]  # token, its end, principal, extensions

_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 1 << 20
_USED_SHARE = 0.8  # of a token's life, as Java's client does
_LIFE_S = 60.0  # of a token that does not say when it ends


class TokenSource(Protocol):
    """Source of tokens, which fetches one with each call; equal ones give equal tokens."""

    def __hash__(self) -> int: ...

    def fetch(self) -> tuple[str, float]:
        """Return a token, and when it ends in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth's grant of client credentials: an id and a secret, sent to a token endpoint over HTTP.

    Raises: UsageError when the endpoint gives no token; the message never has the secret.
    """

    url: str
    client_id: str = field(repr=False)
    secret: str = field(repr=False)
    scope: str | None = None
    is_encoded: bool = False  # id and secret are encoded as in a form before they are sent
    roots: str | None = None  # PEM file of certificates to trust, None: those of the system

    def fetch(self) -> tuple[str, float]:
        """Return a new token, and when it ends."""
        import ssl

        import httpx

        names = (quote_plus(one) if self.is_encoded else one for one in (self.client_id, self.secret))
        login = base64.b64encode(":".join(names).encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
        try:
            context = ssl.create_default_context(cafile=self.roots)
            with (
                httpx.Client(verify=context, timeout=_TIMEOUT_S) as client,
                client.stream("POST", self.url, data=form, headers=headers) as answer,
            ):
                status, text = answer.status_code, _bounded(answer.iter_bytes())
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            msg = f"kafka: {URL}: {self.url} does not answer ({one_line(error)}); check the address"
            raise UsageError(msg) from None
        if status != 200:
            msg = f"kafka: {URL}: {self.url} gives no token (HTTP status {status}); check client id, secret and scope"
            raise UsageError(msg)
        return self.read(text)

    def read(self, text: bytes) -> tuple[str, float]:
        """Return the token of an answer, and the seconds that it lives."""
        try:
            found = orjson.loads(text)
            token = found.get("access_token") or found["id_token"]
            life = float(found.get("expires_in", _LIFE_S))
        except (ValueError, KeyError, TypeError, AttributeError):
            token, life = None, 0.0
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not 0 < life < float("inf"):
            msg = f"kafka: {URL}: {self.url} answers without an access_token; is it a token endpoint?"
            raise UsageError(msg)
        return token, time.time() + life


@dataclass(frozen=True, slots=True)
class IamRole:
    """Tokens of AWS IAM, signed by AWS' own library with the credentials that AWS' tools find."""

    options: tuple[tuple[str, str], ...] = ()  # of Java's IAMLoginModule

    def fetch(self) -> tuple[str, float]:
        """Return a new token, and when it ends."""
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
            from botocore.exceptions import BotoCoreError
            from botocore.session import get_session
        except ImportError:
            msg = (
                "kafka: sasl.mechanism: AWS_MSK_IAM needs aws-msk-iam-sasl-signer-python, which is not installed; run "
                "`pip install aws-msk-iam-sasl-signer-python` in Freshet's environment"
            )
            raise UsageError(msg) from None
        given = dict(self.options)
        session = get_session()
        region = given.get("awsStsRegion") or session.get_config_variable("region")
        if not region:
            msg = "kafka: sasl.mechanism: AWS_MSK_IAM needs the region of the brokers; set AWS_DEFAULT_REGION"
            raise UsageError(msg)
        try:
            if "awsRoleArn" in given:
                name = given.get("awsRoleSessionName")
                token, end_ms = Signer.generate_auth_token_from_role_arn(region, given["awsRoleArn"], name)
            elif "awsProfileName" in given:
                token, end_ms = Signer.generate_auth_token_from_profile(region, given["awsProfileName"])
            else:
                token, end_ms = Signer.generate_auth_token(region)
        except (BotoCoreError, ValueError) as error:
            msg = f"kafka: sasl.mechanism: AWS gives no token for AWS_MSK_IAM: {one_line(error)}"
            raise UsageError(msg) from None
        return token, end_ms / 1e3


class Tokens:
    """Keeps a token until most of its life is over; for any thread."""

    def __init__(self, source: TokenSource, clock: Callable[[], float] = time.time) -> None:
        self._source, self._clock, self._lock = source, clock, threading.Lock()
        self._token, self._renew_s, self._end_s = "", 0.0, 0.0

    def get(self) -> tuple[str, float]:
        """Return a token, and when it ends in seconds since 1970.

        Raises: UsageError when there is none to be had.
        """
        with self._lock:
            now = self._clock()
            if now >= self._renew_s:
                try:
                    self._token, self._end_s = self._source.fetch()
                except UsageError:
                    if now >= self._end_s:
                        raise
                else:
                    self._renew_s = now + _USED_SHARE * (self._end_s - now)
            return self._token, self._end_s


@lru_cache(64)
def tokens_of(source: TokenSource) -> Tokens:
    """Return the tokens of a source, the same ones to all clients of a process."""
    return Tokens(source)


def token_provider(tokens: Tokens, extensions: Mapping[str, str]) -> Any:
    """The token provider of kafka-python."""
    from kafka.errors import SaslAuthenticationFailedError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):
        def token(self) -> str:
            try:
                return tokens.get()[0]
            except UsageError as error:
                raise SaslAuthenticationFailedError(str(error)) from error

        def extensions(self) -> dict[str, str]:
            return dict(extensions)

    return TokenProvider()


def token_callback(tokens: Tokens, extensions: Mapping[str, str]) -> Callable[[str], LibrdkafkaToken]:
    """The `oauth_cb` of librdkafka, which calls it on a thread of its own whenever a token is due."""

    def callback(_: str) -> LibrdkafkaToken:
        token, end_s = tokens.get()
        return token, end_s, "", dict(extensions)

    return callback


def _bounded(pieces: Any) -> bytes:
    found = b""
    for piece in pieces:
        found += piece
        if len(found) > _ANSWER_BYTES_MAX:
            return b""
    return found
