"""The fourth step of a new job: its record, and what else lies in its folder before it runs."""

from __future__ import annotations

from pathlib import Path

from freshet.job.console import say
from freshet.job.folder import leftovers, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.returned_kinds import refuse_alike
from freshet.job.run.prepare.ends import Ends
from freshet.job.run.prepare.model import Start
from freshet.operators.snapshot.reader import dropped_columns


def write_folders(saved: SavedJob, ends: Ends, start: Start | None, out: Path) -> None:
    """Remove what an earlier run left that never began, and record the job."""
    folder = None if start is None else start.graph.folder
    for name in () if start is None else dropped_columns(folder, start.graph.features):
        say(
            f"--snapshot {folder}: edges.parquet has a column {name}: it is checked and not kept, no layer reads it "
            "and no export of this job has it"
        )
    if leftovers.clear(out):
        say(f"{out}: a run ended in it before its first epoch; what it had prepared is removed, and this one begins")
    refuse_alike(out, saved.settings.returned)
    # SAVED_JOB comes last of these files: a folder that has it can be resumed, one that has less counts as empty.
    ends.sources.save(out)
    saved.write(out)
    fields = saved.run_fields() | {"events": list(ends.given)}
    run_file.update_run(out, state=run_file.STARTING, **fields, **run_file.this_process())
