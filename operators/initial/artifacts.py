"""The files that operators open, model and base image, where processes do not share them: by SHA-256, from a store.

A job's client puts them beside its checkpoints, each under its hash, and with them a list of their names, sizes and
hashes. A process takes a file by its path where it has the same one there, and else fetches it, once, into a cache of
its machine (`artifacts` in the folder of user_cache). Each file is checked by its hash when it comes, and the list by
the hash in its own name, which is in the job's settings.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from freshet.errors import FreshetError
from freshet.kernels.user_cache import CACHE_VARIABLE, user_cache

MODEL, IMAGE = "model", "base"  # the folders of the list
_HELD = ".bin"  # how files end whose content their manifest holds: an image's pages are checked when they are loaded
_lock = threading.Lock()

Copy = Callable[[str, Path], None]
"""Copies what a URI names to a new file of this machine."""


class MissingFileError(FreshetError):
    """A file that operators need can't be had, or is another one; the message says which, and why."""


class Listed(NamedTuple):
    """A file of the list."""

    sha256: str
    bytes: int


def list_files(folders: Mapping[str, Path], names: Mapping[str, Iterable[str]] | None = None) -> dict[str, Listed]:
    """Return the files below folders, by FOLDER/NAME; `names`: only these of a folder.

    Raises: OSError.
    """
    found = {}
    for folder, root in folders.items():
        given = None if names is None else names.get(folder)
        paths = root.rglob("*") if given is None else (root / name for name in given)
        for path in sorted(paths):
            if path.is_file() and not path.name.startswith("."):
                name = f"{folder}/{path.relative_to(root).as_posix()}"
                found[name] = Listed(file_sha256(path), path.stat().st_size)
    return found


def encode_list(files: Mapping[str, Listed]) -> bytes:
    """Return the content of the list's file, whose name is its SHA-256."""
    return orjson.dumps({name: list(one) for name, one in files.items()}, option=orjson.OPT_SORT_KEYS)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_local_files(config: dict[str, Any], places: Iterable[str], copy: Copy) -> dict[str, Any]:
    """Return a stage's configuration with folders of this machine that have its model, and the images of `places`.

    A configuration without `artifacts` is of a job whose processes share their folders.

    Raises: MissingFileError.
    """
    if not (uri := config.get("artifacts")):
        return config
    with _lock:  # operators of a process open side by side, and want the same files
        cache = _ArtifactCache(str(uri), copy)
        found = {"model": str(cache.folder(MODEL, Path(config["model"])))}
        if config.get("image"):
            wanted = tuple(f"{place}/" for place in places)
            found["image"] = str(cache.folder(IMAGE, Path(config["image"]), wanted))
    return config | found


class _ArtifactCache:
    """The cache, for the files of one list."""

    def __init__(self, uri: str, copy: Copy) -> None:
        self._store, _, digest = uri.rpartition("/")
        self._copy = copy
        self._cache = user_cache().absolute() / "artifacts"
        self._view = self._cache / "jobs" / digest
        content = self._fetched(Listed(digest, 0), "the list of the job's files").read_bytes()
        self._files = {name: Listed(*one) for name, one in orjson.loads(content).items()}

    def folder(self, name: str, given: Path, only: tuple[str, ...] = ("",)) -> Path:
        """Return a folder that has the files of this one of the list, those that begin with `only`: `given`, if it can.

        Raises: MissingFileError.
        """
        wanted = {
            path.removeprefix(f"{name}/"): one
            for path, one in self._files.items()
            if path.startswith(tuple(f"{name}/{begin}" for begin in only))
        }
        if all(_has(given / path, one, path) for path, one in wanted.items()):
            return given
        for path, one in wanted.items():
            link, target = self._view / name / path, self._fetched(one, f"{name}/{path}")
            if not _has(link, one, path):
                _make(link.parent)
                aside = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
                aside.symlink_to(target)
                os.replace(aside, link)
        return self._view / name

    def _fetched(self, wanted: Listed, what: str) -> Path:
        """Return the file of the cache with this hash; fetch it if it is not there, or was damaged."""
        path, uri = self._cache / wanted.sha256, f"{self._store}/{wanted.sha256}"
        if path.is_file() and (_has(path, wanted, what) if wanted.bytes else file_sha256(path) == wanted.sha256):
            return path
        _make(self._cache)
        aside = self._cache / f".{wanted.sha256}.{secrets.token_hex(4)}"
        try:
            try:
                self._copy(uri, aside)
            except Exception as error:  # whatever Flink's file systems raise, through Java
                msg = f"{what}: {uri} can't be fetched: {' '.join(str(error).split())}"
                raise MissingFileError(msg) from error
            if (found := file_sha256(aside)) != wanted.sha256:
                msg = f"{what}: {uri} has the SHA-256 {found}, expected the one in its name; start the job again"
                raise MissingFileError(msg)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        return path


def _has(path: Path, expected: Listed, name: str) -> bool:
    """Return whether a file is that of this name: by its hash, or by its size where its manifest holds its content."""
    try:
        if path.stat().st_size != expected.bytes:
            return False
        return name.endswith(_HELD) or file_sha256(path) == expected.sha256
    except OSError:
        return False


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder}: can't be made ({error.strerror}); set {CACHE_VARIABLE} to one that processes can write to"
        raise MissingFileError(msg) from None
