"""The layers of a model with kinds, kind by kind: which rows are needed where, and what is carried across each conv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from freshet.gnn.kinds.declarations import ByKind, HeteroConv, RelationConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.carrying import Carry, NamedRows
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.rows.layer import Layer


class NamedLayer(NamedTuple):
    """A layer of a row, and the prefix of its weights' names."""

    layer: Layer
    name: str


@dataclass
class Stretch:
    """A hetero_conv, and the layers between it and the next one.

    `index`, `conv`: the hetero_conv at the begin, and its place in the model; None in front of the first one. By kind:
    `layers`, those that are needed; `behind`, the names of the rows that are needed right behind the conv; `before`,
    of those that are needed right before it.
    """

    index: int | None = None
    conv: HeteroConv | None = None
    layers: dict[str, list[NamedLayer]] = field(default_factory=dict)
    behind: dict[str, set[str]] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)

    def updates(self, kind: str) -> bool:
        """True if what the conv makes for vertices of the kind is needed."""
        return CURRENT in self.behind[kind]

    def there(self, model: KindsModel) -> list[tuple[int, RelationConv]]:
        """Return the convs of the relations that are needed, with their places in the hetero_conv."""
        assert self.conv is not None  # nobody asks in front of the first one
        numbered = enumerate(self.conv.convs)
        return [(c, one) for c, one in numbered if self.updates(model.relations[one.relation].target)]


def stretches_of(model: KindsModel) -> list[Stretch]:
    """Return the layers in front of the first hetero_conv, then each with those behind it, as far as needed."""
    found = [Stretch()]
    between: list[list[tuple[int, ByKind]]] = [[]]
    for i, layer in enumerate(model.layers):
        if isinstance(layer, HeteroConv):
            found.append(Stretch(i, layer))
            between.append([])
        else:
            between[-1].append((i, layer))
    live: dict[str, set[str]] = {kind: {CURRENT} if kind in model.out else set() for kind in model.kinds}
    for stretch, layers in zip(reversed(found), reversed(between), strict=True):
        for kind in model.kinds:
            named = [
                NamedLayer(layer, f"layers.{i}.layers.{kind}.{n}")
                for i, rows in layers
                for n, layer in enumerate(rows.layers.get(kind, []))
            ]
            stretch.layers[kind], live[kind] = _needed(named, live[kind])
            stretch.behind[kind] = set(live[kind])
        if stretch.conv is not None:
            stretch.before = _in_front(model, stretch)
            live = dict(stretch.before)
    return found


def _needed(layers: Sequence[NamedLayer], live: set[str]) -> tuple[list[NamedLayer], set[str]]:
    """Return those layers that make rows of the names in `live`, and the names that they read or leave as they are."""
    live, found = set(live), list[NamedLayer]()
    for named in reversed(layers):
        layer = named.layer
        if isinstance(layer, Keep):
            if layer.name not in live:
                continue
            live = live - {layer.name} | {CURRENT}
        elif CURRENT not in live:
            continue
        elif isinstance(layer, Join):
            live = live - {CURRENT} | set(layer.of)
        found.append(named)
    return found[::-1], live


def _in_front(model: KindsModel, stretch: Stretch) -> dict[str, set[str]]:
    """Return the names of the rows that are needed in front of a conv: kept ones, and what the conv reads."""
    live = {kind: names - {CURRENT} for kind, names in stretch.behind.items()}
    for _, one in stretch.there(model):
        relation = model.relations[one.relation]
        live[relation.source].add(CURRENT)
        if one.conv.reads_own:
            live[relation.target].add(CURRENT)
    return live


def carries_by_kind(model: KindsModel, stretches: Sequence[Stretch]) -> list[dict[str, Carry]]:
    """Return for each hetero_conv and kind the rows that it reads, those carried across it, and those it makes.

    The row that a kind's features are, with its learned ones, stands in front of the first conv, and of the layers
    before that.
    """
    parts, flows = model.row_parts(), model.flows()
    values = {kind: NamedRows(widths.get(CURRENT, 0)) for kind, widths in parts.items()}
    for kind, widths in parts.items():
        for name, width in widths.items():
            if name != CURRENT:
                values[kind].name(name, width)
    into = {
        kind: values[kind].layout(list(parts[kind]) if names else []) for kind, names in stretches[0].behind.items()
    }
    _pass_by(values, stretches[0])
    found = []
    for number, stretch in enumerate(stretches[1:], 1):
        assert stretch.index is not None  # but for the first one
        across = {kind: values[kind].layout(sorted(names - {CURRENT})) for kind, names in stretch.behind.items()}
        behind = flows[stretch.index + 1].widths
        for kind, rows in values.items():
            rows.replace(behind.get(kind, 0))
        _pass_by(values, stretch)
        if number + 1 < len(stretches):
            needed: Mapping[str, set[str]] = stretches[number + 1].before
        else:
            needed = {kind: {CURRENT} if kind in model.out else set() for kind in model.kinds}
        out = {kind: values[kind].layout(sorted(names)) for kind, names in needed.items()}
        found.append({kind: Carry(into[kind], across[kind], out[kind]) for kind in model.kinds})
        into = out
    return found


def _pass_by(values: Mapping[str, NamedRows], stretch: Stretch) -> None:
    for kind, layers in stretch.layers.items():
        for named in layers:
            values[kind].pass_by(named.layer)
