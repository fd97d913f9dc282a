"""Folders in a store, such as a model's or a snapshot's, as folders in the user's cache, named by what they hold."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import orjson

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.stores.object_store import NoBucketError, ObjectStore, StoreError
from freshet.job.stores.plugins import is_on_s3
from freshet.job.uris import local_path
from freshet.kernels.user_cache import user_cache
from freshet.operators.initial.artifacts import Listed, encode_list, list_files

_NAME_BYTES_MAX = 255  # of a file's name on Linux
_IN = "folder"  # the one name that a list has here


def fetch_folder(flag: str, uri: str, options: Mapping[str, str]) -> Path:
    """Return a folder of this machine with what is at a URI; it is fetched where the cache does not have it.

    `flag` names it in errors; `options` are Flink's, with the secrets in them. The same content has the same folder.

    Raises: UsageError where nothing is there, nobody can look, or a key makes no path below the folder; StoreError.
    """
    if uri.startswith("file://"):
        return local_path(uri)
    if not is_on_s3(uri):
        msg = f"{flag} {uri}: expected a folder of this machine, or an s3:// address"
        raise UsageError(msg)
    try:
        return _fetched(flag, uri.rstrip("/"), options)
    except NoBucketError as error:
        msg = f"{flag} {error}"
        raise UsageError(msg) from None
    except StoreError as error:
        msg = f"{flag} {error}"
        raise StoreError(msg) from None


def _fetched(flag: str, uri: str, options: Mapping[str, str]) -> Path:
    store = ObjectStore(uri, options)
    there = store.files(store.root)
    if not there:
        msg = f"{flag} {uri}: there is nothing; give the folder's address, s3://BUCKET/FOLDER"
        raise UsageError(msg)
    names = {path: path.removeprefix(f"{store.root}/") for path in there}
    for name in names.values():
        if why := _no_path(name, set(names.values())):
            msg = f"{flag} {uri}: the key {name[:200]!r} there {why}; remove it, or give a folder without it"
            raise UsageError(msg)
    cache = user_cache().absolute() / "artifacts"
    seen = cache / "seen" / hashlib.sha256(orjson.dumps([uri, there])).hexdigest()
    if (known := _known(cache, seen)) is not None:
        return known
    aside = cache / "folders" / f".{secrets.token_hex(8)}"
    say(f"{flag} {uri}: fetching {len(there)} files, {sum(size for size, _ in there.values()):,} bytes")
    try:
        for path, name in names.items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            store.get_file(path, target)
        content = encode_list(list_files({_IN: aside}))
        folder = cache / "folders" / hashlib.sha256(content).hexdigest()
        if not _is_whole(folder, content):
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(aside, folder)
    except OSError as error:
        msg = f"{flag} {uri}: can't be written to {cache} ({error.strerror})"
        raise UsageError(msg) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.write_bytes(content)
    return folder


def _no_path(name: str, others: Collection[str]) -> str:
    """Return why a key makes no path of a file below a folder of this machine; empty if it does."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return "is no path below the folder"
    if any(len(os.fsencode(part)) > _NAME_BYTES_MAX for part in parts):
        return f"has a name of more than {_NAME_BYTES_MAX} bytes"
    if any("/".join(parts[:count]) in others for count in range(1, len(parts))):
        return "lies in another key, which is a file"
    return ""


def _known(cache: Path, seen: Path) -> Path | None:
    """Return the folder that was fetched from there, if each file still has the hash that it had."""
    try:
        content = seen.read_bytes()
    except OSError:
        return None
    folder = cache / "folders" / hashlib.sha256(content).hexdigest()
    return folder if _is_whole(folder, content) else None


def _is_whole(folder: Path, content: bytes) -> bool:
    try:
        wanted = {name: Listed(*one) for name, one in orjson.loads(content).items()}
        return folder.is_dir() and list_files({_IN: folder}) == wanted
    except (OSError, ValueError):
        return False
