"""Age of the newest state from which a job would go on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from freshet.files.listing import paths_in
from freshet.job.flink.checkpoints import complete_states
from freshet.job.flink.state_files import written_ns
from freshet.job.folder import layout, run_file
from freshet.job.lifecycle.job_state import REST_S, JobState
from freshet.job.uris import is_remote, local_path

_SLACK_S = 1.0  # that clocks of two hosts may differ by


def checkpoint_age_s(out: Path, state: JobState) -> float | None:
    """Return the age of the newest durable state; None where there is none, or nobody can look.

    None, too, where it is later than now: the clock was set back since.
    """
    run = state.run
    where = str(run.get("checkpoints") or out / layout.CHECKPOINTS)
    if run.get("runtime") == "local":
        times = list(written_here(paths_in(out / layout.STATE, "**")))
    elif is_remote(where) and state.flink is not None:
        times = _checkpoint_in_flink(run)
    else:
        # A job that was stopped goes on with its savepoint, which may lie elsewhere; its checkpoints go with its end.
        savepoint = run.get("savepoint") if run.get("state") in (run_file.STOPPED, run_file.FINISHED) else None
        times = [done_s for place in (where, savepoint) if place for done_s in _states_in(str(place), out)]
    age_s = time.time() - max(times) if times else None
    return None if age_s is None or age_s < -_SLACK_S else round(max(0.0, age_s), 1)


def _states_in(place: str, out: Path) -> list[float]:
    """Return when the states in a folder, or the state that it is, were completed (seconds since 1970)."""
    if is_remote(place):
        return _states_in_store(place, out)
    folder = local_path(place)
    times = [written_ns(found) for found in (folder, *complete_states(folder))]
    return [written / 1e9 for written in times if written]


def written_here(paths: Iterable[Path]) -> Iterator[float]:
    """Yield when files were written; a running job may remove them while we look."""
    for path in paths:
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat().st_mtime


def _states_in_store(where: str, out: Path) -> list[float]:
    from freshet.job.folder.job_file import store_options  # takes long to load
    from freshet.job.stores.object_store import StoreError
    from freshet.job.stores.remote_states import RemoteStates

    store = store_options(out)
    try:
        written_s = None if store is None else RemoteStates(where, store).written_s()
    except StoreError:
        return []
    return [] if written_s is None else [written_s]


def _checkpoint_in_flink(run: Mapping[str, Any]) -> list[float]:
    from freshet.job.flink.rest import FlinkRest, FlinkRestError  # takes long to load

    rest = FlinkRest(run["rest"], run["job_id"], REST_S)
    try:
        done_ms = rest.last_checkpoint_ms()
    except FlinkRestError:
        return []
    finally:
        rest.close()
    return [] if done_ms is None else [done_ms / 1e3]
