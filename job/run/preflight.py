"""Looks at the files and folders of a run before anything is started, so that wrong use fails in a second."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from freshet.extras import need
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.lock import is_empty
from freshet.job.folder.run_file import read_run
from freshet.job.kafka.address import is_kafka
from freshet.job.kafka.client import ClientProperties
from freshet.job.options.flink_keys import resolve
from freshet.job.options.run_config import RunConfig
from freshet.job.options.runtime_options import NEWEST
from freshet.job.run.memory_check import check_memory
from freshet.job.uris import is_remote, local_path
from freshet.operators.parser.event_files import EventFileError, list_files

_ANSWER_S = 5.0  # for an answer of Flink


def check_run(config: RunConfig) -> None:
    """Check that the run can start: model, snapshot and events are there.

    Raises: UsageError naming the option, what was found and what to do; MissingExtraError.
    """
    resolve(config.flink)
    check_model(config.model)
    if config.snapshot is not None and not (config.resume and (config.out / layout.IMAGE_DONE).exists()):
        check_snapshot(config.snapshot)
    event_files(config.events, topics=True)
    if config.registry is not None:
        check_registry(config.registry, config.client_properties)
    if config.flight_port is not None:
        need("serve", "--flight-port")
    if config.runtime == "local" and config.memory_bytes is not None:
        check_memory(config.memory_bytes, config.out.absolute())


def check_services(config: RunConfig) -> None:
    """Check that the cluster and the brokers answer, that buckets exist, and that Flink's plugins can be had.

    Raises: UsageError naming the option; JobFailed for a cluster or a broker that does not answer, or a missing jar.
    """
    from freshet.job.flink.rest import await_answer  # with libraries that take a while
    from freshet.job.kafka.brokers import await_brokers
    from freshet.job.stores.object_store import refuse_missing_buckets
    from freshet.job.stores.plugins import wanted_plugins

    await_answer(config.cluster, by_tokens=config.logs_in_by_tokens)
    await_brokers(config.topics, config.client_properties)
    if read := [address for option, address in config.topics if option == "--events"]:
        from freshet.job.kafka.make_topics import tell_compaction

        for address in read:
            tell_compaction(address, config.client_properties, say)
    if config.runtime == "flink":
        flink = resolve(config.flink)
        refuse_missing_buckets({"--checkpoint-dir": config.checkpoint_dir, "--resume": config.resume}, flink)
        if config.cluster is None:
            wanted_plugins(flink, [config.checkpoint_dir, config.resume])


def check_application(config: RunConfig) -> None:
    """Check that a run may be a Flink application.

    Raises: UsageError otherwise.
    """
    if config.runtime != "flink":
        msg = f"--runtime {config.runtime}: an application runs on Flink; leave it out"
        raise UsageError(msg)
    for flag, given in (("--detach", config.detach), ("--flight-port", config.flight_port is not None)):
        if given:
            msg = f"{flag}: an application has no client that it could leave or serve from; leave it out"
            raise UsageError(msg)
    if config.cluster is None:
        msg = "--cluster: missing; give the address of the JobManager's REST interface, as others reach it"
        raise UsageError(msg)


def check_registry(url: str, properties: ClientProperties) -> None:
    """Check that a schema registry answers.

    Raises: InputError otherwise.
    """
    from freshet.operators.parser.registry.schema_registry import SchemaRegistry

    SchemaRegistry(url, properties.registry_login()).check()


def event_files(events: Iterable[str], topics: bool = False) -> list[Path]:
    """Return the event files in order; a folder stands for its files in the order of their names.

    Files in a folder that begin with `.` or `_` are unfinished and left out. So are Kafka topics, which are refused if
    the command accepts no `topics`.
    Raises: UsageError for a path that is missing, has no event files, has another format, or can be read only once.
    """
    paths = []
    for given in events:
        if not is_kafka(given):
            paths.append(given)
        elif not topics:  # else the brokers are asked when the run begins
            msg = f"--events {given}: this command reads files only"
            raise UsageError(msg)
    try:
        return [Path(file.name) for file in list_files(paths)]
    except EventFileError as error:
        msg = f"--events {error}"
        raise UsageError(msg) from None


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


def begins(out: Path) -> bool:
    """Return whether `--resume auto` begins a job in a folder, whose lock this process holds, or goes on with one."""
    if not (out / layout.SAVED_JOB).exists():
        return True
    from freshet.job.folder.leftovers import what_is_in  # with libraries that take a while
    from freshet.job.lifecycle.job_state import state_of

    if what_is_in(out) is not None:
        return False
    state = state_of(out, _ANSWER_S, has_lock=True)
    return state.worker is None and not state.is_guess  # else a cluster has the job, or may have it


def check_out(out: Path, resume: str | None) -> None:
    """Check that the output folder, which is there, is free for a new job, or holds something to resume.

    Raises: UsageError otherwise.
    """
    if resume is None:
        from freshet.job.folder.leftovers import what_is_in  # with libraries that take a while
        from freshet.job.lifecycle.job_state import state_of

        if (found := what_is_in(out)) is not None:
            resumed = ", or --resume latest to go on with the run that is in it"
            has_run = any((out / name).exists() for name in (layout.SAVED_JOB, layout.RUN))
            msg = f"--out {out}: not empty: {found}; give a new folder{resumed if has_run else ''}"
            raise UsageError(msg)
        run = read_run(out)
        if run and (worker := state_of(out, has_lock=True).worker) is not None:  # a cluster, where its process has gone
            msg = f"--out {out}: {worker} is still working on it; give a new folder, or end it: freshet stop {out}"
            raise UsageError(msg)
    elif not _is_used(out):
        msg = f"--resume {resume}: nothing in --out {out} to go on from; give the folder of the run that stopped"
        raise UsageError(msg)
    if resume is not None and resume not in NEWEST and not is_remote(resume) and not local_path(resume).exists():
        msg = f"--resume {resume}: no such checkpoint or savepoint; give its folder, or `latest`"
        raise UsageError(msg)


def check_new(out: Path, hint: str = "") -> None:
    """Check that a folder to write is new or empty; `hint` ends what is said of one that is not.

    Raises: UsageError otherwise.
    """
    if out.exists() and not (out.is_dir() and is_empty(out)):
        msg = f"--out {out}: expected a folder that is new or empty{hint}"
        raise UsageError(msg)


def _is_used(out: Path) -> bool:
    """Return whether the folder has anything but the files of a run that was killed before it had begun."""
    nothing = layout.JOB, layout.LOCK
    return (out / layout.SAVED_JOB).exists() or any(item.name not in nothing for item in out.iterdir())


def _require_files(option: str, folder: Path, names: tuple[str, ...], hint: str) -> None:
    if not folder.is_dir():
        msg = f"{option} {folder}: no such folder; {hint}"
        raise UsageError(msg)
    missing = [name for name in names if not (folder / name).is_file()]
    if parted := [name for name in missing if (folder / name).is_dir()]:
        path = folder / parted[0]
        msg = (
            f"{option} {path}: a folder of parts, as Spark writes a table; expected one file: write it by "
            "coalesce(1) and take the part out of its folder, or put the parts together by pyarrow.parquet: "
            f"write_table(read_table({str(path)!r}), ...)"
        )
        raise UsageError(msg)
    if missing:
        msg = f"{option} {folder}: {' and '.join(missing)} missing; {hint}"
        raise UsageError(msg)
