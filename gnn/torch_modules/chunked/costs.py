"""Memory of a device that a chunk takes: measured on small chunks, by target, source and edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.rows.jumps import CURRENT
from freshet.gnn.torch_modules.chunked.degrees import SourceDegrees
from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget
from freshet.gnn.torch_modules.chunked.peak import PeakBytes
from freshet.gnn.torch_modules.chunked.segment import ChunkEdges, ChunkInput, ModelSegment

# Shares of a budget: the arrays that a chunk brings, of which those of the next one come while a chunk is computed, and
# what computing holds. On a device copies have memory of their own, so that both chunks' arrays count there.
INPUT_SHARE, COMPUTE_SHARE = 0.2, 0.6
_BASE, _LESS, _MORE = 8, 64, 128
_FLOAT, _MARGIN = 4, 1.1
_MOVED = 12  # bytes of where a row goes, and where the chunk before has it

Widths = Mapping[str, Mapping[str, int]]
"""Widths of the rows that are there, by kind and name; those of the layer before are `CURRENT`."""


class BytesOf(NamedTuple):
    """Bytes of a chunk: of itself, of a target, of a source of each kind, of an edge of each relation."""

    chunk: float
    target: float
    source: Mapping[str, float]
    edge: Mapping[int, float]


@dataclass(frozen=True)
class ChunkCosts:
    """Bytes that a segment takes on a chunk, while it is copied and while it is computed, and widths of its output."""

    segment: ModelSegment
    copied: BytesOf
    computed: BytesOf
    out: Mapping[str, int]

    def of_targets(
        self, first: int, last: int, found: Mapping[int, np.ndarray], edges: Mapping[int, EdgesByTarget]
    ) -> np.ndarray:
        """Return the budget that the targets from `first` up to each one before `last` need as a chunk, (n,) float64.

        `found`: of each relation the sources that a target has and none before it
        """
        targets = np.arange(1, 1 + last - first)
        counts = {n: one.ends[first + targets] - one.ends[first] for n, one in edges.items()}
        return self._each(targets, {n: np.cumsum(one) for n, one in found.items()}, counts)

    def least(self, edges: Mapping[int, EdgesByTarget]) -> float:
        """Return the least budget in which each target has room as a chunk of its own."""
        counts = {n: np.diff(one.ends) for n, one in edges.items()}
        alone = np.ones(len(next(iter(counts.values()), np.empty(1))))
        return float(self._each(alone, counts, counts).max(initial=self._each(np.ones(1), {}, {})[0]))

    def _each(
        self, targets: np.ndarray, sources: Mapping[int, np.ndarray], counts: Mapping[int, np.ndarray]
    ) -> np.ndarray:
        needed = []
        for share, of in ((INPUT_SHARE, self.copied), (COMPUTE_SHARE, self.computed)):
            total = of.chunk + (of.target + of.source[self.segment.kind]) * targets
            for n in counts:
                total = total + of.source[self.segment.ends[n]] * sources[n] + of.edge[n] * counts[n]
            needed.append(total / share)
        return np.asarray(np.maximum(*needed))


def costs_of(segment: ModelSegment, weights: Module, widths: Widths, attrs: Mapping[int, int]) -> ChunkCosts:
    """Measure what a segment takes on chunks; `attrs` are the widths of attributes that a relation's edges bring.

    Raises: ExportError for a conv that cannot be made in chunks.
    """
    kinds, relations = segment.source_kinds, segment.relations

    def peak(
        targets: int = _BASE, kind: str = "", relation: int = -1, count: int = _BASE
    ) -> tuple[int, dict[str, int]]:
        sizes = {one: count if one == kind else _BASE for one in kinds}
        edges = {n: count if n == relation else _BASE for n in relations}
        return _tried(segment, weights, widths, attrs, targets, sizes, edges)

    def slope(of: str, key: str | int = "") -> float:
        ends = []
        for size in (_LESS, _MORE):
            given: dict[str, object] = {"targets": size} if of == "targets" else {of: key, "count": size}
            ends.append(peak(**given)[0])  # type: ignore[arg-type]
        return _MARGIN * max(0, ends[1] - ends[0]) / (_MORE - _LESS)

    chunk, out = peak()
    width = {kind: _FLOAT * _width(widths, kind) + _MOVED for kind in kinds}
    edge = {n: _FLOAT * (3 + attrs[n]) for n in relations}
    kept = _FLOAT * sum(widths[segment.kind][name] for name in segment.reads)
    return ChunkCosts(
        segment,
        BytesOf(0, kept + _FLOAT * sum(out.values()), width, edge),
        BytesOf(
            chunk, slope("targets"), {kind: slope("kind", kind) for kind in kinds},
            {n: slope("relation", n) for n in relations},
        ),
        out,
    )  # fmt: skip


def _width(widths: Widths, kind: str) -> int:
    return widths[kind].get(CURRENT, 0)


def _tried(
    segment: ModelSegment, weights: Module, widths: Widths, attrs: Mapping[int, int], targets: int,
    sizes: Mapping[str, int], edges: Mapping[int, int],
) -> tuple[int, dict[str, int]]:  # fmt: skip
    """Return the peak on a chunk of random rows, and the widths of what it makes."""
    draw = torch.Generator().manual_seed(0)
    counts = {kind: size + _MORE * (kind == segment.kind) for kind, size in sizes.items()}  # targets come first

    def rows(count: int, width: int) -> torch.Tensor:
        return torch.rand((count, width), generator=draw)

    def ends(below: int, count: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=draw, dtype=torch.int32)

    far = {n: SourceDegrees.of(counts[segment.kind]).chunk(0, targets, np.arange(counts[segment.kind]))
           for n in segment.of_degrees()}  # fmt: skip
    for n in far:
        if segment.ends[n] != segment.kind:
            refuse(f"a conv from {segment.ends[n]!r} to {segment.kind!r} reads degrees of sources")
    with torch.no_grad(), PeakBytes() as measured:
        given = ChunkInput(
            targets,
            {kind: rows(count, _width(widths, kind)) for kind, count in counts.items()},
            {name: rows(targets, widths[segment.kind][name]) for name in segment.reads},
            {
                n: ChunkEdges(
                    ends(counts[segment.ends[n]], count), ends(targets, count), torch.rand(count, generator=draw),
                    rows(count, attrs[n]),
                )
                for n, count in edges.items()
            },
        )  # fmt: skip
        made = segment.compute(weights, given, far)
        found = {name: int(one.shape[1]) for name, one in made.items()}
    return measured.peak, found
