"""Fields of every conv's entry in model.json."""

from __future__ import annotations

from typing import Literal

from freshet.gnn.rows.layer import Layer, Width


class Conv(Layer):
    """Base of the layers that read neighbours."""

    in_channels: Width
    out_channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels


Aggregator = Literal["sum", "mean", "max", "min", "std", "var"]


def check_same_width(conv: Conv) -> None:
    """Refuse another width behind a conv that cannot change it.

    Raises: ValueError
    """
    if conv.out_channels != conv.in_channels:
        kind = type(conv).model_fields["type"].default
        msg = f"{kind}: out_channels {conv.out_channels} differs from in_channels {conv.in_channels}"
        raise ValueError(msg)
