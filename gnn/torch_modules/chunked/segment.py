"""A conv layer of a model with the layers of rows behind it, on a chunk of targets of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from freshet.gnn.declarations import Conv
from freshet.gnn.kinds.declarations import ByKind, HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.torch_modules.aggregates import FarSources, MessageEdges
from freshet.gnn.torch_modules.chunked.degrees import ChunkSources, UnknownDegrees
from freshet.gnn.torch_modules.passes import LayerInput, conv_layer, relations_of, row_layer
from freshet.gnn.torch_modules.registry import degrees_of

REAL = torch.float64
"""Rows are float32 between layers, as on the processor, and everything in a layer is float64."""
AnyDeclared = Model | KindsModel


class ChunkEdges(NamedTuple):
    """Edges of a relation in a chunk.

    Shapes: src, dst (e,) int32, numbers in the chunk; weight (e,) float32, None: all 1; attr (e, width) float32, None:
    width 0
    """

    src: Tensor
    dst: Tensor
    weight: Tensor | None
    attr: Tensor | None

    def as_messages(self, targets: int, far: FarSources) -> MessageEdges:
        """Return them as convs read them."""
        count, place = len(self.src), self.src.device
        weight = torch.ones(count, dtype=REAL, device=place) if self.weight is None else self.weight.to(REAL)
        attr = torch.empty((count, 0), dtype=REAL, device=place) if self.attr is None else self.attr.to(REAL)
        return MessageEdges(self.src.long(), self.dst.long(), weight, attr, targets, far)


class ChunkInput(NamedTuple):
    """Input of a segment on a chunk: rows of vertices by kind, kept rows of the targets, edges by relation.

    The targets come first among the rows of their kind.
    """

    targets: int
    rows: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]
    edges: Mapping[int, ChunkEdges]


@dataclass(frozen=True)
class ModelSegment:
    """A conv layer and the layers of rows behind it, of one kind; no `conv` for those in front of the first conv layer.

    `rows` are the layers of rows; `reads` the names of kept rows that they read of segments before.
    """

    model: AnyDeclared
    number: int
    kind: str
    conv: int | None
    rows: range
    relations: tuple[int, ...] = ()
    keeps: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    ends: Mapping[int, str] = field(default_factory=dict)
    """The kind of the sources of each relation."""

    @property
    def source_kinds(self) -> list[str]:
        """Kinds of the vertices that a chunk has rows of, that of the targets first."""
        return list(dict.fromkeys([self.kind, *self.ends.values()]))

    def convs(self) -> Iterator[tuple[int, Conv]]:
        """Yield the convs with their relations."""
        if self.conv is None:
            return
        layer = self.model.layers[self.conv]
        every = [(one.relation, one.conv) for one in layer.convs] if isinstance(layer, HeteroConv) else [(0, layer)]
        yield from ((relation, conv) for relation, conv in every if relation in self.relations)  # type: ignore[misc]

    def of_degrees(self) -> list[int]:
        """Return the relations whose conv reads degrees of sources."""
        return [relation for relation, conv in self.convs() if degrees_of(conv) is not None]

    def read_degrees(self, relation: int, edges: MessageEdges) -> None:
        """Have the conv of a relation read degrees of sources, of `edges.far`."""
        for number, conv in self.convs():
            read = degrees_of(conv)
            if number == relation and read is not None:
                read(conv, edges)

    def compute(self, weights: Module, given: ChunkInput, far: dict[int, ChunkSources]) -> dict[str, Tensor]:
        """Return the new rows of the targets, under `CURRENT`, and those that are kept, by name; float32."""
        rows = {kind: one.to(REAL) for kind, one in given.rows.items()}
        kept = {name: one.to(REAL) for name, one in given.kept.items()}
        own = {self.kind: rows[self.kind][: given.targets]}
        if self.conv is not None:
            unknown = {n: UnknownDegrees(len(rows[self.ends[n]])) for n in self.relations if n not in far}
            edges = {n: one.as_messages(given.targets, (far | unknown)[n]) for n, one in given.edges.items()}
            sources = {n: rows[self.ends[n]] for n in self.relations}
            found = conv_layer(self.model, self.conv, weights, LayerInput(own, sources, edges)) if edges else {}
        else:
            found = own
        for number in self.rows:
            row_layer(self.model, number, weights, self.kind, found, kept)
        made = {name: kept[name] for name in self.keeps} | ({CURRENT: found[self.kind]} if self.kind in found else {})
        return {name: one.to(torch.float32) for name, one in made.items()}


def segments_of(model: AnyDeclared) -> list[list[ModelSegment]]:
    """Return the segments of a model in order, those of all kinds together; one that changes no rows is left out."""
    convs = [i for i, layer in enumerate(model.layers) if isinstance(layer, Conv | HeteroConv)]
    found = []
    for number, (conv, end) in enumerate(zip([None, *convs], [*convs, len(model.layers)], strict=True)):
        rows = range(0 if conv is None else conv + 1, end)
        every = [_segment(model, number, kind, conv, rows) for kind in kinds_of(model)]
        found.append([one for one in every if one.relations or _row_layers(model, one.kind, rows)])
    return found


def kinds_of(model: AnyDeclared) -> list[str]:
    """Return the kinds of vertices, one without a name where there are none."""
    return list(model.kinds) if isinstance(model, KindsModel) else [""]


def _segment(model: AnyDeclared, number: int, kind: str, conv: int | None, rows: range) -> ModelSegment:
    ends = dict[int, str]()
    if conv is not None:
        for relation in relations_of(model.layers[conv]):  # type: ignore[arg-type]
            source, target = _ends(model, relation)
            if target == kind:
                ends[relation] = source
    keeps, reads = dict[str, None](), dict[str, None]()
    for one in _row_layers(model, kind, rows):
        if isinstance(one, Keep):
            keeps[one.name] = None
        elif isinstance(one, Join):
            reads |= dict.fromkeys(name for name in one.of if name != CURRENT and name not in keeps)
    return ModelSegment(model, number, kind, conv, rows, tuple(ends), tuple(keeps), tuple(reads), ends)


def _ends(model: AnyDeclared, relation: int) -> tuple[str, str]:
    if not isinstance(model, KindsModel):
        return "", ""
    return model.relations[relation].source, model.relations[relation].target


def _row_layers(model: AnyDeclared, kind: str, rows: range) -> list[object]:
    found = list[object]()
    for number in rows:
        layer = model.layers[number]
        found += layer.layers.get(kind, ()) if isinstance(layer, ByKind) else [layer]
    return found
