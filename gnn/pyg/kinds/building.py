"""The layers, heads and weights of a model with kinds, made of the levels of a forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch.nn import Module, ModuleDict

from freshet.gnn.kinds.names import head_name
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.fx import dense_steps
from freshet.gnn.pyg.kinds.levels import ConvLevel, ConvLevels
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, Made, OnRelation, OnRows
from freshet.gnn.pyg.kinds.widths import relation_conv
from freshet.gnn.pyg.layers import convert_chain
from freshet.gnn.pyg.steps import Step, Weights, head_of
from freshet.gnn.rows.chains import chain_widths
from freshet.gnn.rows.layer import Layer

Asked = str | Mapping[str, str] | None


class KindHead(NamedTuple):
    """The head of a kind: the name of the submodule, its steps, and whether the module's rows are its output."""

    name: str
    steps: list[Step]
    is_called: bool


def heads_of(
    module: Module, ops: KindsOperations, results: Sequence[str], kinds: Metadata, asked: Asked
) -> tuple[list[str], dict[int, KindHead | None]]:
    """Return the names of the embeddings in place of those of results, and the heads by kind, in their order.

    Operations of heads, and what nothing else reads, are forgotten. `asked` names one submodule for all returned kinds,
    or one for each; a ModuleDict stands for its part for the kind.
    Raises: ExportError for a head that there is not, and for one that is not the end of what makes the kind's rows.
    """
    named = _named(module, asked, [kinds.names[ops.kind[name]] for name in results])
    embeddings, heads = list[str](), dict[int, KindHead | None]()
    for result in results:
        kind = ops.kind[result]
        heads[kind], name = _split(module, ops, result, named.get(kinds.names[kind]))
        embeddings.append(name)
    ops.keep(embeddings)
    for name in ops.made:
        for kind, head in heads.items():
            if head is not None and head.is_called and _is_within(name, head.name):
                what = f"head={head.name!r} is not the end of what makes rows of {kinds.names[kind]!r}"
                refuse(f"{what}: {name} is read by other layers, too")
    return embeddings, heads


def _named(module: Module, asked: Asked, returned: Sequence[str]) -> dict[str, str]:
    """The names of submodules by kind."""
    if asked is None:
        return {}
    if isinstance(asked, Mapping) and (other := [kind for kind in asked if kind not in returned]):
        refuse(f"head names the kind {other[0]!r}; the module returns {', '.join(map(repr, returned))}")
    by_kind = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(returned, asked)
    return {kind: _part(module, kind, name) for kind, name in by_kind.items()}


def _part(module: Module, kind: str, name: str) -> str:
    part = head_of(module, name)
    return f"{name}.{kind}" if isinstance(part, ModuleDict) and kind in part else name


def _split(module: Module, ops: KindsOperations, result: str, head: str | None) -> tuple[KindHead | None, str]:
    """Return the head that ends with these rows, and the name of the rows that it reads."""
    if head is None:
        return None, result
    steps, at = list[Step](), result
    while _is_within(at, head):
        op = ops.made[at]
        if not isinstance(op, OnRows):
            refuse(f"{head}: {at} puts rows together or reads neighbours; a head is a straight line of layers of a row")
        steps.append(op.step)
        at = op.rows
    if steps:
        return KindHead(head, steps[::-1], is_called=True), at
    if inside := [name for name in ops.made if _is_within(name, head) and name in ops.needed([result])]:
        refuse(f"head={head!r} is not the end of the module: {result} comes after {inside[0]}")
    part: Any = module.get_submodule(head)
    return KindHead(head, dense_steps(head, part), is_called=False), result


def _is_within(operation: str, head: str) -> bool:
    name = operation.partition(":")[0]
    return name == head or name.startswith(head + ".")


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
            layers, weights = convert_chain(steps, width, prefix, kept)
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
