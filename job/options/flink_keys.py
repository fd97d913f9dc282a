"""Flink's own options in `flink:` of the --config file and in -D: known ones with values that fit, and none of ours.

`flink_options.json` beside this module has the keys of the installed Flink with their types
(scripts/tools/list_flink_options.py). Flink itself ignores an unknown key, and a value that it can't read ends the job.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from freshet.job.errors import UsageError
from freshet.job.references import has_reference, is_reference, with_variables

KEYS = Path(__file__).with_name("flink_options.json")

_EXACT = "Freshet's results are exact only with the value that it sets"
_ALIGNED = "state relies on aligned barriers, at which all operators stand at the same epoch"
_SIZED = "the run sizes its processes; --memory is for the state backend, JVM_ARGS for Java's own options"
_FOUND = "the run decides where its processes listen"
_RESUME = "--resume names the state to go on from"
_RESTARTS = "write `restarts: N` in the --config file"
_CLUSTER = "--cluster HOST:PORT names the cluster"
# What Freshet sets itself, and the way to what is meant. A name that ends with a dot stands for all that begin so.
OWN = {
    "execution.checkpointing.interval": "give --checkpoint-interval",
    "execution.checkpointing.dir": "give --checkpoint-dir",
    "state.checkpoints.dir": "give --checkpoint-dir",
    "execution.checkpointing.savepoint-dir": "give --savepoint to `freshet stop`",
    "state.savepoints.dir": "give --savepoint to `freshet stop`",
    "execution.checkpointing.storage": "give --checkpoint-dir",
    "state.checkpoint-storage": "give --checkpoint-dir",
    "execution.checkpointing.mode": _EXACT,
    "execution.checkpointing.unaligned": _ALIGNED,
    "execution.checkpointing.unaligned.": _ALIGNED,
    "execution.checkpointing.aligned-checkpoint-timeout": _ALIGNED,
    "execution.checkpointing.max-concurrent-checkpoints": _EXACT,
    "execution.checkpointing.checkpoints-after-tasks-finish": "a job goes on when one of its sources has ended",
    "execution.checkpointing.checkpoints-after-tasks-finish.": "a job goes on when one of its sources has ended",
    "execution.checkpointing.externalized-checkpoint-retention": "a resume needs the checkpoints of a job that ended",
    "execution.checkpointing.num-retained": "the cut log is kept as long as the retained checkpoints, which are two",
    "state.checkpoints.num-retained": "the cut log is kept as long as the retained checkpoints, which are two",
    "execution.checkpointing.file-merging.": "the checksums of checkpoints are those of unmerged files",
    "state.changelog.": "the checksums of checkpoints do not cover the files of the changelog",
    "state.backend.changelog.": "the checksums of checkpoints do not cover the files of the changelog",
    "execution.state-recovery.": _RESUME,
    "execution.savepoint.": _RESUME,
    "execution.savepoint-restore-mode": _RESUME,
    "state.backend": "write `state-backend: rocksdb|hashmap` in the --config file",
    "state.backend.type": "write `state-backend: rocksdb|hashmap` in the --config file",
    "state.backend.rocksdb.timer-service.factory": _EXACT,
    "pipeline.name": "give --name to `freshet run`",
    "pipeline.object-reuse": _EXACT,
    "pipeline.max-parallelism": "parts are divided by it for the job's life; give --parts",
    "pipeline.operator-chaining": "operators share threads as the job is drawn",
    "pipeline.operator-chaining.": "operators share threads as the job is drawn",
    "pipeline.jobvertex-parallelism-overrides": "give --parallelism",
    "parallelism.default": "give --parallelism",
    "jobmanager.scheduler": "a job has the processes of --parallelism, no more and no fewer",
    "scheduler-mode": "a job has the processes of --parallelism, no more and no fewer",
    "execution.runtime-mode": "`freshet run` streams",
    "execution.batch-shuffle-mode": "`freshet run` streams",
    "execution.target": _CLUSTER,
    "restart-strategy": _RESTARTS,
    "restart-strategy.": _RESTARTS,
    "taskmanager.numberOfTaskSlots": "a process has one slot, as it has one interpreter lock; give --parallelism",
    "taskmanager.memory.managed.": "give --memory",
    "taskmanager.memory.process.": _SIZED,
    "taskmanager.memory.flink.": _SIZED,
    "taskmanager.memory.task.": _SIZED,
    "taskmanager.memory.framework.": _SIZED,
    "taskmanager.memory.jvm-": _SIZED,
    "taskmanager.cpu.cores": _SIZED,
    "jobmanager.memory.": _SIZED,
    "python.execution-mode": "operators keep their state in thread mode alone",
    "python.executable": "operators run in the Python of `freshet`",
    "python.client.executable": "operators run in the Python of `freshet`",
    "python.pythonpath": "operators run in the Python of `freshet`",
    "rest.address": _CLUSTER,
    "rest.port": _CLUSTER,
    "rest.bind-port": _FOUND,
    "rest.bind-address": _FOUND,
    "jobmanager.rpc.": _FOUND,
    "jobmanager.bind-host": _FOUND,
    "taskmanager.bind-host": _FOUND,
    "taskmanager.host": _FOUND,
    "taskmanager.resource-id": _FOUND,
    "$internal.": "it is Flink's own",
}
# Keys of plugins, reporters and file systems, whose names are open.
_OPEN = (
    "s3.",
    "s3a.",
    "fs.",
    "presto.",
    "gs.",
    "metrics.reporter.",
    "traces.reporter.",
    "events.reporter.",
    "external-resource.",
    "security.delegation.token.provider.",
    "env.java.opts.",
)
# What a process of Flink reads when it starts: a cluster that runs has its own.
_OF_PROCESSES = (
    *("taskmanager.", "jobmanager.", "resourcemanager.", "cluster.", "heartbeat.", "blob.", "rest.", "web.", "env."),
    *("s3.", "s3a.", "fs.", "presto.", "gs.", "security.", "high-availability", "metrics.", "traces.", "events."),
    *("slotmanager.", "slot.", "io.tmp.dirs", "plugin.", "process.", "kubernetes.", "yarn.", "pekko.", "akka.", "jmx."),
    *("zookeeper.", "job-result-store.", "jobstore.", "external-resource", "historyserver.", "queryable-state."),
)
# By which Flink hides a value on its pages and in its log (GlobalConfiguration.SENSITIVE_KEYS).
_SENSITIVE = (
    *("password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "token"),
    *("basic-auth", "jaas.config", "http-headers"),
)
_DURATION = re.compile(
    r"\d+\s*(d|days?|h|hours?|m|min|minutes?|s|sec|secs|seconds?|ms|millis?|milliseconds?|µs|micros?|microseconds?|"
    r"ns|nanos?|nanoseconds?|)|p.*",
    re.IGNORECASE,
)
_SIZE = re.compile(
    r"\d+\s*(b|bytes|k|kb|kibibytes|m|mb|mebibytes|g|gb|gibibytes|t|tb|tebibytes|)",
    re.IGNORECASE,
)
_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "boolean": (re.compile("true|false", re.IGNORECASE), "true or false"),
    "integer": (re.compile(r"[+-]?\d+"), "a whole number"),
    "number": (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE), "a number"),
    "duration": (_DURATION, "a time such as 30 s or 500 ms"),
    "size": (_SIZE, "a size such as 512 mb"),
}


def read_flink(given: object) -> dict[str, str]:
    """Return the options in a mapping of the file, nested or not, or in a list of KEY=VALUE.

    Raises: ValueError naming the key that can't be set, or whose value does not fit; no message has a value in it that
    may be a secret.
    """
    found: dict[str, str] = {}
    for key, value in _pairs(given):
        if not key or key in found:
            msg = f"{key}: stands there twice; keep one" if key else "got no key before `=`, expected KEY=VALUE"
            raise ValueError(msg)
        found[key] = _checked(key, value)
    return found


def resolve(options: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options with `${NAME}` replaced by what the environment has for it.

    Raises: UsageError naming the option and the variable that is not set; for a value that does not fit.
    """
    env = os.environ if environ is None else environ
    found = {key: with_variables(f"flink: {key}", value, env) for key, value in options.items()}
    for key in found.keys() & {key for key, value in options.items() if has_reference(value)}:
        try:
            _checked(key, found[key])
        except ValueError as error:
            msg = f"flink: {error}"
            raise UsageError(msg) from None
    return found


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that may be written down: no secret but those that are references."""
    return {key: value for key, value in options.items() if not is_secret(key) or is_reference(value)}


def is_secret(key: str) -> bool:
    """Return whether a key is that of a secret, which Flink hides on its pages and in its log."""
    return any(part in key.lower() for part in _SENSITIVE)


def bare_secrets(given: Iterable[str]) -> list[str]:
    """Return the keys of a command line's KEY=VALUE whose secrets stand there, for everybody on the machine to read."""
    pairs = [text.partition("=") for text in given]
    return [key for key, _, value in pairs if is_secret(key) and not is_reference(value)]


