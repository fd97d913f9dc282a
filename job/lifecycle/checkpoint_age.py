"""Age of the newest state from which a job would go on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder import layout
from freshet.job.folder.job_file import store_options
from freshet.job.lifecycle.job_state import REST_S, JobState
from freshet.job.uris import is_remote, local_path


def checkpoint_age_s(out: Path, state: JobState) -> float | None:
    """Return the age of the newest durable state; None where there is none, or nobody can look."""
    run = state.run
    if run.get("runtime") == "local":
        times = [path.stat().st_mtime for path in (out / layout.STATE).rglob("*") if path.is_file()]
    elif is_remote(where := str(run.get("checkpoints") or "")):
        times = _checkpoint_in_flink(run) if state.flink is not None else _checkpoint_in_store(where, out)
    else:
        folder = local_path(where) if where else out / layout.CHECKPOINTS
        times = [(found / "_metadata").stat().st_mtime for found in complete_states(folder)]
    return round(max(0.0, time.time() - max(times)), 1) if times else None


def _checkpoint_in_store(where: str, out: Path) -> list[float]:
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
