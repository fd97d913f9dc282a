"""Passing of options to the settings of operators and of Flink's job: by name, so that no value is copied by hand.

A field of such a class gets the value of the option (in `RunConfig`) or derived property (of the classes of options)
with its name. The caller adds values that only the run determines, such as paths.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from freshet.job.options.marks import Holds, Options
from freshet.job.options.run_config import RunConfig, that_hold


def told(config: Options, kind: type[Any]) -> dict[str, Any]:
    """The fields of a class that are options or follow from options, with their values.

    One that is None says nothing: the run finds it out, or the class's own default holds.
    """
    values = {name: getattr(config, name) for name in _fields(kind) if is_told(name, type(config))}
    return {name: value for name, value in values.items() if value is not None}


def told_again(config: RunConfig, kind: type[Any]) -> dict[str, Any]:
    """Return the fields that each run of a job sets again: all but those fixed for the job's life."""
    for_life = {name for name, _ in that_hold(Holds.FOR_LIFE)}
    return {name: value for name, value in told(config, kind).items() if name not in for_life}


def is_told(name: str, options: type[Options] = RunConfig) -> bool:
    """Return whether a field of this name gets its value from the options."""
    return name in options.model_fields or isinstance(getattr(options, name, None), property)


def _fields(kind: type[Any]) -> list[str]:
    return list(kind.model_fields) if issubclass(kind, BaseModel) else [field.name for field in fields(kind)]
