"""Files of servers for development: a broker's data folder, and records by which `stop` finds what was started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from freshet.files.json_file import read_json, write_json

HOST = "127.0.0.1"
USER = "freshet"
SETTINGS = "broker.json"
SERVER = "server.properties"
CLIENT = "client.yaml"
LOGGING = "log4j2.properties"
RECORDS = "records"  # the folder of topics and metadata
KEYS, CERTIFICATE = "server.p12", "ca.pem"
_LOGGING = """\
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=OUT
"""
# One node keeps one copy of everything. Small where the defaults are meant for servers: buffers, threads, partitions of
# the internal topics; and messages may be larger than the default of 1 MB, so that tests can send huge lines.
_COMMON = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed can only register again when the session of its last life has run out (default: 9 s).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.index.size.max.bytes": str(1 << 20),
    "log.retention.hours": "-1",
    "message.max.bytes": str(16 << 20),
    "replica.fetch.max.bytes": str(16 << 20),
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings with which a broker was started, kept in its folder for the next start.

    `internal_port` is where the broker talks to itself when clients have to log in or to speak TLS.
    """

    port: int
    controller_port: int
    internal_port: int
    cluster_id: str
    sasl: bool
    tls: bool
    password: str

    @property
    def protocol(self) -> str:
        """Kafka's name for how clients connect."""
        return ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT")


def server_properties(data: Path, settings: BrokerSettings) -> dict[str, str]:
    """Return Kafka's `server.properties`."""
    secured = settings.protocol != "PLAINTEXT"
    listeners = {"CLIENT": settings.port, "CONTROLLER": settings.controller_port}
    protocols = {"CLIENT": settings.protocol, "CONTROLLER": "PLAINTEXT"}
    if secured:
        listeners["INTERNAL"], protocols["INTERNAL"] = settings.internal_port, "PLAINTEXT"
    properties = _COMMON | {
        "log.dirs": str(data / RECORDS),
        "controller.quorum.voters": f"1@{HOST}:{settings.controller_port}",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(
            f"{name}://{HOST}:{port}" for name, port in listeners.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "INTERNAL" if secured else "CLIENT",
    }
    if settings.sasl:
        properties |= {
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": _login_module(f'user_{USER}="{settings.password}"'),
        }
    if settings.tls:
        properties |= {
            "listener.name.client.ssl.keystore.type": "PKCS12",
            "listener.name.client.ssl.keystore.location": str(data / KEYS),
            "listener.name.client.ssl.keystore.password": settings.password,
            "listener.name.client.ssl.key.password": settings.password,
        }
    return properties


def client_properties(data: Path, settings: BrokerSettings) -> dict[str, str]:
    """Return what a client sets to reach the broker; nothing where it is open."""
    if settings.protocol == "PLAINTEXT":
        return {}
    properties = {"security.protocol": settings.protocol}
    if settings.sasl:
        properties["sasl.mechanism"] = "PLAIN"
        properties["sasl.jaas.config"] = _login_module(f'username="{USER}" password="{settings.password}"')
    if settings.tls:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.location"] = str(data / CERTIFICATE)
    return properties


def write_files(data: Path, settings: BrokerSettings, more: Mapping[str, str]) -> None:
    """Write Kafka's properties, the logging configuration, and `client.yaml`: a `kafka:` mapping for --config."""
    properties = {**server_properties(data, settings), **more}
    write_private(data / SERVER, "".join(f"{key}={value}\n" for key, value in properties.items()))
    write_private(data / CLIENT, yaml.safe_dump({"kafka": client_properties(data, settings)}, sort_keys=False))
    write_private(data / LOGGING, _LOGGING)


def make_certificate(data: Path, environ: Mapping[str, str], settings: BrokerSettings) -> None:
    """Make a key for the broker and a certificate that it signs itself (`ca.pem`, for its clients).

    `environ`: as `java_environ` gives it.
    """
    keytool = [str(Path(environ["JAVA_HOME"]) / "bin" / "keytool"), "-alias", "broker", "-keystore", str(data / KEYS)]
    keytool += ["-storetype", "PKCS12", "-storepass:env", "STORE_PASSWORD"]
    subject = ["-dname", f"CN={HOST}", "-ext", f"SAN=IP:{HOST},DNS:localhost", "-ext", "bc:c=ca:true"]
    make = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650", *subject]
    export = ["-exportcert", "-rfc", "-file", str(data / CERTIFICATE)]
    secret = {**environ, "STORE_PASSWORD": settings.password}
    for action in (make, export):
        command = [keytool[0], action[0], *keytool[1:], *action[1:]]
        subprocess.run(command, env=secret, check=True, capture_output=True)
    (data / KEYS).chmod(0o600)


def _login_module(options: str) -> str:
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


def write_private(path: Path, text: str) -> None:
    """Write a file that holds a password: readable by this user only, from the first byte on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def servers_folder(kind: str) -> Path:
    """Return this user's folder for servers of a kind (`kafka`, `cluster`); each has a file and a folder there."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "freshet" / kind


def remember(kind: str, port: int, **fields: Any) -> None:
    """Note a server that was started; what was noted of the port before is replaced."""
    write_json(_file(kind, port), fields)


def remembered(kind: str) -> dict[int, dict[str, Any]]:
    """Return the recorded servers by port, including those that have died since."""
    files = servers_folder(kind).glob("[0-9]*.json")
    found = {int(file.stem): read_json(file, dict[str, Any], "remove it") for file in sorted(files)}
    return {port: fields for port, fields in found.items() if fields is not None}


def forget(kind: str, port: int) -> None:
    """Take a server's note away."""
    _file(kind, port).unlink(missing_ok=True)


def _file(kind: str, port: int) -> Path:
    return servers_folder(kind) / f"{port}.json"
