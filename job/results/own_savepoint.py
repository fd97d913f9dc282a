"""A savepoint of a job that runs, for one export alone: Flink may remove a checkpoint while it is read."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from freshet.files.listing import paths_in
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import savepoint_target
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.folder import layout
from freshet.job.folder.lock import taken
from freshet.job.run.job_states import JobStates
from freshet.job.uris import is_remote, local_path

_SAVEPOINT_S = 300.0
_DISPOSAL_S = 30.0


def may_vanish(given: str, states: JobStates) -> bool:
    """Return whether Flink may remove the state of `--from` while the job runs: checkpoints, not savepoints."""
    name = given.rstrip("/").rpartition("/")[2]
    if name == layout.SAVEPOINTS or name.startswith("savepoint-"):
        return False
    if given == "latest" or is_remote(given):
        return True
    place, folder = local_path(given).resolve(), states.folder.resolve()
    return place.is_relative_to(folder) or folder.is_relative_to(place)


@contextmanager
def own_savepoint(run: Mapping[str, Any]) -> Iterator[str]:
    """Take a savepoint of the running job of `run.json`; it is removed afterwards.

    Raises: FlinkRestError when Flink can't write it.
    """
    target = f"{run['checkpoints']}/{layout.EXPORTS}/{uuid.uuid4().hex}"
    rest = FlinkRest(run["rest"], run["job_id"])
    try:
        if is_remote(target):
            savepoint = rest.savepoint(target, _SAVEPOINT_S)
            try:
                yield savepoint
            finally:
                _dispose(rest, savepoint)
        else:
            with _folder_for_now(local_path(target)):
                yield rest.savepoint(savepoint_target(target), _SAVEPOINT_S)
    finally:
        rest.close()


def _dispose(rest: FlinkRest, savepoint: str) -> None:
    try:
        rest.dispose(savepoint, _DISPOSAL_S)
    except FlinkRestError as error:  # the cluster has ended, say
        say(f"the export's own savepoint {savepoint} stays, remove it: {error}")


@contextmanager
def _folder_for_now(folder: Path) -> Iterator[None]:
    """Make a folder that goes afterwards, with all that is in it; and remove those of exports that were killed."""
    for other in paths_in(folder.parent, "*"):
        with suppress(UsageError), taken(other, "freshet export"):
            shutil.rmtree(other, ignore_errors=True)
    try:
        with taken(folder, "freshet export"):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another export's is in it
            folder.parent.rmdir()
