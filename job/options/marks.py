"""Marks of options, given in their classes: the kind of value, the panel in help, and how long it applies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from freshet.job.units import counts, milliseconds_or_off, seconds, seconds_or_off, share_or_off, size_in_bytes


def number(value: object) -> object:
    """A value as it is, but for what YAML makes of `yes`, and pydantic would make 1 of."""
    if isinstance(value, bool):
        msg = f"got {value}, expected a number"
        raise ValueError(msg)
    return value


Count = Annotated[int, BeforeValidator(number)]
Ratio = Annotated[float, BeforeValidator(number)]
Duration = Annotated[float, BeforeValidator(seconds)]  # in seconds, from text such as 10s
DurationOrOff = Annotated[float | None, BeforeValidator(seconds_or_off)]  # 0 for `off`, None where not given
MillisecondsOrOff = Annotated[int | None, BeforeValidator(milliseconds_or_off)]  # 0 for `off`, None where not given
ShareOrOff = Annotated[float | None, BeforeValidator(share_or_off)]  # from 0 to 1, from text such as 5%
Counts = Annotated[tuple[int, ...], BeforeValidator(counts)]  # from text such as 1,2,4
Size = Annotated[int, BeforeValidator(size_in_bytes)]  # in bytes, from text such as 2GiB

IO, RUNTIME, EPOCHS, FAULTS = "Input and output", "Runtime", "Epochs and parts", "Fault tolerance"
KAFKA = "Embeddings to Kafka"
FILE = ""  # a key of the --config file, without a flag


class Holds(Enum):
    """Lifetime of an option: a resume uses a kept value if no other is given."""

    THIS_RUN = "this run"
    KEPT = "until another value is given"
    FOR_LIFE = "for the job's life"


@dataclass(frozen=True, slots=True)
class Option:
    """The mark of a field that is an option of `freshet run`.

    `panel` is the heading in help, or FILE. `flag` is how the flag is written where that does not follow from the name.
    `is_place`: a path or URI, kept as one that holds from any folder.
    """

    panel: str
    holds: Holds = Holds.THIS_RUN
    flag: str = ""
    is_place: bool = False

    def flag_of(self, name: str) -> str:
        """Return how people write the flag, without a second form of it."""
        return flag_of(name) if "/" in self.flag else self.flag or flag_of(name)


def flag_of(name: str) -> str:
    """Return the flag of an option, from its name in the --config file."""
    return "--" + name.replace("_", "-")


class Options(BaseModel):
    """A group of options; every field has its mark."""

    model_config = ConfigDict(extra="forbid", frozen=True)
