"""Compiles a model with kinds: layers of rows go into the send of layer 1 and into updates, as without kinds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from freshet.gnn.kind_layers.columns import Columns, RowPiece, as_it_is
from freshet.gnn.kind_layers.grouping import Group
from freshet.gnn.kind_layers.lines import NamedLayer, Stretch, carries_by_kind, stretches_of
from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.kind_layers.registry import FIRST, relation_plan
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.kind_layers.typed_sums import MANY, alike_sums, typed_sums
from freshet.gnn.kinds.declarations import RelationConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.carrying import Carry
from freshet.gnn.layers.chain import LogitsHead
from freshet.gnn.layers.segment import Segment

# A number that a source's row gets wider by is a float32 there; one that a relation's sums get, a float64 at a target.
_SENT_BYTES, _SUM_BYTES = 4, 8


def compile_kinds(model: KindsModel) -> KindsPlan:
    """Return the plan of a model; what nobody needs for the returned kinds is left out."""
    stretches, layers = stretches_of(model), list[KindsLayer]()
    for number, carries in enumerate(carries_by_kind(model, stretches), 1):
        before = stretches[0].layers if number == 1 else {kind: [] for kind in model.kinds}
        layers.append(_LayerCompiler(model, stretches[number], carries).layer(before))
    rows = model.learned_rows()
    learned = [rows.get(kind) for kind in model.kinds] if rows else []
    out = model.out_widths
    heads = {kind: LogitsHead.of(model, of, f"heads.{kind}", out[kind]) for kind, of in model.heads.items()}
    return KindsPlan(layers, model.features, model.edge_types, out, model.sha256(), learned, heads, model.checks)


class _OnRelations(NamedTuple):
    """A conv, the numbers of the relations whose messages it reads, and their kinds."""

    numbers: tuple[int, ...]
    source: str
    target: str
    conv: RelationConvPlan


class _LayerCompiler:
    """Makes one layer of one hetero_conv and what is behind it."""

    def __init__(self, model: KindsModel, stretch: Stretch, carries: dict[str, Carry]) -> None:
        self._model, self._stretch, self._carries = model, stretch, carries
        self._there = stretch.there(model)
        convs = [self._conv(c, one, first=False) for c, one in self._there]
        many = self._many()
        for at in self._multiplied_first(convs, {at for places in many.values() for at in places}):
            convs[at] = self._conv(*self._there[at], first=True)
        self._convs = self._on_relations(convs, many)
        self._sent = {kind: Columns(self._message_pieces(kind)) for kind in model.kinds}

    def layer(self, before: dict[str, list[NamedLayer]]) -> KindsLayer:
        kinds = [self._kind(kind, before[kind]) for kind in self._model.kinds]
        places, relations = {kind: i for i, kind in enumerate(self._model.kinds)}, list[RelationPlan]()
        for numbers, source, target, conv in self._convs:
            ends = self._sent[source].place(conv.source), self._sent[target].place(conv.target)
            plan = kinds[places[target]]
            assert plan is not None  # or the relation would not be needed
            plan.relations.append(len(relations))
            if conv.reads_degrees:
                plan.read_degrees.append(conv.relation)
            if conv.sends_degrees:  # its source is of the same kind
                plan.sent_degrees.append(conv.relation)
            relations.append(RelationPlan(numbers, places[source], places[target], *ends, conv))
        return KindsLayer(kinds, relations)

    def _kind(self, kind: str, before: list[NamedLayer]) -> KindPlan | None:
        stretch, carry, group = self._stretch, self._carries[kind], None
        if stretch.updates(kind) and (convs := [one.conv for one in self._convs if one.target == kind]):
            assert stretch.conv is not None  # there is one
            carries = carry.across.width > 0
            group = Group(stretch.conv.aggr, convs, self._width_of(kind), self._sent[kind], carries)
        own = Columns(group.reads if group is not None else [])
        segments = self._segment(before), self._segment(stretch.layers[kind])
        number = list(self._model.kinds).index(kind)
        plan = KindPlan(number, (self._sent[kind], own), group, carry, segments)
        return plan if plan.sends or plan.updates else None

    def _width_of(self, kind: str) -> int:
        """Width of the kind's rows in front of the conv, 0 where it is not there."""
        assert self._stretch.index is not None  # there is a conv
        return self._model.flows()[self._stretch.index].widths.get(kind, 0)

    def _segment(self, layers: Sequence[NamedLayer]) -> Segment:
        return Segment(self._model, [one.layer for one in layers], [one.name for one in layers])

    def _conv(self, place: int, one: RelationConv, *, first: bool) -> RelationConvPlan:
        name = f"layers.{self._stretch.index}.convs.{place}"
        plan = relation_plan(one.conv, self._model, name, first=first)
        plan.relation = one.relation
        return plan

    def _many(self) -> dict[Hashable, list[int]]:
        """Return the convs that share a store of pairs, with those of their kind: the places of more than MANY."""
        found: dict[Hashable, list[int]] = {}
        assert self._stretch.conv is not None  # there is one
        for at, (_, one) in enumerate(self._there):
            if self._stretch.conv.aggr == "sum" and (alike := alike_sums(one.conv)) is not None:
                relation = self._model.relations[one.relation]
                found.setdefault((relation.source, relation.target, alike), []).append(at)
        return {key: places for key, places in found.items() if len(places) > MANY}

    def _on_relations(
        self, convs: Sequence[RelationConvPlan], many: Mapping[Hashable, list[int]]
    ) -> list[_OnRelations]:
        """Return the convs in their order, those that share a store as one in the place of the first."""
        together = {places[0]: places for places in many.values()}
        inner, found = {at for places in many.values() for at in places[1:]}, list[_OnRelations]()
        for at, (_, one) in enumerate(self._there):
            if at not in inner:
                places, relation = together.get(at, [at]), self._model.relations[one.relation]
                conv = typed_sums([convs[k] for k in places]) if at in together else convs[at]
                numbers = tuple(self._there[k][1].relation for k in places)
                found.append(_OnRelations(numbers, relation.source, relation.target, conv))
        return found

    def _message_pieces(self, kind: str) -> list[RowPiece]:
        """Return the pieces that messages read of vertices of the kind: as sources, then as targets."""
        found = [one.conv.source for one in self._convs if one.source == kind]
        targets = (one.conv.target for one in self._convs if one.target == kind)
        return found + [piece for piece in targets if piece is not None]

    def _multiplied_first(self, convs: Sequence[RelationConvPlan], never: set[int]) -> set[int]:
        """Return which convs multiply the rows of sources before these are sent; those in the places `never` do not.

        Rows that are sent as they are do for all relations of their kind; multiplied ones are one's own, but may be
        narrower, and so are the sums at targets. Whichever takes fewer bytes is taken, by kind.
        """
        found = set[int]()
        for kind in self._model.kinds:
            row, width, shared, is_sent = as_it_is(0).key, self._width_of(kind), dict[int, int](), False
            for at, ((_, one), conv) in enumerate(zip(self._there, convs, strict=True)):
                if self._model.relations[one.relation].source != kind:
                    continue
                narrow = FIRST[type(one.conv)](one.conv) if type(one.conv) in FIRST and at not in never else None
                if narrow is not None and conv.source.key == row:
                    shared[at] = narrow
                elif narrow is not None and narrow <= conv.source.width:
                    found.add(at)
                is_sent |= narrow is None and conv.source.key == row
            as_they_are = width * (_SUM_BYTES * len(shared) + (0 if is_sent else _SENT_BYTES))
            if sum(shared.values()) * (_SENT_BYTES + _SUM_BYTES) <= as_they_are:
                found |= shared.keys()
        return found
