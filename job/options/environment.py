"""Options of `freshet run` in the environment: FRESHET_RUN_PARTS=4 is --parts 4."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin

import yaml

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.options.run_config import nearest_option, option_fields

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
