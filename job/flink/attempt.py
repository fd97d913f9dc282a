"""An attempt of a job: what its folder says from its beginning on."""

from __future__ import annotations

import shutil
import time
from typing import Any

from freshet.files.whole import remove_left_behind
from freshet.job.flink.job_spec import JobSpec, after_former
from freshet.job.folder import layout, run_file
from freshet.job.folder.stop_file import forget_stop
from freshet.operators.telemetry.profile import forget_profiles


def begin_attempt(spec: JobSpec) -> JobSpec:
    """Return the spec as the job starts with it, once the folder has nothing of an earlier attempt."""
    saved = spec.checkpoints / layout.SPEC
    spec = after_former(spec, saved)
    spec.checkpoints.mkdir(parents=True, exist_ok=True)
    remove_left_behind(spec.checkpoints)
    spec.save(saved)
    shutil.rmtree(spec.tmp, ignore_errors=True)  # of a run that was killed
    spec.tmp.mkdir(parents=True)
    forget_stop(spec.out_path)
    forget_profiles(spec.out_path)
    (spec.checkpoints / layout.RETAINED).unlink(missing_ok=True)
    run_file.record_start(spec.out_path, runtime="flink")
    return spec


def place_of(spec: JobSpec, rest: str, job_id: str) -> dict[str, Any]:
    """Return the fields of `run.json` that say where the job is."""
    return {
        "job_id": job_id,
        "rest": rest,
        "flink_ui": ui_of(rest, job_id),
        "cluster": spec.cluster,
        "checkpoints": spec.checkpoint_uri,
        "started_ms": int(time.time() * 1e3),
        "tried": spec.stage.get("run"),
    }


def ui_of(rest: str, job_id: str) -> str:
    """Return the address of a job's page in Flink's UI."""
    return f"http://{rest}/#/job/{job_id}/overview"
