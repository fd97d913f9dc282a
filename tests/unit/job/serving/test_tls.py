"""Certificates and addresses, and what is said of files that will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import EmbeddingClient
from job.errors import UsageError
from job.serving.tls import Address, Certificate, read_roots

TLS = Path(__file__).parents[3] / "data" / "tls"
CERT, KEY, OTHER = (TLS / name for name in ("cert.pem", "key.pem", "other.pem"))


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
