"""Keywords of a function as the words of the command that it stands for: the command's own options are all there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

import typer

from freshet.job.errors import UsageError
from freshet.job.python.errors import UnknownOptionError
from freshet.job.units import format_duration, format_size

Value = Callable[[str, Any], Any]  # a value as people write it, by the name of its option


class CommandWords:
    """The options of a command, as keywords."""

    def __init__(self, name: str, function: Callable[..., Any], kind: Any = None, value: Value | None = None) -> None:
        """`kind`: the class of the command; `value`: writes values that have units."""
        app = typer.Typer(add_completion=False)
        app.command(name, cls=kind)(function)
        self.name, self._value = name, value or _by_its_type
        self._command: Any = typer.main.get_command(app)
        self._options = {str(one.name).rstrip("_"): one for one in self._command.params}

    @property
    def keywords(self) -> list[str]:
        """The names of the options."""
        return [str(one.name) for one in self._command.params]

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """Return options as words; None stands for one that is not given.

        Raises: UsageError for a flag that is neither True nor False.
        """
        words: list[str] = []
        for name, value in given.items():
            if value is not None:
                words += self._words_of(self._options[name.rstrip("_")], value)
        return words

    def _words_of(self, option: Any, value: Any) -> list[str]:
        flag, name = option.opts[0], option.name.rstrip("_")
        if option.is_flag:
            if not isinstance(value, bool):
                msg = f"{flag}: got {value!r}, expected True or False"
                raise UsageError(msg)
            return [flag] if value else list(option.secondary_opts[:1])
        if not option.multiple:
            text = _text(self._value(name, value))
            return [f"{flag}={text}"] if flag.startswith("--") else [flag, text]
        values = [f"{key}={_text(one)}" for key, one in value.items()] if isinstance(value, Mapping) else value
        values = [values] if isinstance(values, str | os.PathLike) else list(values)
        return [word for one in values for word in (flag, _text(one))]

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Return what the command gets, by the names of the keywords.

        Raises: UsageError with the sentence of the command line.
        """
        try:
            context = self._command.make_context(self.name, list(words))
        except Exception as error:
            if not hasattr(error, "format_message"):  # of the parser that typer has inside
                raise
            wrong = UsageError(error.format_message())
            wrong.named = next(iter(getattr(getattr(error, "param", None), "opts", ())), None)
            raise wrong from None
        return {name: list(one) if isinstance(one, tuple) else one for name, one in context.params.items()}

    def refuse_unknown(self, given: Mapping[str, Any], also: Sequence[str] = ()) -> None:
        """Check that all keywords are options; `also`: others that the function has.

        Raises: UnknownOptionError with the nearest names.
        """
        known = [*self._options, *also]
        for name in given:
            if name.rstrip("_") not in known:
                near = get_close_matches(name.replace("-", "_"), known, n=3, cutoff=0.6)
                hint = f"did you mean {' or '.join(near)}?" if near else f"see `freshet {self.name} --help`"
                error = UnknownOptionError(f"{name}: no option of `freshet {self.name}` has this name; {hint}")
                error.named = name
                raise error


def _by_its_type(name: str, value: Any) -> Any:
    """Write durations, and bytes of memory."""
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    return format_size(value) if name == "memory" and isinstance(value, int) else value


def _text(value: Any) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
