"""The options of `freshet run` as keywords, checked as the command checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from freshet.errors import InputError
from freshet.files.whole import write_whole
from freshet.job.commands import run as command
from freshet.job.errors import UsageError
from freshet.job.options.config_file import config_in_environment, load_run_config, read_config_file
from freshet.job.options.flags import keys_of_the_file, of_python
from freshet.job.options.flink_keys import read_flink
from freshet.job.options.run_config import RunConfig
from freshet.job.python.words import CommandWords

_FILE = "job.yaml"
_OWN = "config", "detach"  # are no options of the job here


@lru_cache(maxsize=1)
def command_words() -> CommandWords:
    """Return the options that have flags."""
    return CommandWords("run", command.run, command.COMMAND, of_python)


def keywords() -> list[str]:
    """Return the keywords of `freshet.run`: the flags, and the keys that stand in the --config file alone."""
    return [*command_words().keywords, *(key.replace("-", "_") for key in keys_of_the_file())]


@dataclass(frozen=True)
class PythonOptions:
    """Options of a run as they were given: words of its command line, and what its --config file has.

    `file`: the options that have no flag, and those of Flink, among which there may be secrets; with those of `config`
    where that is a mapping. `path`: the file that `config` names.
    """

    config: RunConfig
    words: tuple[str, ...]
    file: Mapping[str, Any] = field(default_factory=dict, repr=False)
    path: Path | None = None

    def arguments(self, folder: Path) -> list[str]:
        """Return the words of the command line, with a --config file in the folder where one is needed."""
        if not self.file:
            return [*self.words, *([] if self.path is None else [f"--config={self.path}"])]
        path = self.path or (Path(named) if (named := config_in_environment()) else None)
        options = dict(read_config_file(path)) if path is not None else {}
        flink = {key: one for given in (options, self.file) for key, one in _flink(given.get("flink")).items()}
        options |= dict(self.file) | ({"flink": flink} if flink else {})
        write_whole(folder / _FILE, yaml.safe_dump(options).encode(), synced=False)
        return [*self.words, f"--config={folder / _FILE}"]

    def forget(self, folder: Path) -> None:
        """Remove the file that `arguments` has written, once it is read: there may be secrets in it."""
        (folder / _FILE).unlink(missing_ok=True)


def options_of(given: Mapping[str, Any]) -> PythonOptions:
    """Return the options of keywords.

    Raises: UnknownOptionError; UsageError with the sentence of the command, for one that is missing, misspelt or out of
        range.
    """
    found = command_words()
    in_file = [key.replace("-", "_") for key in keys_of_the_file()]
    found.refuse_unknown(given, in_file)
    options = {name.rstrip("_"): value for name, value in given.items() if value is not None}
    config = options.pop("config", None)
    options.pop("detach", None)
    file: dict[str, Any] = dict(_mapping(config, in_file)) if isinstance(config, Mapping) else {}
    own = {name: options.pop(name) for name in [*options] if name in in_file or _is_for_file(name, options[name])}
    own = {name: value if name == "flink" else of_python(name, value) for name, value in own.items()}
    words = found.words(options)
    parsed = {name.rstrip("_"): value for name, value in found.parse(words).items() if value not in (None, [])}
    path = None if config is None or isinstance(config, Mapping) else Path(config)
    try:
        checked = load_run_config({**file, **parsed, **own}, path)
    except UsageError as error:
        error.named = error.option or _key_in(str(error), in_file)
        raise
    return PythonOptions(checked, tuple(words), file | own, path)


def _mapping(config: Mapping[str, Any], in_file: list[str]) -> Mapping[str, Any]:
    """The options of a mapping in place of a file, written as in one."""
    named = {str(name).replace("-", "_"): value for name, value in config.items() if value is not None}
    flags = [name.rstrip("_") for name in command_words().keywords if name not in _OWN]
    command_words().refuse_unknown({name: None for name in named if name not in (*flags, *in_file)})
    return {name: value if name == "flink" else _plain(of_python(name, value)) for name, value in named.items()}


def _is_for_file(name: str, value: Any) -> bool:
    """Return whether the value of an option with a flag stands better in the file: mappings, and Flink's options."""
    some = value if isinstance(value, list | tuple) else [value]
    return name == "flink" or any(isinstance(one, Mapping) for one in some)


def _plain(value: Any) -> Any:
    """Return a value in a type of YAML."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _flink(given: Any) -> dict[str, str]:
    try:
        return dict(read_flink(given or {}))
    except ValueError as error:
        msg = f"-D: {error}"
        raise InputError(msg) from None


def _key_in(text: str, keys: list[str]) -> str | None:
    """The key of the file that a message begins with."""
    return next((key for key in keys if text.startswith(f"{key.replace('_', '-')}:")), None)
