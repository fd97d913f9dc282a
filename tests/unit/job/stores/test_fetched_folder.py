from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.machine.ports import free_port
from freshet.job.stores.fetched_folder import fetch_folder
from freshet.job.stores.object_store import ObjectStore, StoreError, refuse_missing_buckets
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


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("../../../PWNED", "is no path below the folder"),
        ("a/../../PWNED", "is no path below the folder"),
        ("..", "is no path below the folder"),
        ("/PWNED", "is no path below the folder"),  # m//PWNED in the bucket
        ("a//b", "is no path below the folder"),
        ("./a", "is no path below the folder"),
        ("a\0b", "is no path below the folder"),
        ("é" * 128, "has a name of more than 255 bytes"),
        ("model.json/x", "lies in another key, which is a file"),
    ],
)
def test_a_key_that_makes_no_path_below_the_folder_is_refused(
    server: MotoServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, why: str
) -> None:
    there = {"states/m/model.json": (2, 1), f"states/m/{key}": (5, 1)}
    monkeypatch.setattr(ObjectStore, "files", lambda *_: there)
    monkeypatch.setattr(ObjectStore, "get_file", lambda _, path, target: target.write_bytes(b"bytes"))
    with pytest.raises(UsageError, match=rf"^--model s3://states/m: the key '.*' there {why}; remove it") as refusal:
        fetch_folder("--model", f"{server.uri}/m", options(server))
    assert repr(key) in str(refusal.value)
    assert not list(tmp_path.rglob("*")), "not even the cache is made"


def test_odd_keys_that_are_paths_are_taken(server: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["..a", "a..", "a\\..\\b", "MODEL.json", "model.json", "a b/é", "%2e%2e/x"]
    monkeypatch.setattr(ObjectStore, "files", lambda *_: {f"states/m/{name}": (5, 1) for name in names})
    monkeypatch.setattr(ObjectStore, "get_file", lambda _, path, target: target.write_bytes(path.encode()))
    found = fetch_folder("--model", f"{server.uri}/m", options(server))
    assert all((found / name).read_text() == f"states/m/{name}" for name in names)
    assert found.is_relative_to(tmp_path)


def test_a_bucket_that_does_not_exist_is_named(server: MotoServer, capsys: pytest.CaptureFixture[str]) -> None:
    missing = "the store has no bucket nobucket7; make it, or correct the name"
    with pytest.raises(UsageError, match=f"^--model s3://nobucket7/m: {missing}$"):
        fetch_folder("--model", "s3://nobucket7/m", options(server))
    places = {"--resume": "latest", "--model": None, "--checkpoint-dir": f"{server.uri}/new"}
    refuse_missing_buckets(places, options(server))
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match=f"^--checkpoint-dir s3a://nobucket7/x: {missing}$"):
        refuse_missing_buckets({**places, "--checkpoint-dir": "s3a://nobucket7/x"}, options(server))
    silent = options(server) | {"s3.endpoint": f"http://127.0.0.1:{free_port(0)}"}
    refuse_missing_buckets(places, silent)
    assert "--checkpoint-dir s3://states/new: " in (said := capsys.readouterr().err)
    assert "whether the bucket exists is not known" in said


def test_a_path_that_the_client_does_not_take_is_told(server: MotoServer) -> None:
    with pytest.raises(StoreError, match=r"^--model s3://states/a//b: .*path"):
        fetch_folder("--model", f"{server.uri}/a//b", options(server))
