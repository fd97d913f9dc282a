"""Looks at the files and folders of a run before anything is started, so that wrong use fails in a second."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from job.errors import UsageError
from job.folder import layout
from job.folder.lock import is_empty
from job.folder.run_file import read_run
from job.kafka.address import is_kafka
from job.options.run_config import RunConfig
from job.uris import is_remote, local_path
from operators.parser.formats import SUFFIXES, begins_as, format_of


def check_run(config: RunConfig) -> None:
    """Check that the run can start: model, snapshot and events are there.

    Raises: UsageError naming the option, what was found and what to do.
    """
    check_model(config.model)
    if config.snapshot is not None:
        check_snapshot(config.snapshot)
    event_files(config.events, topics=True)


def event_files(events: Iterable[str], topics: bool = False) -> list[Path]:
    """Return the event files in order; a folder stands for its files in the order of their names.

    Files in a folder that begin with `.` or `_` are unfinished and left out, and so are Kafka topics, which are refused
    where the command takes no `topics`.
    Raises: UsageError for what is missing, empty of event files, or of another format.
    """
    files = []
    for given in events:
        if is_kafka(given) and topics:
            continue  # the brokers are asked when the run begins
        if is_kafka(given):
            msg = f"--events {given}: this command reads files only"
            raise UsageError(msg)
        path = Path(given)
        if not path.is_dir():
            files.append(_check_event_file(path))
            continue
        inside = sorted(item for item in path.iterdir() if item.is_file() and item.name[0] not in "._")
        if not inside:
            msg = f"--events {path}: an empty folder; expected files that end in {', '.join(SUFFIXES)}"
            raise UsageError(msg)
        files += [_check_event_file(item) for item in inside]
    return files


def check_model(folder: Path) -> None:
    """Check that a model folder has its two files.

    Raises: UsageError otherwise.
    """
    _require_files(
        "--model",
        folder,
        ("model.json", "model.safetensors"),
        "freshet.export_model or `freshet model import` makes such a folder",
    )


def check_snapshot(folder: Path) -> None:
    """Check that a snapshot folder has its two files.

    Raises: UsageError otherwise.
    """
    _require_files(
        "--snapshot", folder, ("vertices.parquet", "edges.parquet"), "leave --snapshot out to start from an empty graph"
    )


def check_out(out: Path, resume: str | None) -> None:
    """Check that the output folder, which is there, is free for a new job, or holds something to resume.

    Raises: UsageError otherwise.
    """
    if resume is None:
        from job.folder.leftovers import what_is_in  # with libraries that take a while
        from job.run.job_states import at_work

        if (found := what_is_in(out)) is not None:
            msg = (
                f"--out {out}: not empty: {found}; give a new folder, or --resume latest to go on with the run that is "
                "in it"
            )
            raise UsageError(msg)
        if (worker := at_work(out, read_run(out))) is not None:  # a cluster, where its process has gone
            msg = f"--out {out}: {worker} is still working on it; give a new folder, or end it: freshet stop {out}"
            raise UsageError(msg)
    elif not _is_used(out):
        msg = f"--resume {resume}: nothing in --out {out} to go on from; give the folder of the run that stopped"
        raise UsageError(msg)
    if resume not in (None, "latest") and not is_remote(resume) and not local_path(resume).exists():
        msg = f"--resume {resume}: no such checkpoint or savepoint; give its folder, or `latest`"
        raise UsageError(msg)


def check_new(out: Path) -> None:
    """Check that a folder to write is new or empty.

    Raises: UsageError otherwise.
    """
    if out.exists() and not (out.is_dir() and is_empty(out)):
        msg = f"--out {out}: expected a folder that is new or empty"
        raise UsageError(msg)


def _is_used(out: Path) -> bool:
    """Whether the folder holds anything but what a run leaves that was killed before it had begun."""
    nothing = layout.JOB, layout.LOCK
    return (out / layout.SAVED_JOB).exists() or any(item.name not in nothing for item in out.iterdir())


def _check_event_file(path: Path) -> Path:
    if not path.is_file():
        msg = f"--events {path}: no such file or folder"
        raise UsageError(msg)
    kind = format_of(path)
    if kind is None:
        msg = f"--events {path}: got suffix {path.suffix!r}, expected one of {', '.join(SUFFIXES)}"
        raise UsageError(msg)
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        msg = f"--events {path}: can't be read: {error.strerror}"
        raise UsageError(msg) from None
    if not begins_as(kind, start):
        msg = f"--events {path}: begins with {start!r}, which is no {kind} file; name it after its format"
        raise UsageError(msg)
    return path


def _require_files(option: str, folder: Path, names: tuple[str, ...], hint: str) -> None:
    if not folder.is_dir():
        msg = f"{option} {folder}: no such folder; {hint}"
        raise UsageError(msg)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        msg = f"{option} {folder}: {' and '.join(missing)} missing; {hint}"
        raise UsageError(msg)
