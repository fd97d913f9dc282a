"""What the options tell the classes of operators and of Flink's job: by name, so that no value is copied by hand.

A field of such a class that has the name of an option (as `RunConfig` has it) or of a figure that follows from options
(a property of their classes) gets its value. What only the run finds out, such as paths, its author adds.
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
    """Those of them that each run of a job tells anew: all but what the job has for its life."""
    for_life = {name for name, _ in that_hold(Holds.FOR_LIFE)}
    return {name: value for name, value in told(config, kind).items() if name not in for_life}


def is_told(name: str, options: type[Options] = RunConfig) -> bool:
    """Whether a field of this name gets its value from the options."""
    return name in options.model_fields or isinstance(getattr(options, name, None), property)


def _fields(kind: type[Any]) -> list[str]:
    return list(kind.model_fields) if issubclass(kind, BaseModel) else [field.name for field in fields(kind)]
