"""A job's model and base image beside its checkpoints in a store, for processes that do not share its folders."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from freshet.gnn.model import SPEC_FILE, WEIGHTS_FILE
from freshet.job.console import say
from freshet.job.stores.object_store import ObjectStore, StoreError
from freshet.job.stores.plugins import is_on_s3
from freshet.job.stores.remote_states import ARTIFACTS
from freshet.operators.initial.artifacts import IMAGE, MODEL, encode_list, list_files
from freshet.operators.settings import Settings

_AT_ONCE = 4


def put_artifacts(settings: Settings, checkpoints: str, options: Mapping[str, str]) -> str:
    """Put the files that operators open into the store of the checkpoints; return the URI of their list.

    Empty where the checkpoints are on no store that Python reaches: then all processes must see the job's folders.
    What is there already stays. `options` are Flink's, with the secrets in them.
    """
    if not is_on_s3(checkpoints):
        return ""
    try:
        return _put(settings, f"{checkpoints}/{ARTIFACTS}", options)
    except StoreError as error:
        say(f"{error}; so all processes must see the model and {settings.out} by their paths")
        return ""


def _put(settings: Settings, uri: str, options: Mapping[str, str]) -> str:
    store = ObjectStore(uri, options)
    folders = {MODEL: Path(settings.model)} | ({IMAGE: Path(settings.image)} if settings.image else {})
    files = list_files(folders, {MODEL: (SPEC_FILE, WEIGHTS_FILE)})
    content = encode_list(files)
    digest = hashlib.sha256(content).hexdigest()
    paths = {one.sha256: (name, one.bytes) for name, one in files.items()}
    there = store.sizes(f"{store.root}/{sha256}" for sha256 in paths)
    missing = [sha256 for sha256, (_, size) in paths.items() if there.get(f"{store.root}/{sha256}") != size]
    if missing:
        say(f"{uri}: {len(missing)} files of the job go there, {sum(paths[one][1] for one in missing):,} bytes")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda one: store.put_file(_local(folders, paths[one][0]), f"{store.root}/{one}"), missing))
    store.put_bytes(content, f"{store.root}/{digest}")
    return f"{uri}/{digest}"


def _local(folders: Mapping[str, Path], name: str) -> Path:
    folder, _, path = name.partition("/")
    return folders[folder] / path
