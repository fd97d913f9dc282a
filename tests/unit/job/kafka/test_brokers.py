"""Brokers that are not there: one sentence by option and address, whatever is there in their place."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from freshet.gnn.model import save_model
from freshet.job.cli import main
from freshet.job.errors import UsageError
from freshet.job.kafka import brokers
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.brokers import await_brokers
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.ports import server_port
from tests.support.graphs.models import IN_WIDTH, conv, make_model

NONE = ClientProperties()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "CONNECT_S", 0.5)
    monkeypatch.setattr(brokers, "GRACE_S", 30.0)
    monkeypatch.setattr(brokers, "ANSWER_S", 1.0)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def address(*servers: str) -> KafkaAddress:
    return KafkaAddress(",".join(servers), "t")


def asked(*servers: str) -> str:
    with pytest.raises(UsageError) as refused:
        await_brokers([("--events", address(*servers))], NONE)
    return str(refused.value)


def at(found: socket.socket) -> str:
    return f"127.0.0.1:{found.getsockname()[1]}"


def test_nobody_listens() -> None:
    silent = f"127.0.0.1:{server_port()}"
    expected = "no broker is there (Connection refused); check host and port, and that the broker runs"
    assert asked(silent) == f"--events kafka://{silent}/t: {expected}"
    assert expected in asked(silent, f"127.0.0.1:{server_port()}")


def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = threading.Event()

    def hang(*_: object, **__: object) -> object:
        asking.wait(60)  # as a resolver does that gets no answer
        return "in vain"

    monkeypatch.setattr(brokers, "why_silent", hang)
    monkeypatch.setattr(brokers, "GRACE_S", 0.0)
    assert "no broker is there (no answer)" in asked(f"127.0.0.1:{server_port()}")
    asking.set()


def test_something_that_says_nothing(listener: socket.socket) -> None:
    expected = "takes connections there, but does not answer as a Kafka broker within 1 s; check the port, and login"
    assert expected in asked(at(listener))
    assert expected in asked(f"127.0.0.1:{server_port()}", at(listener)), "one of two"


def test_something_that_is_no_broker(listener: socket.socket) -> None:
    def answer() -> None:
        while True:
            try:
                with listener.accept()[0] as one:
                    one.recv(64)
                    one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except OSError:
                return

    threading.Thread(target=answer, daemon=True).start()
    assert "does not answer as a Kafka broker" in asked(at(listener))


def test_the_first_that_is_not_there_is_named() -> None:
    named = [("--events", address(f"127.0.0.1:{server_port()}")), ("--dead-letters", address("127.0.0.1:1"))]
    with pytest.raises(UsageError, match=r"^--events "):
        await_brokers(named, NONE)
    await_brokers([], NONE)


def test_a_process_that_stood_still_asks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, looks = threading.Event(), iter([0.0, 0.01, 100.0])

    class Admin:
        def __init__(self, **_: object) -> None:
            goes_on.wait(60)

        def describe_cluster(self) -> None:
            pass

        close = describe_cluster

    def monotonic() -> float:
        if (now := next(looks, None)) is None:
            goes_on.set()  # an answer comes after the look that was late
            return 100.0
        return now

    monkeypatch.setattr("kafka.KafkaAdminClient", Admin)
    monkeypatch.setattr(brokers, "why_silent", lambda *_: None)
    monkeypatch.setattr(brokers, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
    await_brokers([("--events", address("127.0.0.1:1"))], NONE)
    assert goes_on.is_set()


def test_properties_that_no_client_takes_are_told_first() -> None:
    with pytest.raises(UsageError, match=r"ssl\.truststore\.location: x\.jks can't be read"):
        await_brokers([("--to", address("127.0.0.1:1"))], ClientProperties({"ssl.truststore.location": "x.jks"}))


def test_every_command_says_so_before_it_makes_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "M")
    (tmp_path / "e.jsonl").write_text('{"op":"add_vertex","id":1}\n')
    (tmp_path / "done" / "epochs").mkdir(parents=True)
    model, events, out = ("--model", str(tmp_path / "M")), ("--events", str(tmp_path / "e.jsonl")), tmp_path / "O"
    topic = f"kafka://127.0.0.1:{server_port()}/t"
    commands = {
        "--events": ["run", *model, "--events", topic, "--out", str(out)],
        "--embeddings-to": ["run", *model, *events, "--embeddings-to", topic, "--out", str(out)],
        "--dead-letters": ["run", *model, *events, "--dead-letters", topic, "--out", str(out)],
        "--to": ["produce", *events, "--to", topic],
        "--kafka": ["serve", "--kafka", topic, "--tables", str(tmp_path / "T" / "tables"), "--wait", "1h"],
        "check": ["check", *model, "--events", topic, "--out", str(tmp_path / "done")],
    }
    for option, command in commands.items():
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2, command
        last = capsys.readouterr().err.splitlines()[-1]
        assert f"{option.replace('check', '--events')} {topic}: no broker is there (" in last
    assert not out.exists()
