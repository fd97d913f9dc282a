"""Finds the state that a job can resume from: Flink's retained checkpoints and savepoints."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Collection, Mapping
from pathlib import Path

from freshet.files.listing import paths_in
from freshet.job.flink.state_files import (
    METADATA,
    expect_metadata,
    has_checksums,
    is_complete,
    recorded_states,
    written_ns,
)
from freshet.job.stores.object_store import NoBucketError, StoreError
from freshet.job.stores.remote_states import RemoteStates
from freshet.job.uris import is_remote, local_path

_JOB_FOLDER = re.compile(r"[0-9a-f]{32}")


class NoCheckpointError(FileNotFoundError):
    """There is nothing to resume from; the message says where it was looked for."""


def newest(states: list[Path]) -> Path | None:
    """The state that was written last: the numbers of checkpoints begin again with every job."""
    return max(states, key=_by_time, default=None)


def _by_time(state: Path) -> tuple[int, str]:
    return written_ns(state), state.name


def complete_states(folder: Path) -> list[Path]:
    """All complete checkpoints and savepoints below `folder`."""
    patterns = ("chk-*", "*/chk-*", "savepoint-*", "*/savepoint-*")
    return [state for pattern in patterns for state in paths_in(folder, pattern) if is_complete(state)]


def states_of_job(folder: Path, savepoint: str, *, is_last: bool) -> list[Path]:
    """The states of a job with that folder of checkpoints, the newest first, also those that were damaged since.

    Its last savepoint ("": none) may lie elsewhere; `is_last`: the job stopped with it, so that it is the newest.
    """
    states = {*complete_states(folder), *recorded_states(folder)}
    if savepoint and (is_complete(Path(savepoint)) or has_checksums(Path(savepoint))):
        states.add(Path(savepoint))
    elif savepoint and is_last and Path(savepoint).name not in {state.name for state in states}:  # moved with the job
        return [Path(savepoint), *sorted(states - {Path(savepoint)}, key=_by_time, reverse=True)]
    return sorted(states, key=_by_time, reverse=True)


def savepoints_in(target: str, store: Mapping[str, str] | None = None) -> list[str]:
    """The savepoints in a folder (a URI), complete or not; in a store complete ones, by Flink's options for it.

    None of a store that can't be looked into.
    Raises: NoBucketError.
    """
    if is_remote(target):
        try:
            return [] if store is None else RemoteStates(target, store).savepoints()
        except NoBucketError:
            raise
        except StoreError:
            return []
    return sorted(str(state) for state in local_path(target).glob("savepoint-*"))


def new_savepoint(target: str, before: Collection[str], store: Mapping[str, str] | None = None) -> str | None:
    """Return the complete savepoint in a folder that was not there `before`, which is what `savepoints_in` said."""
    new = [state for state in savepoints_in(target, store) if state not in before]
    if is_remote(target):
        return next(iter(new), None)
    found = newest([Path(state) for state in new if is_complete(Path(state))])
    return None if found is None else str(found)


def find_latest(folder: Path) -> Path:
    """Return the newest checkpoint or savepoint below `folder`, also if it was damaged since it was complete.

    Raises: NoCheckpointError when there is none.
    """
    found = newest([*complete_states(folder), *recorded_states(folder)])
    if found is None:
        msg = f"no complete checkpoint or savepoint below {folder}"
        raise NoCheckpointError(msg)
    return found


def find_state(where: str) -> Path:
    """Return the folder that `--resume WHERE` means: a checkpoint, a savepoint, or a folder of them.

    Raises: NoCheckpointError.
    """
    path = local_path(where)
    return path if (path / METADATA).is_file() or path in recorded_states(path.parent) else find_latest(path)


def prune(folder: Path, keep: Path | None) -> None:
    """Remove a job's checkpoints but those of the attempt (a job to Flink) that `keep` belongs to; savepoints stay."""
    for job in folder.iterdir() if folder.is_dir() else []:
        if _JOB_FOLDER.fullmatch(job.name) and (keep is None or job != keep.parent):
            shutil.rmtree(job, ignore_errors=True)


def follow_move(checkpoint: Path) -> bool:
    """Make a checkpoint find its files where it lies now; returns whether it had been moved or copied.

    Flink writes the absolute path of every file into the metadata of a checkpoint (a savepoint has relative ones).
    """
    metadata = checkpoint / METADATA
    data = metadata.read_bytes()
    job = re.escape(checkpoint.parent.name.encode())
    was = re.search(rb"file:(/[^\x00-\x1f]*?)/" + job + rb"/(?:chk-\d+|shared)/", data)
    folder = checkpoint.parent.parent.resolve()
    if was is None or was[1] == os.fsencode(folder):
        return False
    aside = metadata.with_name(f".{METADATA}.{os.getpid()}")
    aside.write_bytes(moved := replace_paths(data, b"file:" + was[1] + b"/", b"file:" + os.fsencode(folder) + b"/"))
    expect_metadata(checkpoint, moved)
    shutil.copystat(metadata, aside)  # which one is the newest goes by the time
    aside.replace(metadata)
    return True


def replace_paths(data: bytes, old: bytes, new: bytes) -> bytes:
    """Replace the start of strings as Java's `writeUTF` writes them: two bytes of length, then the text."""
    out, done, at = [], 0, data.find(old)
    while at >= 0:
        (length,) = struct.unpack_from(">H", data, at - 2) if at - 2 >= done else (0,)
        if len(old) <= length <= len(data) - at:
            out += [data[done : at - 2], struct.pack(">H", length + len(new) - len(old)), new]
            done = at + len(old)
        at = data.find(old, at + len(old))
    return b"".join([*out, data[done:]])
