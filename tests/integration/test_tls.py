"""Flight, HTTP, a server that feeds from another one, and the commands, all by TLS."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import orjson
import pytest

from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.errors import NotReadyError
from tests.support.runs.jobs import ROOT
from tests.support.serving.hand_job import WIDTH, HandJob
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
CERT, KEY, OTHER = (ROOT / "tests" / "data" / "tls" / name for name in ("cert.pem", "key.pem", "other.pem"))
SHOWN = ("--tls-cert", str(CERT), "--tls-key", str(KEY))


def test_everything_by_tls(servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_TOKEN", "secret")
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    source, fed = Server(tmp_path / "O"), Server(tmp_path / "F" / "out")
    fed.tables.mkdir(parents=True)
    servers += [source, fed]
    told = source.start(*SHOWN, "--host", "localhost")
    assert told["flight"].startswith("grpc+tls://localhost:")
    with EmbeddingClient(told["flight"], token="secret", tls_roots=CERT, timeout=60) as client:
        assert client.get([2, 9])["embedding"].to_pylist() == [[1.0] * WIDTH]
    plain = told["flight"].removeprefix("grpc+tls://")
    by_system = told["flight"]  # whose roots do not know this certificate
    for address in (plain, by_system):
        with EmbeddingClient(address, token="secret", timeout=0.5) as client, pytest.raises(NotReadyError):
            client.rows([2])
    trusts = ssl.create_default_context(cafile=str(CERT))
    header = {"authorization": "Bearer secret"}
    answer = httpx.get(f"{told['http']}/embeddings/2", headers=header, verify=trusts, trust_env=False, timeout=60)
    assert answer.json()["embedding"] == [1.0] * WIDTH
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{told['http']}/readyz", trust_env=False, timeout=60)
    here = fed.start("--from", told["flight"], "--tls-roots", str(CERT), *SHOWN)
    hand.apply(2, ({2: 2.0}, []))
    with EmbeddingClient(here["flight"], token="secret", tls_roots=CERT, timeout=60) as client:
        assert client.rows([2], min_epoch=2)[2].tolist() == [[2.0] * WIDTH]
    query = [sys.executable, "-m", "freshet.job.cli", "query", "--at", told["flight"], "--format", "json", "2"]
    done = subprocess.run([*query, "--tls-roots", CERT, "--timeout", "60"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["id"] == 2
    done = subprocess.run([*query, "--timeout", "0.5"], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, b"no server answers" in done.stderr) == (2, True), done.stderr
    watch = [
        sys.executable,
        "-m",
        "freshet.job.cli",
        "watch",
        "--at",
        told["flight"],
        "--tls-roots",
        CERT,
        "--epochs",
        "2",
    ]
    done = subprocess.run(watch, cwd=ROOT, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout.splitlines()[-1])["embedding"] == [2.0] * WIDTH
    watch[watch.index(told["flight"])] = here["flight"]
    done = subprocess.run(watch, cwd=ROOT, capture_output=True, check=False, timeout=600)
    assert (done.returncode, b"from elsewhere" in b" ".join(done.stderr.split())) == (2, True), done.stderr
    assert (fed.stop(), source.stop()) == (0, 0)
    hand.close()


def test_a_key_of_another_certificate(servers: list[Server], tmp_path: Path) -> None:
    HandJob(tmp_path / "O").close()
    one = Server(tmp_path / "O")
    servers.append(one)
    with pytest.raises(AssertionError, match="not the key of that certificate"):
        one.start("--tls-cert", str(CERT), "--tls-key", str(OTHER))
