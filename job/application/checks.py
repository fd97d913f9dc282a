"""Checks of `freshet spec`, on a machine that may have neither the files of a run nor its cluster."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from freshet.job.application.manifest import DATA, OPTIONS, in_plain_text
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.kafka.address import is_kafka
from freshet.job.options.run_config import RunConfig
from freshet.job.run.preflight import check_application, check_model, check_snapshot, event_files
from freshet.job.uris import is_remote


def check(config: RunConfig) -> None:
    """Check the options of an application, and its files where they are on this machine.

    Raises: UsageError naming the option, what was found and what to do.
    """
    check_application(config)
    if plain := in_plain_text(config.kafka):
        msg = f"kafka: {plain[0]}: a secret, which a ConfigMap would show; write ${{NAME}}, and give NAME in a Secret"
        raise UsageError(msg)
    if config.resume not in (None, "auto"):
        msg = f"--resume {config.resume}: an application begins in a new folder, and else goes on; leave it out"
        raise UsageError(msg)
    files = [one for one in config.events if not is_kafka(one)]
    _check_place("--model", config.model)
    _check_place("--out", config.out)
    _check_place("--snapshot", config.snapshot)
    for one in files:
        _check_place("--events", one)
    away = [flag for flag, path in (("--model", config.model), ("--snapshot", config.snapshot)) if _is_away(path)]
    if not _is_away(config.model):
        check_model(config.model)
    if config.snapshot is not None and not _is_away(config.snapshot):
        check_snapshot(config.snapshot)
    here = [one for one in files if Path(one).exists()]
    event_files(here)
    away += ["--events"] if len(here) < len(files) else []
    if away:
        say(f"not on this machine, so not checked: {', '.join(away)}; the JobManager checks them ({OPTIONS})")


def _check_place(flag: str, given: Path | str | None) -> None:
    if given is None or is_remote(str(given)):
        return
    path = PurePosixPath(os.path.normpath(given))
    if not path.is_absolute() or PurePosixPath(DATA) not in path.parents:
        msg = f"{flag} {given}: expected a path below {DATA}, where the pods have their volume"
        raise UsageError(msg)


def _is_away(path: Path | None) -> bool:
    return path is not None and not path.exists()
