"""The --config file and the environment: options in YAML, and as FRESHET_RUN_PARTS=4 for --parts 4.

A flag wins over both. The file also has the client properties for Kafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import ValidationError

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.kafka.client import ClientProperties
from freshet.job.options.flink_keys import read_flink
from freshet.job.options.input_options import GraphOptions, InputOptions
from freshet.job.options.marks import FILE, Options, flag_of
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import RunConfig, nearest_option, option_fields, option_names

PREFIX = "FRESHET_RUN_"
CONFIG = f"{PREFIX}CONFIG"  # --config is no option of the file itself
# What Kubernetes sets in each pod for a Service whose name begins with freshet-run: ends of names, and their values.
_LINK = re.compile(
    r"(?P<host>SERVICE_HOST|PORT_\d+_(TCP|UDP|SCTP)_ADDR)|(?P<port>SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_PORT)|"
    r"(?P<proto>PORT_\d+_(TCP|UDP|SCTP)_PROTO)|(?P<url>PORT(_\d+_(TCP|UDP|SCTP))?)"
)
_LINKED = {
    "host": re.compile(r"[\d.]+|[\da-f:.]*:[\da-f:.]*", re.IGNORECASE),
    "port": re.compile(r"\d{1,5}"),
    "proto": re.compile(r"tcp|udp|sctp"),
    "url": re.compile(r"(tcp|udp|sctp)://.+:\d{1,5}"),
}


def variable_of(name: str) -> str:
    """Return the variable of an option, from its name in the --config file."""
    return PREFIX + name.upper()


def read_environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the options in the environment, by their names in the --config file; empty values are not given.

    A value is written as after the flag. Lists and mappings may be written as in the --config file. Variables by which
    Kubernetes tells of a Service are passed over, which a line says.
    Raises: UsageError for a variable with the prefix that is no option's, and for a value that is no YAML.
    """
    known = {variable_of(name): name for name in option_fields()}
    given = {key: text for key, text in environ.items() if key.startswith(PREFIX) and key != CONFIG}
    if links := sorted(key for key, text in given.items() if _is_link(key, text)):
        _say_once(
            f"{', '.join(links)}: set by Kubernetes for a Service, no options; passed over (enableServiceLinks: false "
            "in the pod keeps them away)"
        )
        given = {key: text for key, text in given.items() if key not in links}
    for key in given.keys() - known.keys():
        near = nearest_option(key.removeprefix(PREFIX).lower())
        hint = f"did you mean {variable_of(near)}?" if near else "see `freshet run --help`, and unset it"
        msg = f"{key}: no option of `freshet run` has this name; {hint}"
        raise UsageError(msg)
    return {known[key]: _value(key, known[key], text) for key, text in given.items() if text}


