"""The layers and weights of a model with kinds, made of the levels of a forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from freshet.gnn.kinds.names import head_name
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.kinds.layered.converting import relation_conv
from freshet.gnn.pyg.kinds.layered.levels import ConvLevel, ConvLevels
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import Made, OnRelation
from freshet.gnn.pyg.layers import convert_chain
from freshet.gnn.pyg.steps import Step, Weights
from freshet.gnn.rows.chains import chain_widths
from freshet.gnn.rows.layer import Layer

Spec = dict[str, Any]


class Built(NamedTuple):
    """The layers of a model with kinds as model.json has them, their weights, and heads by kind."""

    layers: list[Spec]
    weights: Weights
    heads: dict[str, list[Layer]]

    def add_heads(self, heads: Mapping[int, list[Step]], kinds: Metadata) -> None:
        """Note what makes logits of the embeddings of kinds.

        Raises: ExportError naming a part that has no layer here.
        """
        for kind, steps in heads.items():
            stored = kinds.stored[kind]
            self.heads[stored], weights = convert_chain(steps, None, head_name(stored))
            self.weights.update(weights)


def build(
    made: Mapping[str, Made],
    levels: ConvLevels,
    kinds: Metadata,
    widths: Sequence[int],
    learned: Mapping[int, Mapping[str, int]],
) -> Built:
    """Return the layers of a forward that is brought into levels.

    `widths` are those of the features by kind, `learned` those of its learned rows by name.

    Raises: ExportError naming a part that has no layer here.
    """
    return _Builder(made, kinds, widths, learned).build(levels)


class _Builder:
    def __init__(
        self, made: Mapping[str, Made], kinds: Metadata, widths: Sequence[int], learned: Mapping[int, Mapping[str, int]]
    ) -> None:
        self._made, self._kinds = made, kinds
        self._widths = {kind: width for kind, width in enumerate(widths) if width}
        self._kept = {kind: dict(learned.get(kind, {})) for kind in range(len(kinds.names))}
        self._built = Built([], {}, {})

    def build(self, levels: ConvLevels) -> Built:
        for level in levels.levels:
            self._by_kind(level.before)
            self._convs(level)
        self._by_kind(levels.after)
        return self._built

    def _by_kind(self, chains: Mapping[int, list[Step]]) -> None:
        """Note the layers on rows of each kind, if there are any."""
        index, found = len(self._built.layers), dict[str, list[Layer]]()
        for kind, steps in chains.items():
            stored = self._kinds.stored[kind]
            name, width, kept = self._kinds.names[kind], self._widths.get(kind), self._kept[kind]
            prefix = f"layers.{index}.layers.{stored}"
            layers, weights = convert_chain(steps, width, prefix)
            if not layers:
                continue
            try:
                self._widths[kind] = chain_widths(layers, width or 0, f"rows of kind {name!r}: layers", kept)[-1]
            except ValueError as error:
                msg = f"{steps[0].name}: {error}"
                raise ExportError(msg) from None
            found[stored] = layers
            self._built.weights.update(weights)
        if found:
            self._built.layers.append({"type": "by_kind", "layers": found})

    def _convs(self, level: ConvLevel) -> None:
        """Note the convs of a level; afterwards those kinds alone are there that they reach."""
        index, convs, behind = len(self._built.layers), list[Spec](), dict[int, int]()
        for kind, group in sorted(level.groups.items()):
            widths = list[int]()
            for name in group.convs:
                of = self._made[name]
                assert isinstance(of, OnRelation)
                ends = (self._widths.get(end) for end in self._kinds.ends(of.relation))
                layer, weights = relation_conv(name, of, self._kinds, *ends)
                prefix = f"layers.{index}.convs.{len(convs)}"
                self._built.weights.update({f"{prefix}.{key}": value for key, value in weights.items()})
                convs.append({"relation": of.relation, "conv": layer})
                widths.append(layer.out_channels)  # type: ignore[attr-defined]
            behind[kind] = sum(widths) if level.aggr == "cat" else widths[0]
        self._built.layers.append({"type": "hetero_conv", "aggr": level.aggr, "convs": convs})
        self._widths = behind
