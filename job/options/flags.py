"""The flags of `freshet run`, drawn from the classes of its options: name, type, help and default come from there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from freshet.job.options.layers import LAYERS_METAVAR
from freshet.job.options.marks import FILE, Option, flag_of
from freshet.job.options.run_config import option_fields
from freshet.job.units import (
    OFF,
    counts,
    format_counts,
    format_duration,
    format_duration_or_off,
    format_milliseconds_or_off,
    format_share_or_off,
    format_size,
    milliseconds_or_off,
    seconds,
    seconds_or_off,
    share_or_off,
    size_in_bytes,
)

_SHOWN: dict[Callable[..., Any], Callable[[Any], str]] = {
    seconds: format_duration,
    seconds_or_off: format_duration_or_off,
    milliseconds_or_off: format_milliseconds_or_off,
    share_or_off: format_share_or_off,
    size_in_bytes: format_size,
    counts: format_counts,
}


def parameters() -> list[Parameter]:
    """The parameters of the command.

    The default of each is None, "not given", so that the --config file can win over the default of the option.
    """
    flags = {
        name: Annotated[_type_of(field) | None, _flag(name, field, mark)]
        for name, (field, mark) in option_fields().items()
        if mark.panel != FILE
    }
    return [parameter(name, annotation) for name, annotation in flags.items()]


def parameter(name: str, annotation: Any) -> Parameter:
    """A parameter that is None where its flag is not given."""
    spelled = f"{name}_" if iskeyword(name) else name
    return Parameter(spelled, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(name: str, field: FieldInfo, mark: Option) -> Any:
    flag = mark.flag or (f"{flag_of(name)}/--no-{flag_of(name)[2:]}" if field.annotation is bool else flag_of(name))
    metavar = {"events": "PATH", "events_map": "MAP", "flink": "KEY=VALUE", "layers": LAYERS_METAVAR}.get(name)
    return typer.Option(flag, help=help_of(field), rich_help_panel=mark.panel, show_default=False, metavar=metavar)


def help_of(field: FieldInfo) -> str:
    """Return the help of an option, with its default."""
    text, default = f"{field.description}", field.default
    if field.is_required() or default is None or default is PydanticUndefined or isinstance(default, bool):
        return text
    shown = _SHOWN.get(_unit_of(field), str)(default)
    return f"{text.removesuffix('.')} (default: {shown})."


def in_words(name: str, value: Any) -> Any:
    """Return the value of an option, by its name in the --config file, as people write it there."""
    if isinstance(value, tuple | list):
        value = [*value]
    shown = _SHOWN.get(_unit_of(option_fields()[name][0]))
    return value if shown is None else shown(value)


def of_python(name: str, value: Any) -> Any:
    """Return a value from Python as people write it after the flag of an option, named as in the --config file.

    Numbers of options with a unit are seconds, bytes or shares, a timedelta is a duration, and False is `off`.
    """
    unit = _unit_of(option_fields()[name][0])
    if isinstance(value, timedelta):
        value, unit = value.total_seconds(), unit or seconds
    if isinstance(value, bool) and unit is not None:
        return f"{value}".lower() if value else OFF
    if isinstance(value, str) or unit is None:
        return value
    return _SHOWN[unit](round(value * 1000) if unit is milliseconds_or_off else value)


def keys_of_the_file() -> dict[str, FieldInfo]:
    """The options that have no flag, by their keys in the --config file."""
    return {name.replace("_", "-"): field for name, (field, mark) in option_fields().items() if mark.panel == FILE}


def _type_of(field: FieldInfo) -> Any:
    """Return the type of a flag's value; str for values with a unit and for single choices, which stay as written."""
    kind = field.annotation
    if NoneType in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(kind) is dict:
        return list[str]
    if get_origin(kind) is UnionType:  # a map, or several: as YAML
        return str
    only_one = get_origin(kind) is Literal and len(get_args(kind)) == 1
    return str if only_one or _unit_of(field) is not None else kind


def _unit_of(field: FieldInfo) -> Any:
    """Return the parser of values with a unit; None for options without one."""
    metadata = [
        *field.metadata,
        *(one for kind in get_args(field.annotation) for one in getattr(kind, "__metadata__", ())),
    ]
    return next((one.func for one in metadata if isinstance(one, BeforeValidator) and one.func in _SHOWN), None)