def of_processes(keys: Iterable[str]) -> list[str]:
    """Return the keys that Flink's processes read when they start, which a job for a running cluster can't set."""
    return [key for key in keys if key.startswith(_OF_PROCESSES)]


def _pairs(given: object) -> Iterator[tuple[str, Any]]:
    if isinstance(given, Mapping):
        yield from _flat("", given)
        return
    if not isinstance(given, list):
        msg = f"got {type(given).__name__}, expected a mapping such as `s3.endpoint: http://minio:9000`"
        raise ValueError(msg)
    for text in given:
        key, sign, value = str(text).partition("=")
        if not sign:
            msg = f"{key}: got no value, expected KEY=VALUE"
            raise ValueError(msg)
        yield key.strip(), value.strip()


def _flat(begin: str, given: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        name = f"{begin}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value)
        else:
            yield name, value


def _checked(key: str, value: Any) -> str:
    own = next((why for name, why in OWN.items() if key == name or (name[-1] in ".-" and key.startswith(name))), None)
    if own is not None:
        msg = f"{key}: can't be set: {own}"
        raise ValueError(msg)
    kind = _kind_of(key)
    text = _text(key, value)
    if has_reference(text):
        return text
    if isinstance(kind, list):
        if text.upper().replace("-", "_") not in {name.upper() for name in kind}:
            msg = f"{key}: got {_shown(key, text)}, expected {', '.join(kind)}"
            raise ValueError(msg)
    elif kind in _FORMS and not _FORMS[kind][0].fullmatch(text):
        msg = f"{key}: got {_shown(key, text)}, expected {_FORMS[kind][1]}"
        raise ValueError(msg)
    return text


def _kind_of(key: str) -> str | list[str]:
    known = _known()
    if key in known:
        return known[key]
    parent = key.rpartition(".")[0]
    if known.get(parent) == "map" or key.startswith(_OPEN):
        return "text"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    hint = f"did you mean `{near[0]}`?" if near else "see Flink's configuration page"
    msg = f"{key}: not an option of Flink; {hint}"
    raise ValueError(msg)


@lru_cache(maxsize=1)
def _known() -> dict[str, str | list[str]]:
    return dict(json.loads(KEYS.read_text(encoding="utf-8")))


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return ";".join(map(str, value))
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"{key}: got a {type(value).__name__}, expected text or a number"
    raise ValueError(msg)


def _shown(key: str, text: str) -> str:
    return "another value" if is_secret(key) else repr(text)
