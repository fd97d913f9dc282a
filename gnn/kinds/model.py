"""A model with kinds of vertices and relations between them, as model.json of version 2 keeps it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from freshet.gnn.declarations import CONV_TYPES, DENSE_TYPES, JUMP_TYPES, DenseLayer
from freshet.gnn.kinds.declarations import (
    KINDS_LAYER_TYPES,
    AnyKindsLayer,
    ByKind,
    DeclaredLearned,
    DeclaredRelation,
    HeteroConv,
    row_layers,
)
from freshet.gnn.kinds.flow import Flow, flows
from freshet.gnn.kinds.learned import LearnedRows, as_kept, refuse_unordered, tensors_of
from freshet.gnn.kinds.names import check_kinds, head_name
from freshet.gnn.limits import MAX_CONVS
from freshet.gnn.link_head import KindsLinkHead, refuse_twice
from freshet.gnn.model import (
    KINDS_VERSION,
    Model,
    ModelError,
    WeightedModel,
    build_model,
    check_types,
    read_folder,
    validated,
)
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.jumps import CURRENT
from freshet.gnn.rows.layer import Layer, Shape
from freshet.kinds import KINDS_MAX, NO_MIRROR, Kinds, Relation
from freshet.schema import Features

_LATER = ("learned", "heads", "link_heads")


class KindsModel(WeightedModel):
    """The layers of a trained GNN over vertices of several kinds, or over several relations, with their weights.

    A kind's number is its place in `kinds`, a relation's its place in `relations`. Weights are float32, named
    `layers.<index>.convs.<number>.<tensor>` and `layers.<index>.layers.<kind>.<number>.<tensor>`. `learned`: kinds with
    learned rows, of which no features are needed then; gnn/kinds/learned.py names the tensors. `heads`: layers that
    make logits of the embeddings of a returned kind, with weights `heads.<kind>.<number>.<tensor>`. `link_heads`: what
    scores pairs of returned kinds.
    Invariant: widths chain by kind from layer to layer, 1 to MAX_CONVS hetero_convs, every weight there with its shape
    (checked here).
    """

    version: Literal[2] = KINDS_VERSION
    kinds: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=KINDS_MAX)]
    learned: dict[str, DeclaredLearned] = Field(default_factory=dict)
    relations: Annotated[list[DeclaredRelation], Field(min_length=1)]
    layers: list[AnyKindsLayer]
    out: Annotated[list[str], Field(min_length=1)]
    heads: dict[str, list[DenseLayer]] = Field(default_factory=dict)
    link_heads: list[KindsLinkHead] = Field(default_factory=list)

    @field_validator("kinds")
    @classmethod
    def _named(cls, kinds: dict[str, int]) -> dict[str, int]:
        check_kinds(list(kinds))
        return kinds

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is empty of what came later: models of before it was there keep their identity."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name not in _LATER or value}

    @model_validator(mode="after")
    def _fits(self) -> KindsModel:
        _check_features(self.kinds, self.learned)
        _check_relations(self.kinds, self.relations)
        convs = sum(isinstance(layer, HeteroConv) for layer in self.layers)
        if not 1 <= convs <= MAX_CONVS:
            msg = f"a model needs 1 to {MAX_CONVS} layers of hetero_conv, got {convs}"
            raise ValueError(msg)
        _check_out(self.out, self.kinds, self.flows()[-1].widths)
        _check_heads(self.heads, self.out_widths)
        _check_link_heads(self.link_heads, self.out_widths)
        _check_attributes(self.relations, self.layers)
        self.check_weights()
        for kind, rows in self.learned_rows().items():
            refuse_unordered(kind, rows)
        return self

    @classmethod
    def kept_as(cls, name: str, given: NDArray[Any]) -> NDArray[Any]:
        """Return a weight in the type that it is kept in: float32, but for ids of learned rows."""
        ids = as_kept(name, given)
        return super().kept_as(name, given) if ids is None else ids

    def learned_rows(self) -> dict[str, LearnedRows]:
        """Return the learned rows of each kind that has such."""
        return {kind: LearnedRows.of(kind, declared, self.weights) for kind, declared in self.learned.items()}

    def row_parts(self) -> dict[str, dict[str, int]]:
        """Widths of the rows of each kind in front of the first layer, by name: its features, then its learned rows.

        Features have the name of the current rows.
        """
        return {
            kind: ({CURRENT: width} if width else {}) | (self.learned[kind].rows if kind in self.learned else {})
            for kind, width in self.kinds.items()
        }

    def flows(self) -> list[Flow]:
        """The kinds that are there, and how wide their rows are, in front of the first layer and behind each one."""
        return flows(self.row_parts(), self.relations, self.layers)

    @property
    def out_widths(self) -> dict[str, int]:
        """Width of the embedding of each kind that is returned."""
        widths = self.flows()[-1].widths
        return {kind: widths[kind] for kind in self.out}

    @property
    def features(self) -> Features:
        """The raw features that it reads, with the kinds and relations of its graphs."""
        return Features.of_kinds(_kinds_of(self.kinds, self.relations))

    @property
    def edge_types(self) -> list[str]:
        """Names of the relations as types of edges: the type where no other relation has that."""
        return list(_kinds_of(self.kinds, self.relations).relation_names)

    @property
    def is_approximate(self) -> bool:
        """True if a layer replaces one that reads the whole graph, by constants from the time of the export."""
        found: list[Layer] = list(chain.from_iterable(self.heads.values()))
        for layer in self.layers:
            if isinstance(layer, ByKind):
                found += chain.from_iterable(row_layers(layer).values())
            else:
                found += chain.from_iterable(getattr(one.conv, "nn", ()) for one in layer.convs)
        return any(one.is_approximate for one in found)

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(weight.size for weight in self.weights.values() if weight.dtype == np.float32)

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of all weights."""
        shapes: dict[str, Shape] = {}
        for kind, declared in self.learned.items():
            shapes |= tensors_of(kind, declared)
        for i, layer in enumerate(self.layers):
            if isinstance(layer, HeteroConv):
                shapes |= chain_tensors([one.conv for one in layer.convs], f"layers.{i}.convs")
            else:
                for kind, layers in row_layers(layer).items():
                    shapes |= chain_tensors(layers, f"layers.{i}.layers.{kind}")
        for kind, head in self.heads.items():
            shapes |= chain_tensors(head, head_name(kind))
        for i, of_pairs in enumerate(self.link_heads):
            shapes |= of_pairs.tensors(f"link_heads.{i}")
        return shapes

    def identity(self) -> dict[str, Any]:
        """Return the declaration with the order of kinds, since kinds are counted."""
        fields = self.declaration() | {"kinds": list(self.kinds.items())}
        learned = {kind: [*one.rows.items(), one.ids] for kind, one in self.learned.items()}
        return fields | ({"learned": learned} if learned else {})


