from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from freshet.operators.initial.artifacts import (
    IMAGE,
    MODEL,
    MissingFileError,
    encode_list,
    list_files,
    with_local_files,
)


class Shelf:
    """A store that is a folder; it counts what is fetched."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fetched = folder, list[str]()

    def put(self, model: Path, image: Path) -> str:
        files = list_files({MODEL: model, IMAGE: image})
        for name, one in files.items():
            shutil.copyfile(
                (model if name.startswith(MODEL) else image) / name.partition("/")[2], self.path(one.sha256)
            )
        content = encode_list(files)
        digest = hashlib.sha256(content).hexdigest()
        self.path(digest).write_bytes(content)
        return f"s3://b/artifacts/{digest}"

    def path(self, digest: str) -> Path:
        return self.folder / digest

    def copy(self, uri: str, path: Path) -> None:
        assert not path.exists(), "Flink leaves a file that is there as it is"
        self.fetched.append(uri)
        shutil.copyfile(self.path(uri.rpartition("/")[2]), path)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    return Shelf(tmp_path / "store")


@pytest.fixture
def config(tmp_path: Path, shelf: Shelf) -> dict[str, Any]:
    model, image = tmp_path / "model", tmp_path / "out" / "base"
    for path, content in (
        (model / "model.json", b"{}"),
        (model / "model.safetensors", b"weights"),
        (image / "storage1-0" / "image.json", b"manifest"),
        (image / "storage1-0" / "x.bin", b"rows"),
        (image / "storage1-1" / "image.json", b"other"),
        (image / "complete", b""),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return {"model": str(model), "image": str(image), "parts": 2, "artifacts": shelf.put(model, image)}


def test_a_process_that_has_the_files_uses_them(shelf: Shelf, config: dict[str, Any]) -> None:
    assert with_local_files(config, ["storage1-0"], shelf.copy) == config
    assert len(shelf.fetched) == 1, "the list alone"
    assert with_local_files(config, ["storage1-0"], shelf.copy) == config
    assert len(shelf.fetched) == 1


def test_one_that_has_not_fetches_what_it_opens_once(shelf: Shelf, config: dict[str, Any], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "model")
    shutil.rmtree(tmp_path / "out")
    found = with_local_files(config, ["storage1-0"], shelf.copy)
    assert (Path(found["model"]) / "model.safetensors").read_bytes() == b"weights"
    assert (Path(found["image"]) / "storage1-0" / "x.bin").read_bytes() == b"rows"
    assert not (Path(found["image"]) / "storage1-1").exists(), "another process's"
    assert len(shelf.fetched) == 1 + 2 + 2
    assert with_local_files(found, ["storage1-0"], shelf.copy) == found
    assert with_local_files(config, ["storage1-0"], shelf.copy) == found
    assert len(shelf.fetched) == 5


def test_other_files_at_the_same_paths_are_not_used(shelf: Shelf, config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model" / "model.safetensors").write_bytes(b"WEIGHTS")
    (tmp_path / "out" / "base" / "storage1-0" / "image.json").write_bytes(b"MANIFEST")
    found = with_local_files(config, ["storage1-0"], shelf.copy)
    assert (Path(found["model"]) / "model.safetensors").read_bytes() == b"weights"
    assert (Path(found["image"]) / "storage1-0" / "image.json").read_bytes() == b"manifest"


def test_a_file_that_is_not_what_it_should_be_is_named(shelf: Shelf, config: dict[str, Any], tmp_path: Path) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    shelf.path(digest).write_bytes(b"Weights")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(MissingFileError, match=rf"^model/model.safetensors: s3://b/artifacts/{digest} has the SHA-256"):
        with_local_files(config, (), shelf.copy)
    shelf.path(digest).unlink()
    with pytest.raises(
        MissingFileError, match=rf"^model/model.safetensors: .*{digest} can't be fetched: .*No such file"
    ):
        with_local_files(config, (), shelf.copy)
    left = [path.name for path in (tmp_path / "cache" / "artifacts").iterdir() if path.is_file()]
    assert not [name for name in left if name.startswith(".") or name == digest]


def test_a_damaged_file_of_the_cache_is_fetched_again(shelf: Shelf, config: dict[str, Any], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "model")
    found = with_local_files(config, (), shelf.copy)
    (Path(found["model"]) / "model.safetensors").resolve().write_bytes(b"weightz")
    again = with_local_files(config, (), shelf.copy)
    assert (Path(again["model"]) / "model.safetensors").read_bytes() == b"weights"


def test_a_job_whose_processes_share_their_folders() -> None:
    config = {"model": "/nowhere", "image": ""}
    assert with_local_files(config, ["storage1-0"], lambda *_: pytest.fail("nothing to copy")) is config
    assert with_local_files({}, ["a"], lambda *_: pytest.fail("nothing to copy")) == {}


def test_a_cache_that_can_not_be_written_is_named(
    shelf: Shelf, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "file"))
    with pytest.raises(MissingFileError, match="set FRESHET_CACHE to one that"):
        with_local_files(config, (), shelf.copy)
