from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.machine.ports import free_port
from freshet.job.stores.fetched_folder import fetch_folder
from freshet.job.stores.object_store import StoreError
from freshet.job.uris import uri_in
from tests.support.stores.moto_server import BUCKET, KEY_ID, SECRET, MotoServer, moto_server


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as found:
        yield found


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "artifacts"


def options(server: MotoServer) -> dict[str, str]:
    return {"s3.endpoint": server.endpoint, "s3.access-key": KEY_ID, "s3.secret-key": SECRET}


def put(server: MotoServer, name: str, content: bytes) -> None:
    server.client.put_object(Bucket=BUCKET, Key=name, Body=content)


def test_a_folder_is_fetched_once(
    server: MotoServer, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "m/model.json", b"{}")
    put(server, "m/deep/x.bin", b"rows")
    put(server, "more/model.json", b"another")
    found = fetch_folder("--model", f"{server.uri}/m", options(server))
    assert (found / "model.json").read_bytes() == b"{}"
    assert (found / "deep" / "x.bin").read_bytes() == b"rows"
    assert "--model s3://states/m: fetching 2 files, 6 bytes" in capsys.readouterr().err
    assert fetch_folder("--model", f"{server.uri}/m/", options(server)) == found
    assert capsys.readouterr().err == ""
    (found / "model.json").write_bytes(b"[]")
    assert fetch_folder("--model", f"{server.uri}/m", options(server)) == found
    assert (found / "model.json").read_bytes() == b"{}", "it is held against its hash, and fetched again"
    put(server, "m/model.json", b"{1}")
    other = fetch_folder("--model", f"{server.uri}/m", options(server))
    assert other != found
    assert (other / "model.json").read_bytes() == b"{1}"
    assert not [path for path in (cache / "folders").iterdir() if path.name.startswith(".")]


def test_what_is_not_there_is_named(server: MotoServer) -> None:
    with pytest.raises(UsageError, match=r"^--snapshot s3://states/none: there is nothing; give the folder's address"):
        fetch_folder("--snapshot", f"{server.uri}/none", options(server))
    with pytest.raises(UsageError, match=r"^--model gs://b/m: expected a folder of this machine, or an s3:// address$"):
        fetch_folder("--model", "gs://b/m", {})
    silent = options(server) | {"s3.endpoint": f"http://127.0.0.1:{free_port(0)}"}
    with pytest.raises(StoreError, match=r"^--model s3://states/m: .*connect"):
        fetch_folder("--model", f"{server.uri}/m", silent)


def test_a_uri_that_was_taken_for_a_path() -> None:
    assert uri_in(Path("s3://bucket/a/b")) == "s3://bucket/a/b"
    assert uri_in(Path("file:///a/b")) == "file:///a/b"
    assert fetch_folder("--model", "file:///a/b", {}) == Path("/a/b")
    for path in ("/a/b", "a/b", "C:x", "a/s3:/b"):
        assert uri_in(Path(path)) is None