def build_kinds_model(**fields: Any) -> KindsModel:
    """Return the KindsModel of these fields.

    Raises: ModelError naming the field, what it got and what was expected.
    """
    version = fields.get("version", KINDS_VERSION)
    if version != KINDS_VERSION:
        msg = f"model format version {version!r} with kinds: this Freshet reads version {KINDS_VERSION}"
        raise ModelError(msg)
    check_types(fields.get("layers"), "layers", KINDS_LAYER_TYPES)
    for i, layer in enumerate(fields["layers"]):
        if isinstance(layer, dict):
            _check_layer(layer, f"layers.{i}")
    heads = fields.get("heads")
    for kind, head in heads.items() if isinstance(heads, dict) else ():
        check_types(head, head_name(kind), DENSE_TYPES)
    return validated(KindsModel, fields)


def load_any_model(folder: str | Path) -> Model | KindsModel:
    """Read a model folder, with kinds or without.

    Raises: ModelError when a file is missing, is no model, or does not fit the other; the message says what to mend.
    """
    return read_folder(folder, _build_any)


def _build_any(**fields: Any) -> Model | KindsModel:
    return build_kinds_model(**fields) if fields.get("version") == KINDS_VERSION else build_model(**fields)


def _check_layer(layer: dict[str, Any], where: str) -> None:
    """Name an unknown layer type, which pydantic would bury.

    Raises: ModelError
    """
    if layer["type"] == "by_kind":
        given = layer.get("layers")
        for kind, layers in given.items() if isinstance(given, dict) else ():
            check_types(layers, f"{where}.layers.{kind}", DENSE_TYPES + JUMP_TYPES)
        return
    listed = layer.get("convs")
    convs = [one.get("conv") if isinstance(one, dict) else None for one in listed] if isinstance(listed, list) else []
    if all(isinstance(conv, dict) for conv in convs):
        check_types(convs, f"{where}.convs", CONV_TYPES)


def _kinds_of(kinds: dict[str, int], relations: list[DeclaredRelation]) -> Kinds:
    """Return what the graph knows of kinds and relations."""
    numbers = {kind: number for number, kind in enumerate(kinds)}
    found = [
        Relation(
            numbers[one.source], one.type, numbers[one.target], one.edge_features,
            NO_MIRROR if one.mirrors is None else one.mirrors,
        )
        for one in relations
    ]  # fmt: skip
    return Kinds(tuple(kinds), tuple(kinds.values()), tuple(found))


def _check_features(kinds: dict[str, int], learned: dict[str, DeclaredLearned]) -> None:
    """Refuse learned rows of no kind, and kinds that have neither features nor learned rows.

    Raises: ValueError
    """
    for kind in learned:
        if kind not in kinds:
            msg = f"learned: {kind!r} is no kind; kinds are {', '.join(map(repr, kinds))}"
            raise ValueError(msg)
    if len(types := {one.ids for one in learned.values()}) > 1:
        msg = f"learned: ids are {' and '.join(sorted(types))}, expected those of all kinds to be of one type"
        raise ValueError(msg)
    for kind, width in kinds.items():
        if not width and kind not in learned:
            msg = f"kinds: {kind!r} has features of width 0 and no learned rows, expected one of both"
            raise ValueError(msg)


