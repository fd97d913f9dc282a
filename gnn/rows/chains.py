"""Widths and weights of layers in a row."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.rows.layer import Layer, Shape


def chain_width(layers: Sequence[Layer], width: int, where: str) -> int:
    """Return the width that a chain makes of rows of the given width.

    Raises: ValueError naming the first layer that does not fit.
    """
    return chain_widths(layers, width, where)[-1] if layers else width


def chain_widths(layers: Sequence[Layer], width: int, where: str, kept: dict[str, int] | None = None) -> list[int]:
    """Return the width of the rows behind each layer of a chain that reads rows of the given width.

    `kept`: the widths of rows that were kept before, to which those are added that the chain keeps.
    Raises: ValueError naming the first layer that does not fit.
    """
    kept = {} if kept is None else kept
    widths = []
    for i, layer in enumerate(layers):
        if layer.in_width is not None and layer.in_width != width:
            msg = f"{where}.{i} ({layer.type}) reads rows of width {layer.in_width}, got {width}"  # type: ignore[attr-defined]
            raise ValueError(msg)
        if isinstance(layer, Keep):
            kept[layer.name] = width
        elif isinstance(layer, Join):
            try:
                width = layer.width_of({**kept, CURRENT: width})
            except ValueError as error:
                msg = f"{where}.{i} (join): {error}"
                raise ValueError(msg) from None
        else:
            width = layer.out_width or width
        widths.append(width)
    return widths


def chain_tensors(layers: Sequence[Layer], prefix: str) -> dict[str, Shape]:
    """Return names and shapes of the weights of a chain, as `prefix.index.name`."""
    return {f"{prefix}.{i}.{name}": shape for i, layer in enumerate(layers) for name, shape in layer.tensors().items()}
