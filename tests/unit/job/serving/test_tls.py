"""Certificates and addresses, and what is said of files that will not do."""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow.flight as flight
import pytest

from freshet import EmbeddingClient
from freshet.job.errors import UsageError
from freshet.job.serving.protocol.tls import Address, Certificate, read_roots

TLS = Path(__file__).parents[3] / "data" / "tls"
CERT, KEY, OTHER = (TLS / name for name in ("cert.pem", "key.pem", "other.pem"))


class Answers(flight.FlightServerBase):
    def list_actions(self, context):
        return [("here", "")]


def test_a_certificate_and_its_key():
    assert Certificate.read(None, None) is None
    found = Certificate.read(CERT, KEY)
    assert found is not None
    assert found.pair == (CERT.read_bytes(), KEY.read_bytes())


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        (CERT, None, "--tls-cert: goes with --tls-key only"),
        (None, KEY, "--tls-key: goes with --tls-cert only"),
        (TLS / "nothing.pem", KEY, r"--tls-cert .*nothing.pem: can't be read: No such file"),
        (CERT, TLS, r"--tls-key .*: can't be read: Is a directory"),
        (CERT, OTHER, "not the key of that certificate"),
        (KEY, CERT, "expected two PEM files"),
        (TLS / "README.md", KEY, "expected two PEM files"),
    ],
)
def test_files_that_will_not_do(cert, key, said):
    with pytest.raises(UsageError, match=said):
        Certificate.read(cert, key)


def test_a_key_with_a_password(tmp_path):
    locked = tmp_path / "key.pem"
    locked.write_text(
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF"
        "\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
    )
    with pytest.raises(UsageError, match="without a password"):
        Certificate.read(CERT, locked)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one:47470", Address("one", 47470, False)),
        ("grpc://one:1", Address("one", 1, False)),
        ("grpc+tcp://127.0.0.1:1", Address("127.0.0.1", 1, False)),
        ("grpc+tls://one:65535", Address("one", 65535, True)),
        ("grpc+tls://[::1]:7", Address("::1", 7, True)),
        ("one:65536", None),
        ("one", None),
        ("https://one:1", None),
        ("O/tables", None),
    ],
)
def test_addresses(text, found):
    assert Address.parse(text) == found
    if found is not None:
        assert Address.parse(found.location()) == found


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTPS_PROXY"])
def test_a_server_on_this_machine_is_reached_without_a_proxy(variable, monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with Answers("grpc://127.0.0.1:0") as server:
        for host in ("127.0.0.1", "localhost"):
            with Address(host, server.port, False).connect(None, []) as client:
                assert [one.type for one in client.list_actions(flight.FlightCallOptions(timeout=60))] == ["here"]


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", True),
        ("LOCALHOST", True),
        ("one.localhost.", True),
        (socket.gethostname(), True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_others_are_reached_as_the_environment_says(host, here, monkeypatch):
    told = {}
    monkeypatch.setattr(flight, "connect", lambda location, **options: told.update(options))
    Address(host, 47470, False).connect(None, [("grpc.keepalive_time_ms", 5000)])
    assert (("grpc.enable_http_proxy", 0) in told["generic_options"]) is here
    assert told["generic_options"][0] == ("grpc.keepalive_time_ms", 5000)


def test_roots():
    assert read_roots(None) is None
    assert read_roots(CERT) == read_roots(CERT.read_bytes()) == CERT.read_bytes()
    with pytest.raises(UsageError, match="expected PEM"):
        read_roots(KEY)
    with pytest.raises(UsageError, match="can't be read"):
        read_roots(TLS / "nothing.pem")
    for address in ("127.0.0.1:1", "O/tables"):
        with pytest.raises(UsageError, match=r"goes with grpc\+tls"):
            EmbeddingClient(address, tls_roots=CERT)