def _check_relations(kinds: dict[str, int], relations: list[DeclaredRelation]) -> None:
    """Refuse relations of unknown kinds, relations that are there twice, and mirrors that cannot follow.

    Raises: ValueError
    """
    followed, known = dict[int, int](), set[tuple[str, str, str]]()
    for number, relation in enumerate(relations):
        where = f"relations.{number} ({relation})"
        for end, kind in (("source", relation.source), ("target", relation.target)):
            if kind not in kinds:
                msg = f"{where}: the {end} {kind!r} is no kind; kinds are {', '.join(map(repr, kinds))}"
                raise ValueError(msg)
        if relation.ends in known:
            msg = f"{where}: a relation with this source, type and target is there already"
            raise ValueError(msg)
        known.add(relation.ends)
        if relation.mirrors is not None:
            _check_mirror(relations, number, where)
            other = followed.setdefault(relation.mirrors, number)
            if other != number:
                msg = f"{where}: mirrors relations.{relation.mirrors}, as relations.{other} does; one may"
                raise ValueError(msg)
    names = _kinds_of(kinds, relations).relation_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"relations: {twice[0]!r} names two of them, a type and a source,type,target; rename the type"
        raise ValueError(msg)


def _check_mirror(relations: list[DeclaredRelation], number: int, where: str) -> None:
    mirror = relations[number]
    assert mirror.mirrors is not None  # by the caller
    if mirror.mirrors >= len(relations):
        msg = f"{where}: mirrors {mirror.mirrors}, but there are {len(relations)} relations, counted from 0"
        raise ValueError(msg)
    if mirror.mirrors == number:
        msg = f"{where}: mirrors itself; name the relation whose edges it follows"
        raise ValueError(msg)
    followed = relations[mirror.mirrors]
    if followed.mirrors is not None:
        msg = f"{where}: mirrors {followed}, which is a mirror itself; name the relation that has events"
        raise ValueError(msg)
    if (mirror.source, mirror.target) != (followed.target, followed.source):
        msg = f"{where}: mirrors {followed}, so it goes from {followed.target!r} to {followed.source!r}"
        raise ValueError(msg)
    if mirror.edge_features not in (0, followed.edge_features):
        msg = f"{where}: edge_features {mirror.edge_features}, but {followed} has {followed.edge_features}; attributes "
        raise ValueError(msg + "follow with the edges, so give both the same, or the mirror 0")


def _check_out(out: list[str], kinds: dict[str, int], there: dict[str, int]) -> None:
    for i, kind in enumerate(out):
        if kind not in kinds:
            msg = f"out: {kind!r} is no kind; kinds are {', '.join(map(repr, kinds))}"
            raise ValueError(msg)
        if kind in out[:i]:
            msg = f"out: the kind {kind!r} is named twice"
            raise ValueError(msg)
        if kind not in there:
            msg = f"out: the kind {kind!r} is not there behind the last layer; there are {', '.join(map(repr, there))}"
            raise ValueError(msg)


def _check_heads(heads: dict[str, list[DenseLayer]], widths: dict[str, int]) -> None:
    """Refuse a head of a kind that is not returned, and one that does not fit its embeddings.

    Raises: ValueError
    """
    for kind, layers in heads.items():
        if kind not in widths:
            msg = f"heads: {kind!r} is not returned; kinds that are: {', '.join(map(repr, widths))}"
            raise ValueError(msg)
        chain_width(layers, widths[kind], head_name(kind))


def _check_link_heads(heads: list[KindsLinkHead], widths: dict[str, int]) -> None:
    """Refuse a head of a kind that is not returned, and one that does not fit its embeddings.

    Raises: ValueError
    """
    refuse_twice(heads)
    for i, head in enumerate(heads):
        for kind in (head.left, head.right):
            if kind not in widths:
                msg = f"link_heads.{i}: {kind!r} is not returned; kinds that are: {', '.join(map(repr, widths))}"
                raise ValueError(msg)
        head.check(widths[head.left], widths[head.right], f"link_heads.{i}")


def _check_attributes(relations: list[DeclaredRelation], layers: list[AnyKindsLayer]) -> None:
    """Refuse attributes of a relation that no layer reads: not there, in its mirror, or in the relation it mirrors."""
    convs = [one for layer in layers if isinstance(layer, HeteroConv) for one in layer.convs]
    read = {one.relation for one in convs if one.conv.edge.attributes}
    for number, relation in enumerate(relations):
        if not relation.edge_features:
            continue
        followers = {other for other, one in enumerate(relations) if one.mirrors == number}
        if not read & {number, relation.mirrors, *followers}:
            msg = f"relations.{number} ({relation}): edge_features {relation.edge_features}, but no layer reads "
            raise ValueError(msg + "attributes of its edges")
