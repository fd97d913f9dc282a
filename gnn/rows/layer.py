"""Fields of every layer's entry in model.json."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Shape = tuple[int, ...]
Width = Annotated[int, Field(ge=1)]


class Layer(BaseModel):
    """Base of all layer declarations: data only, as model.json holds it; weights are kept beside it by name.

    Shapes: rows (n, width) float32 in and out, of one width where the layer says nothing else; weights float32.
    Raises: ValueError for an unknown option, or a value that is not allowed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @property
    def in_width(self) -> int | None:
        """Width of the rows it reads, None if any."""
        return None

    @property
    def out_width(self) -> int | None:
        """Width of the rows it makes, None if the same as it reads."""
        return None

    @property
    def is_approximate(self) -> bool:
        """True if it replaces a layer that reads the whole graph, by constants from the time of the export."""
        return False

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {}

    @property
    def multiplications(self) -> int:
        """Number of matrix entries: each multiplies a row once."""
        return sum(math.prod(shape) for shape in self.tensors().values() if len(shape) == 2)


class ByChannel(Layer):
    """Base of those that have weights for each channel of a row."""

    channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.channels


class ScaleAndShift(ByChannel):
    """Base of x * scale + shift, channel by channel."""

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"scale": (self.channels,), "shift": (self.channels,)}
