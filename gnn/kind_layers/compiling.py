"""Compiles a model with kinds: layers of rows go into the send of layer 1 and into updates, as without kinds."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.gnn.kind_layers.columns import Columns, RowPiece, as_it_is
from freshet.gnn.kind_layers.grouping import Group
from freshet.gnn.kind_layers.lines import NamedLayer, Stretch, carries_by_kind, stretches_of
from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.kind_layers.registry import FIRST, RELATION_PLANS
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.kinds.declarations import RelationConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.carrying import Carry
from freshet.gnn.layers.segment import Segment

# A number that a source's row gets wider by is a float32 there; one that a relation's sums get, a float64 at a target.
_SENT_BYTES, _SUM_BYTES = 4, 8


def compile_kinds(model: KindsModel) -> KindsPlan:
    """Return the plan of a model; what nobody needs for the returned kinds is left out."""
    stretches, layers = stretches_of(model), list[KindsLayer]()
    for number, carries in enumerate(carries_by_kind(model, stretches), 1):
        before = stretches[0].layers if number == 1 else {kind: [] for kind in model.kinds}
        layers.append(_LayerCompiler(model, stretches[number], carries).layer(before))
    return KindsPlan(layers, model.features, model.edge_types, model.out_widths, model.sha256())


class _LayerCompiler:
    """Makes one layer of one hetero_conv and what is behind it."""

    def __init__(self, model: KindsModel, stretch: Stretch, carries: dict[str, Carry]) -> None:
        self._model, self._stretch, self._carries = model, stretch, carries
        self._there = stretch.there(model)
        self._convs = [self._conv(c, one, first=False) for c, one in self._there]
        for at in self._multiplied_first():
            self._convs[at] = self._conv(*self._there[at], first=True)
        self._sent = {kind: Columns(self._message_pieces(kind)) for kind in model.kinds}

    def layer(self, before: dict[str, list[NamedLayer]]) -> KindsLayer:
        kinds = [self._kind(kind, before[kind]) for kind in self._model.kinds]
        numbers, relations = {kind: i for i, kind in enumerate(self._model.kinds)}, list[RelationPlan]()
        for (_, one), conv in zip(self._there, self._convs, strict=True):
            relation = self._model.relations[one.relation]
            ends = self._sent[relation.source].place(conv.source), self._sent[relation.target].place(conv.target)
            source, target = numbers[relation.source], numbers[relation.target]
            plan = kinds[target]
            assert plan is not None  # or the relation would not be needed
            plan.relations.append(len(relations))
            relations.append(RelationPlan(one.relation, source, target, *ends, conv))
        return KindsLayer(kinds, relations)

    def _kind(self, kind: str, before: list[NamedLayer]) -> KindPlan | None:
        stretch, carry, group = self._stretch, self._carries[kind], None
        if stretch.updates(kind) and (convs := self._convs_to(kind)):
            assert stretch.conv is not None  # there is one
            carries = carry.across.width > 0
            group = Group(stretch.conv.aggr, convs, self._width_of(kind), self._sent[kind], carries)
        own = Columns(group.reads if group is not None else [])
        segments = self._segment(before), self._segment(stretch.layers[kind])
        plan = KindPlan(kind, (self._sent[kind], own), group, carry, segments)
        return plan if plan.sends or plan.updates else None

    def _width_of(self, kind: str) -> int:
        """Width of the kind's rows in front of the conv, 0 where it is not there."""
        assert self._stretch.index is not None  # there is a conv
        return self._model.flows()[self._stretch.index].widths.get(kind, 0)

    def _segment(self, layers: Sequence[NamedLayer]) -> Segment:
        return Segment(self._model, [one.layer for one in layers], [one.name for one in layers])

    def _conv(self, place: int, one: RelationConv, *, first: bool) -> RelationConvPlan:
        name = f"layers.{self._stretch.index}.convs.{place}"
        return RELATION_PLANS[type(one.conv)](one.conv, self._model, name, first)

    def _convs_to(self, kind: str) -> list[RelationConvPlan]:
        pairs = zip(self._there, self._convs, strict=True)
        return [conv for (_, one), conv in pairs if self._model.relations[one.relation].target == kind]

    def _message_pieces(self, kind: str) -> list[RowPiece]:
        """Return the pieces that messages read of vertices of the kind: as sources, then as targets."""
        relations = [self._model.relations[one.relation] for _, one in self._there]
        pairs = list(zip(relations, self._convs, strict=True))
        found = [conv.source for relation, conv in pairs if relation.source == kind]
        return found + [conv.target for relation, conv in pairs if relation.target == kind and conv.target is not None]

    def _multiplied_first(self) -> set[int]:
        """Return which convs multiply the rows of sources before these are sent.

        Rows that are sent as they are do for all relations of their kind; multiplied ones are one's own, but may be
        narrower, and so are the sums at targets. Whichever takes fewer bytes is taken, by kind.
        """
        found = set[int]()
        for kind in self._model.kinds:
            row, width, shared, is_sent = as_it_is(0).key, self._width_of(kind), dict[int, int](), False
            for at, ((_, one), conv) in enumerate(zip(self._there, self._convs, strict=True)):
                if self._model.relations[one.relation].source != kind:
                    continue
                narrow = FIRST[type(one.conv)](one.conv) if type(one.conv) in FIRST else None
                if narrow is not None and conv.source.key == row:
                    shared[at] = narrow
                elif narrow is not None and narrow <= conv.source.width:
                    found.add(at)
                is_sent |= narrow is None and conv.source.key == row
            as_they_are = width * (_SUM_BYTES * len(shared) + (0 if is_sent else _SENT_BYTES))
            if sum(shared.values()) * (_SENT_BYTES + _SUM_BYTES) <= as_they_are:
                found |= shared.keys()
        return found
