"""A conv across which rows of earlier layers are carried: residuals, jumping knowledge, APPNP, TAGConv and others.

The row between two layers is [x_l | carried columns]. A master's own task gets the carried columns beside the conv's
self input; replicas get only the message, so that carrying sends nothing more to other parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.declarations import AnyLayer, Conv, Identity, Layer
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.segment import Segment
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.rows.jumps import CURRENT, Join, Keep


class Layout(NamedTuple):
    """Columns of a row made of rows of several layers: first the last layer's, if present, then the kept ones.

    `columns` is the place of each name, begin and end; two names share a place where their rows are the same.
    """

    width: int
    columns: dict[str, tuple[int, int]]

    def split(self, rows: Rows) -> dict[str, Rows]:
        """Return the rows of each name, C-contiguous."""
        return {name: np.ascontiguousarray(rows[:, begin:end]) for name, (begin, end) in self.columns.items()}

    def join(self, named: Mapping[str, Rows]) -> Rows:
        """Return the rows of all names side by side; where there is one place alone, its rows as they are."""
        places = {place: name for name, place in reversed(self.columns.items())}
        parts = [named[places[place]] for place in sorted(places)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Carry(NamedTuple):
    """The rows that a conv reads, those that go to the own task beside its self input, and those that it makes."""

    into: Layout
    across: Layout
    out: Layout


class CarryingPlan(LayerPlan):
    """A conv's plan with the rows carried across it, and the layers around it."""

    def __init__(self, conv: LayerPlan, carry: Carry, before: Segment, after: Segment) -> None:
        """Take the plan of the conv without any chain, the layers before it (of the first conv) and those behind it."""
        self._before, self._after = conv._before, conv._after
        self.in_width, self.out_width = carry.into.width, carry.out.width
        self._conv, self._carry, self._segments = conv, carry, (before, after)
        for name in LayerPlan.__annotations__.keys() - {"in_width", "out_width", "epilogue"}:
            if hasattr(conv, name):
                setattr(self, name, getattr(conv, name))
        self.carried_width = carry.across.width
        self.reads_self = conv.reads_self or self.carried_width > 0
        # Beside carried columns the self input is sent once more, also where it is the message itself.
        self.self_is_message = conv.self_is_message and not self.carried_width
        self._own_width = conv.message_width if conv.self_is_message else conv.self_width
        self.self_width = 0 if self.self_is_message else self._own_width + self.carried_width
        self.root_width = 0

    def _send(self, x: Rows, ctx: Context) -> Rows:
        kept = self._carry.into.split(x)
        rows = self._segments[0].apply(kept[CURRENT], kept, own=False)
        sent = self._conv.send(rows, ctx)
        if not self.carried_width:
            return sent
        own = [sent[:, : self._own_width]] if self._conv.self_is_message else []
        return np.concatenate([sent, *own, self._carry.across.join(kept)], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        kept = self._carry.across.split(own[:, self._own_width :])
        rows = self._conv.update(agg, np.ascontiguousarray(own[:, : self._own_width]), ctx)
        kept[CURRENT] = self._segments[1].apply(rows, kept, own=True)
        return self._carry.out.join(kept)


def carries_of(layers: Sequence[AnyLayer], in_width: int) -> list[Carry | None]:
    """Return, for each conv, the rows carried across it; None if neither it nor the layers around it keep rows."""
    needed, values = _needed(layers), NamedRows(in_width)
    into, across, jumps = [values.layout([CURRENT])], list[Layout](), [False] * len(needed)
    for layer in layers:
        if isinstance(layer, Conv):
            names = needed[len(across)]
            if across:
                into.append(values.layout([CURRENT, *names]))
            across.append(values.layout(names))
        elif isinstance(layer, Keep | Join):
            jumps[max(len(across) - 1, 0)] = True
        values.pass_by(layer)
    out = [*into[1:], values.layout([CURRENT])]
    return [
        Carry(*layouts) if jump or layouts[1].width or len(layouts[0].columns) > 1 else None
        for jump, layouts in zip(jumps, zip(into, across, out, strict=True), strict=True)
    ]


def _needed(layers: Sequence[AnyLayer]) -> list[list[str]]:
    """Return, for each conv, the names kept before it that are read after it."""
    found, live = [], set[str]()
    for layer in reversed(layers):
        if isinstance(layer, Join):
            live |= set(layer.of) - {CURRENT}
        elif isinstance(layer, Keep):
            live.discard(layer.name)
        elif isinstance(layer, Conv):
            found.append(sorted(live))
    return found[::-1]


class NamedRows:
    """Names of rows, and their widths, from layer to layer."""

    def __init__(self, in_width: int) -> None:
        """Begin with rows of that width, which have no name yet."""
        self._made = 0
        self._named = {CURRENT: (0, in_width)}

    def replace(self, width: int) -> None:
        """Go on with new rows of that width."""
        self._made += 1
        self._named[CURRENT] = self._made, width

    def name(self, name: str, width: int) -> None:
        """Have further rows of that width under a name; the current ones stay."""
        self._made += 1
        self._named[name] = self._made, width

    def pass_by(self, layer: Layer) -> None:
        """Go on with what the layer makes."""
        number, width = self._named[CURRENT]
        if isinstance(layer, Keep):
            self._named[layer.name] = number, width
        elif isinstance(layer, Join) and len(layer.of) == 1:
            self._named[CURRENT] = self._named[layer.of[0]]
        elif not isinstance(layer, Identity):
            widths = {name: width for name, (_, width) in self._named.items()}
            self.replace(layer.width_of(widths) if isinstance(layer, Join) else layer.out_width or width)

    def layout(self, names: Sequence[str]) -> Layout:
        """Return a row of the rows of these names."""
        places: dict[int, tuple[int, int]] = {}
        end = 0
        for number, width in (self._named[name] for name in names):
            if number not in places:
                places[number] = end, end + width
                end += width
        return Layout(end, {name: places[self._named[name][0]] for name in names})
