"""A real Apache Kafka broker on this machine, for development and tests: KRaft, one node, its own folder.

Its jars come from Maven (`job.machine.artifacts`) and run on the Java of `job.machine.java`. It listens on the
loopback address only.
"""

from __future__ import annotations

import base64
import json
import secrets
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import yaml

from freshet.files.json_file import read_json
from freshet.job.dev.broker_files import (
    CLIENT,
    HOST,
    KEYS,
    LOGGING,
    RECORDS,
    SERVER,
    SETTINGS,
    BrokerSettings,
    make_certificate,
    write_files,
    write_private,
)
from freshet.job.errors import JobFailed
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.artifacts import broker_jars
from freshet.job.machine.java import java_environ
from freshet.job.machine.ports import is_free, server_port
from freshet.job.machine.processes import Process, began_s

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
OUTPUT = "broker.log"

_STARTED = b"Kafka Server started"
_SHOWN_LINES = 20
# Half a gibibyte is plenty for tests, and the quick compiler alone halves the time to start.
JAVA_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@dataclass(slots=True)
class Broker(Process):
    """A broker's process and its data folder; the folder outlives the process, whichever way that ends."""

    data: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self.port}"

    @property
    def client_file(self) -> Path:
        """A --config file by which `freshet` reaches the broker."""
        return self.data / CLIENT

    def client_properties(self) -> ClientProperties:
        """The properties by which clients reach the broker; none when it asks for neither a login nor TLS."""
        return ClientProperties(yaml.safe_load(self.client_file.read_text(encoding="utf-8"))["kafka"])

    def kill(self) -> None:
        """End the process by SIGKILL, as a crash would; `start_broker` on the same folder brings it back."""
        self.send(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """End the process in an orderly way, or by SIGKILL when that takes too long."""
        self.send(signal.SIGTERM)
        if not self._reap():
            self.kill()

    def _reap(self) -> bool:
        ended = self.await_end(STOP_TIMEOUT_S)
        if ended and self._process:
            self._process.wait()
        return ended

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_broker(
    data: Path,
    port: int = 0,
    *,
    sasl: bool | None = None,
    tls: bool | None = None,
    password: str | None = None,
    timeout_s: float = START_TIMEOUT_S,
    more: Mapping[str, str] | None = None,
) -> Broker:
    """Start a broker on a folder, new or used by one before, and return when it answers.

    A used folder brings back its topics, its port (0: the old one) and how clients log in (None: as before). The user
    is `freshet`; without a password one is made up, `Broker.client_properties` has it. `more` are properties of Kafka
    that win over those made here, for this start.
    Raises: JobFailed when the port is taken or the broker does not come up, with the end of its log; ArtifactError when
        its jars can't be fetched.
    """
    classpath = ":".join(str(jar) for jar in broker_jars())
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    settings, environ = _settings(data, port, sasl, tls, password), java_environ()
    write_private(data / SETTINGS, json.dumps(asdict(settings)))
    if settings.tls and not (data / KEYS).exists():
        make_certificate(data, environ, settings)
    write_files(data, settings, more or {})
    if not (data / RECORDS / "meta.properties").exists():
        _format(data, settings, classpath, environ)
    broker = _launch(data, settings, classpath, environ)
    try:
        _await_start(broker, timeout_s)
    except BaseException:
        broker.kill()
        raise
    return broker


def _settings(data: Path, port: int, sasl: bool | None, tls: bool | None, password: str | None) -> BrokerSettings:
    """Return the folder's settings, if it has some, with the requested ones, on free ports."""
    settings = read_json(
        data / SETTINGS, BrokerSettings, "remove it: then the broker gets new ports and a new password"
    )
    if settings is None:
        settings = BrokerSettings(0, 0, 0, _cluster_id(), False, False, secrets.token_hex(16))
    try:
        wanted = server_port(port or settings.port)
    except OSError as error:
        msg = f"Kafka can't listen on {HOST}: {error}; ask for another port, or stop what uses it"
        raise JobFailed(msg) from None
    others = [
        old if old and is_free(old) else server_port() for old in (settings.controller_port, settings.internal_port)
    ]
    return replace(
        settings,
        port=wanted,
        controller_port=others[0],
        internal_port=others[1],
        sasl=settings.sasl if sasl is None else sasl,
        tls=settings.tls if tls is None else tls,
        password=password or settings.password,
    )


def _cluster_id() -> str:
    """A new UUID the way Kafka writes one."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _java(data: Path, classpath: str, environ: Mapping[str, str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={data / LOGGING}"
    return [str(Path(environ["JAVA_HOME"]) / "bin" / "java"), *JAVA_OPTIONS, logging, "-cp", classpath]


def _format(data: Path, settings: BrokerSettings, classpath: str, environ: Mapping[str, str]) -> None:
    arguments = ["kafka.tools.StorageTool", "format", "-t", settings.cluster_id, "-c", str(data / SERVER)]
    command = [*_java(data, classpath, environ), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"Kafka could not format {data / RECORDS}: {' '.join((done.stderr or done.stdout).split())[-1000:]}"
        raise JobFailed(msg)


def _launch(data: Path, settings: BrokerSettings, classpath: str, environ: Mapping[str, str]) -> Broker:
    # A session of its own: Ctrl-C in the terminal that started it does not end it.
    with (data / OUTPUT).open("wb") as log:
        process = subprocess.Popen(
            [*_java(data, classpath, environ), "kafka.Kafka", str(data / SERVER)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=data,
            start_new_session=True,
        )
    return Broker(process.pid, began_s(process.pid), data, settings.port, process)


def _await_start(broker: Broker, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    log = broker.data / OUTPUT
    while _STARTED not in log.read_bytes():
        late = time.monotonic() > deadline
        if late or not broker.is_alive():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
            why = f"did not start within {timeout_s:.0f} s" if late else "ended while it started"
            msg = "\n".join([f"the Kafka broker on port {broker.port} {why}; the end of its log:", *lines])
            raise JobFailed(msg)
        time.sleep(0.05)
    _ask(broker, max(deadline - time.monotonic(), 5.0))


def _ask(broker: Broker, timeout_s: float) -> None:
    """Ask for its topics, as any client would."""
    from kafka import KafkaAdminClient

    options = broker.client_properties().kafka_python()
    client = KafkaAdminClient(bootstrap_servers=broker.address, request_timeout_ms=int(timeout_s * 1000), **options)
    try:
        client.list_topics()
    finally:
        client.close()
