"""Checkpoints and savepoints in an object store: the newest of a job, found as in a folder of this machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from freshet.job.stores.object_store import ObjectStore

METADATA = "_metadata"  # which Flink writes last
ARTIFACTS = "artifacts"  # the folder, beside the checkpoints, of files that operators fetch (job_artifacts)
_JOB_FOLDER = re.compile(r"[0-9a-f]{32}")
_STATE = re.compile(r"chk-(\d+)|savepoint-.+")


class RemoteStates:
    """The complete states at a URI and below, to a depth of two folders: those of a job, with their ages.

    Raises: StoreError from every method where the store can't be looked into.
    """

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """`options` are Flink's, with the secrets in them."""
        self._store = ObjectStore(uri, options)

    def newest(self) -> str | None:
        """Return the URI of the newest complete checkpoint or savepoint; None where there is none."""
        found = self._complete()
        newest = max(found, key=lambda state: (found[state], _number(state)), default=None)
        return None if newest is None else self._store.uri_of(newest)

    def written_s(self) -> float | None:
        """Return when the newest one was completed, in seconds since 1970."""
        return max(self._complete().values(), default=None)

    def is_state(self) -> bool:
        """Return whether the URI itself is that of a complete state."""
        return bool(self._store.written_s([f"{self._store.root}/{METADATA}"]))

    def has_folder(self, name: str) -> bool:
        """Return whether a folder of this name is right below the URI."""
        return name in map(_name, self._store.folders(self._store.root))

    def savepoints(self) -> list[str]:
        """Return the URIs of the complete savepoints right below the URI."""
        found = [path for path in self._store.folders(self._store.root) if _name(path).startswith("savepoint-")]
        done = self._store.written_s([f"{path}/{METADATA}" for path in found])
        return sorted(self._store.uri_of(path.rpartition("/")[0]) for path in done)

    def prune(self, keep: Collection[str]) -> None:
        """Remove the checkpoints of the job's attempts (jobs to Flink) but these; savepoints stay.

        Without any that are kept, the job has ended, and the files that its operators fetch go as well.
        """
        for path in self._store.folders(self._store.root):
            is_over = not keep and _name(path) == ARTIFACTS
            if is_over or (_JOB_FOLDER.fullmatch(_name(path)) and _name(path) not in keep):
                self._store.remove(path)

    def _complete(self) -> dict[str, float]:
        """Return when each complete state was, by its path."""
        here = self._store.folders(self._store.root)
        states = [path for path in (self._store.root, *here) if _STATE.fullmatch(_name(path))]
        for folder in here:
            if folder not in states:
                states += [path for path in self._store.folders(folder) if _STATE.fullmatch(_name(path))]
        written = self._store.written_s([f"{path}/{METADATA}" for path in states])
        return {path.rpartition("/")[0]: when for path, when in written.items()}


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _number(state: str) -> int:
    """The number of a checkpoint, for those of one second: stores tell no shorter times."""
    match = _STATE.fullmatch(_name(state))
    return int(match[1]) if match and match[1] else 0
