"""Files that a run leaves in its output folder if it ends before its first epoch: recognised, and removed."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

from freshet.files.listing import paths_in
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.uris import is_remote
from freshet.kind_names import written_kind
from freshet.operators.epochs.cut_segments import newest_attempt, segments_in
from freshet.operators.sink.change_log_reader import ChangeLogReader, NoChangeLogError

# Names below the output folder, as patterns; a folder without any is Freshet's alone, whatever is in it.
_OURS: dict[str, tuple[str, ...]] = {
    layout.EMBEDDINGS: ("part-*.parquet", ".*"),  # also in a folder for each kind
    layout.INNER: ("part-*.parquet", ".*"),
    layout.EPOCHS: ("epochs-*.parquet", ".*"),
    layout.STATUS: ("*.json", "*.damaged", ".*"),
    layout.IMAGE: (),
    layout.STATE: (),
    layout.CHECKPOINTS: (),
    layout.TMP: (),
    layout.TABLES: (),
    layout.LOGS: (),
    layout.JOB: ("chunks.jsonl", "start.json", "job.json", "place.json", "embeddings_in_topic", "topics-*.json", ".*"),
}
_OUR_FILES = (layout.RUN, layout.STOP, "dead_letters*.jsonl", f".{layout.DEAD_LETTERS}.lock", f".{layout.RUN}.*")


def what_is_in(out: Path) -> str | None:
    """Describe why a new job cannot begin in a folder; None if it can.

    It may in a folder that is empty, and in one with what a run has prepared that never cut an epoch.
    """
    items = [item for item in out.iterdir() if item.name != layout.LOCK]
    if not (out / layout.SAVED_JOB).exists():  # that comes last: before it, a run has made nothing but its folder
        items = [item for item in items if item.name != layout.JOB]
        return None if not items else f"it has {items[0].name}"
    foreign = next((path for item in items for path in _not_ours(item)), None)
    if foreign is not None:
        return f"it has {foreign.relative_to(out)}"
    return "a run has begun in it" if _has_begun(out) else None


def clear(out: Path) -> bool:
    """Remove what a run has prepared that never began, and nothing else; whether there was any of it."""
    if not (out / layout.SAVED_JOB).exists() or what_is_in(out) is not None:
        return False
    # What tells of the job goes last: until then, the rest is known for what it is.
    for item in sorted(out.iterdir(), key=lambda one: one.name == layout.JOB):
        if item.is_dir():
            shutil.rmtree(item)
        elif item.name != layout.LOCK:
            item.unlink()
    return True


def _not_ours(item: Path) -> list[Path]:
    """Return the paths, of a file or folder in an output folder, that no run has made."""
    if item.is_symlink():
        return [item]
    if not item.is_dir():
        return [] if any(fnmatch(item.name, pattern) for pattern in _OUR_FILES) else [item]
    patterns = _OURS.get(item.name)
    if patterns is None:
        return [item]
    found = list(item.iterdir())
    if item.name in (layout.EMBEDDINGS, layout.INNER, layout.EPOCHS):  # a kind's folder has files of the same names
        kinds = {written_kind(log.kind) for log in logs_of(item.parent)}
        found = [file for one in found for file in (one.iterdir() if one.name in kinds and one.is_dir() else (one,))]
    return [one for one in found if patterns and not any(fnmatch(one.name, like) for like in patterns)]


def _has_begun(out: Path) -> bool:
    """Return whether an epoch of the job may have been seen, or the job has a state to continue from."""
    saved, run = SavedJob.read(out), run_file.read_run(out)
    assert saved is not None
    if run_file.has_finished(run) or run.get("savepoint") or run.get("epoch"):
        return True
    if "started_ms" in run and is_remote(str(saved.options.get("checkpoint_dir") or "")):  # which can't be looked into
        return True
    log = saved.cut_log(out, beside=out / layout.CHECKPOINTS / layout.CUT_LOG)
    newest = None if log is None else newest_attempt(log)
    try:
        if newest is not None and any(segments_in(newest.path)):
            return True
    except FileNotFoundError:  # another attempt has just taken it over
        return True
    if log is not None and any(paths_in(log.parent, "**/_metadata")):
        return True
    try:
        return any(ChangeLogReader(out, log.kind).last_epoch() for log in logs_of(out))
    except NoChangeLogError:
        return False