def config_in_environment(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the --config file that the environment names."""
    return environ.get(CONFIG) or None


def _is_link(key: str, text: str) -> bool:
    """Return whether a variable is one of a Service, by its name and by its value."""
    words = key.removeprefix(PREFIX).split("_")
    found = (_LINK.fullmatch("_".join(words[k:])) for k in range(len(words)))
    return any(one is not None and _LINKED[str(one.lastgroup)].fullmatch(text) for one in found)


@lru_cache(maxsize=16)
def _say_once(text: str) -> None:
    say(text, "warning")


def _value(key: str, name: str, text: str) -> Any:
    kind = get_origin(option_fields()[name][0].annotation)
    kinds = {kind, *map(get_origin, get_args(option_fields()[name][0].annotation))}
    if not (kinds & {list, dict} and text.lstrip()[:1] in ("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:  # whose message repeats the value, and there may be a password in it
        msg = f"{key}: can't be read as YAML; write it as in the --config file, on one line"
        raise UsageError(msg) from None


_Kind = TypeVar("_Kind", bound=Options)


def load_run_config(flags: Mapping[str, Any], config_file: Path | None = None) -> RunConfig:
    """Return the configuration of a run: flags win over the environment, it over the file, the file over the defaults.

    Raises: UsageError with a line for each option that is unknown, missing, misspelt or out of range.
    """
    config_file = _named_file(config_file)
    written = read_config_file(config_file) if config_file else {}
    return _validated(RunConfig, written, flags, config_file, read_environment())


def options_given(flags: Mapping[str, Any], config_file: Path | None = None) -> dict[str, Any]:
    """Return the options that are given anywhere, as they were written."""
    config_file = _named_file(config_file)
    return {**(read_config_file(config_file) if config_file else {}), **read_environment(), **flags}


def _named_file(config_file: Path | None) -> Path | None:
    named = config_in_environment()
    return Path(named) if config_file is None and named is not None else config_file


def _validated(
    kind: type[_Kind],
    written: Mapping[str, Any],
    flags: Mapping[str, Any],
    config_file: Path | None,
    environment: Mapping[str, Any] = MappingProxyType({}),
) -> _Kind:
    try:
        return kind.model_validate({**written, **environment, **flags, **_flink_of(written, environment, flags)})
    except ValidationError as error:
        where = dict.fromkeys(written, f"{config_file}: ")
        where |= {name: f"{variable_of(name)}: " for name in environment} | dict.fromkeys(flags, "")
        lines = [_explain(dict(problem), where.get(_key(problem), "")) for problem in error.errors()]
        raise UsageError("\n".join(lines)) from None


def _flink_of(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return Flink's options of several sources, key by key, of which the last one wins; nothing where one has any."""
    given = [one["flink"] for one in sources if one.get("flink")]
    if len(given) < 2:
        return {}
    try:
        return {"flink": {key: value for one in given for key, value in read_flink(one).items()}}
    except ValueError as error:
        msg = f"flink: {error}"
        raise UsageError(msg) from None


def read_config_file(path: Path) -> dict[str, Any]:
    """Return the options in a YAML file, by the names with underscores (dashes in keys are taken too).

    Raises: UsageError when it cannot be read, is no mapping, or has a key that is no option.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"--config {path}: can't be read: {' '.join(str(error).split())}"
        raise UsageError(msg) from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        msg = f"--config {path}: got {type(content).__name__}, expected a mapping such as `epoch-events: 1000`"
        raise UsageError(msg)
    known = option_names()
    options: dict[str, Any] = {}
    for written, value in content.items():
        key = written.replace("-", "_")
        if key not in known:
            near = nearest_option(key)
            hint = f"did you mean `{near.replace('_', '-')}`?" if near else "see `freshet run --help`"
            msg = f"--config {path}: unknown key `{written}`; {hint}"
            raise UsageError(msg)
        if key in options:
            msg = f"--config {path}: `{written}` stands there twice, with a dash and with an underscore; keep one"
            raise UsageError(msg)
        options[key] = value
    return options


def load_inputs(flags: Mapping[str, Any], config_file: Path | None = None) -> InputOptions:
    """Return what a run reads and writes: what `flags` hold wins over the file, whose other keys are not looked at.

    Raises: UsageError as `load_run_config`.
    """
    return _some(InputOptions, list(flags), flags, config_file)


def load_partitioning(flags: Mapping[str, Any], config_file: Path | None = None) -> PartitioningOptions:
    """Return how a run divides its graph: what `flags` hold wins over the file, whose other keys are not looked at.

    Raises: UsageError as `load_run_config`.
    """
    return _some(PartitioningOptions, _names(PartitioningOptions), flags, config_file)


def load_direction(undirected: bool | None, config_file: Path | None = None) -> bool | None:
    """Return whether a run mirrors its edges; None where neither the flag nor the file says it.

    Raises: UsageError as `load_run_config`.
    """
    found = _some(GraphOptions, ["undirected"], {"undirected": undirected}, config_file)
    return found.undirected if found.model_fields_set else None


def load_flink(config: Path | None, flags: Sequence[str] = ()) -> dict[str, str]:
    """Return Flink's own options of a --config file, whose other keys are not looked at, and of -D, which win.

    Raises: UsageError for a file or an option that can't be taken.
    """
    where = f"--config {config}: flink"
    try:
        written = {} if config is None else read_flink(read_config_file(config).get("flink") or {})
        where = "-D"
        return written | read_flink(list(flags))
    except ValueError as error:
        msg = f"{where}: {error}"
        raise UsageError(msg) from None


def load_properties(config: Path | None) -> ClientProperties:
    """Return the `kafka:` mapping of a --config file; its other keys are those of `freshet run` and not looked at.

    Raises: UsageError for a file or a property that can't be taken.
    """
    if config is None:
        return ClientProperties()
    found = read_config_file(config).get("kafka") or {}
    if not isinstance(found, Mapping):
        msg = f"--config {config}: kafka: expected a mapping of client properties, got {type(found).__name__}"
        raise UsageError(msg)
    return ClientProperties(found)


def _some(kind: type[_Kind], names: list[str], flags: Mapping[str, Any], config_file: Path | None) -> _Kind:
    written = read_config_file(config_file) if config_file else {}
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    return _validated(kind, {name: written[name] for name in names if name in written}, given, config_file)


def _names(kind: type[Options]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def _key(problem: Mapping[str, Any]) -> str:
    return str(problem["loc"][0]) if problem["loc"] else ""


def _named(key: str) -> str:
    """A key of the file as people write the option: as a flag where there is one."""
    found = option_fields().get(key)
    if found is None:
        return flag_of(key)
    return key.replace("_", "-") if found[1].panel == FILE else found[1].flag_of(key)


def _explain(problem: Mapping[str, Any], where: str) -> str:
    """Word one of pydantic's problems: the option, what it got, what was expected."""
    key, text = _key(problem), str(problem["msg"])
    if problem["type"] == "missing":
        return f"{flag_of(key)}: missing; give the flag, or `{key.replace('_', '-')}:` in the --config file"
    if problem["type"] == "extra_forbidden":
        return f"{where}{flag_of(key)}: unknown option; see `freshet run --help`"
    if problem["type"] == "value_error":
        own = text.removeprefix("Value error, ")
        return f"{where}{_named(key)}: {own}" if key else own
    return f"{where}{_named(key)}: got {problem['input']!r}, expected {text.removeprefix('Input should be ')}"
