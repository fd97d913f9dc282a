from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from freshet.job.machine.ports import free_port
from freshet.job.stores.job_artifacts import put_artifacts
from freshet.operators.initial.artifacts import with_local_files
from freshet.operators.settings import Settings
from tests.support.stores.moto_server import BUCKET, KEY_ID, SECRET, MotoServer, moto_server


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as found:
        yield found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("model/model.json", "model/model.safetensors", "model/notes.txt", "base/sink-0/image.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "base/sink-0/x.bin").write_bytes(bytes(9 << 20))
    return Settings(str(tmp_path / "model"), str(tmp_path / "out"), 1, image=str(tmp_path / "base"))


def options(server: MotoServer) -> dict[str, str]:
    return {"s3.endpoint": server.endpoint, "s3.access-key": KEY_ID, "s3.secret-key": SECRET}


def test_model_and_image_go_beside_the_checkpoints_once(
    server: MotoServer,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    uri = put_artifacts(settings, f"{server.uri}/job", options(server))
    assert uri.startswith(f"{server.uri}/job/artifacts/")
    assert "4 files of the job go there" in capsys.readouterr().err
    listed = orjson.loads(
        server.client.get_object(Bucket=BUCKET, Key=uri.removeprefix(f"{server.uri}/"))["Body"].read()
    )
    assert sorted(listed) == [
        "base/sink-0/image.json",
        "base/sink-0/x.bin",
        "model/model.json",
        "model/model.safetensors",
    ]
    assert {f"job/artifacts/{sha256}" for sha256, _ in listed.values()} <= set(server.keys())
    assert put_artifacts(settings, f"{server.uri}/job", options(server)) == uri
    assert capsys.readouterr().err == "", "all of it is there"

    def copy(given: str, path: Path) -> None:
        server.client.download_file(BUCKET, given.removeprefix(f"{server.uri}/"), str(path))

    config = {**settings.to_dict(), "model": "/nowhere", "image": "/nowhere", "artifacts": uri}
    found = with_local_files(config, ["sink-0"], copy)
    assert (Path(found["image"]) / "sink-0/x.bin").read_bytes() == bytes(9 << 20)


def test_without_a_store_processes_share_the_folders(
    server: MotoServer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert put_artifacts(settings, "", {}) == put_artifacts(settings, "/checkpoints", {}) == ""
    assert put_artifacts(settings, "gs://b/job", {}) == ""
    silent = options(server) | {"s3.endpoint": f"http://127.0.0.1:{free_port(0)}"}
    assert put_artifacts(settings, f"{server.uri}/job", silent) == ""
    said = capsys.readouterr().err
    assert "so all processes must see the model" in said
    assert SECRET not in said
