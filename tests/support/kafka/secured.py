"""A broker that asks for logins of several kinds over TLS, a token endpoint for it, and key stores for its clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.dev.broker_files import CERTIFICATE, HOST, KEYS
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.java import java_environ
from freshet.job.machine.ports import server_port

PASSWORD, CLIENT_ID, CLIENT_SECRET, STORE_PASSWORD = "pl41n-0c77", "me", "0auth-5d1f", "st0re-9a3b"
_KEY = os.urandom(32)
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
_MODULE = "org.apache.kafka.common.security"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class TokenServer:
    """A token endpoint (client credentials), and the keys that its tokens are signed with."""

    def __init__(self, life_s: float = 3600.0) -> None:
        self.life_s, self.given = life_s, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [{"kty": "oct", "kid": "one", "alg": "HS256", "k": _base64(_KEY)}]})

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"]))
                login = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                if self.headers["Authorization"] != f"Basic {login}" or b"grant_type=client_credentials" not in form:
                    self._answer(401, {"error": "invalid_client"})
                    return
                outer.given += 1
                self._answer(200, {"access_token": outer._token(), "expires_in": outer.life_s})

            def _answer(self, status: int, found: dict[str, Any]) -> None:
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _token(self) -> str:
        now = int(time.time())
        parts = [
            {"alg": "HS256", "typ": "JWT", "kid": "one"},
            {"sub": "me", "iat": now, "exp": now + int(self.life_s), "scope": "kafka"},
        ]
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64(hmac.digest(_KEY, text.encode(), hashlib.sha256))}"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Secured:
    """The broker, its token endpoint, and the address at which clients must have a certificate."""

    broker: Broker
    tokens: TokenServer
    mutual: str
    folder: Path

    def plain(self) -> dict[str, str]:
        return {
            **self.trust(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_MODULE}.plain.PlainLoginModule required username="freshet" password="{PASSWORD}";',
        }

    def scram(self) -> dict[str, str]:
        login = f'{_MODULE}.scram.ScramLoginModule required username="freshet" password="{PASSWORD}";'
        return self.plain() | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login}

    def oauth(self) -> dict[str, str]:
        return {
            **self.trust(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        }

    def trust(self, kind: str = "PEM") -> dict[str, str]:
        """The properties of a trust store of that kind."""
        if kind == "PEM":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.broker.data / CERTIFICATE)}
        store = self.folder / f"trust.{kind}"
        if not store.exists():
            pem = ("-file", str(self.broker.data / CERTIFICATE), "-noprompt")
            keytool("-importcert", "-alias", "ca", *pem, "-keystore", str(store), "-storetype", kind)
        return {
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": STORE_PASSWORD,
        }

    def mutual_tls(self, kind: str) -> dict[str, str]:
        return {
            **self.trust(kind),
            "security.protocol": "SSL",
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(self.folder / f"me.{kind}"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
        }


def keytool(*arguments: str) -> None:
    environ = java_environ() | {"STORE": STORE_PASSWORD}
    tool = str(Path(environ["JAVA_HOME"]) / "bin" / "keytool")
    subprocess.run([tool, *arguments, "-storepass:env", "STORE"], env=environ, check=True, capture_output=True)


def make_key_store(folder: Path, kind: str) -> Path:
    """A key store with one key, and its certificate as a PEM file beside it."""
    store = folder / f"me.{kind}"
    name = ("-alias", "me", "-keystore", str(store), "-storetype", kind)
    keytool(
        "-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=me", *name, "-keypass:env", "STORE"
    )
    keytool("-exportcert", "-rfc", "-file", str(folder / f"me.{kind}.pem"), *name)
    return store


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Start it: PLAIN, SCRAM and OAUTHBEARER at its address, certificates at `mutual`."""
    tokens, port, mutual, internal, controller = TokenServer(), *(server_port() for _ in range(4))
    data, trusted = folder / "broker", folder / "clients.p12"
    for kind in ("PKCS12", "JKS"):
        make_key_store(folder, kind)
        pem = ("-file", str(folder / f"me.{kind}.pem"), "-noprompt")
        keytool("-importcert", "-alias", kind, *pem, "-keystore", str(trusted), "-storetype", "PKCS12")
    client, mtls = "listener.name.client", "listener.name.mutual"
    more = {
        f"{client}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        f"{client}.scram-sha-512.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
        f"{client}.oauthbearer.sasl.jaas.config": f"{_OAUTH}LoginModule required;",
        f"{client}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}ValidatorCallbackHandler",
        f"{client}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{tokens.url}/keys",
        f"{mtls}.ssl.client.auth": "required",
        f"{mtls}.ssl.keystore.type": "PKCS12",
        f"{mtls}.ssl.keystore.location": str(data / KEYS),
        f"{mtls}.ssl.keystore.password": PASSWORD,
        f"{mtls}.ssl.truststore.type": "PKCS12",
        f"{mtls}.ssl.truststore.location": str(trusted),
        f"{mtls}.ssl.truststore.password": STORE_PASSWORD,
    }
    places = {"CLIENT": port, "MUTUAL": mutual, "INTERNAL": internal}
    addresses = [f"{name}://{HOST}:{number}" for name, number in places.items()]
    more["advertised.listeners"] = ",".join(addresses)
    more["listeners"] = ",".join([*addresses, f"CONTROLLER://{HOST}:{controller}"])
    more["controller.quorum.voters"] = f"1@{HOST}:{controller}"
    more["listener.security.protocol.map"] = "CLIENT:SASL_SSL,MUTUAL:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    before = os.environ.get("JDK_JAVA_OPTIONS")
    os.environ["JDK_JAVA_OPTIONS"] = f"-D{_ALLOWED}={tokens.url}/keys"
    try:
        broker = start_broker(data, port, sasl=True, tls=True, password=PASSWORD, more=more)
    finally:
        if before is None:
            del os.environ["JDK_JAVA_OPTIONS"]
        else:
            os.environ["JDK_JAVA_OPTIONS"] = before
    try:
        with broker:
            quiet = {"bootstrap.servers": broker.address, "log_level": 0}
            admin = AdminClient({**quiet, **broker.client_properties().librdkafka()})
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            made = UserScramCredentialUpsertion("freshet", info, PASSWORD.encode())
            for asked in admin.alter_user_scram_credentials([made]).values():
                asked.result(120)
            found = Secured(broker, tokens, f"{HOST}:{mutual}", folder)
            # The broker knows the login once it has read the controller's log; this client alone tries until then.
            AdminClient(quiet | ClientProperties(found.scram()).librdkafka()).list_topics(timeout=120)
            yield found
    finally:
        tokens.close()
