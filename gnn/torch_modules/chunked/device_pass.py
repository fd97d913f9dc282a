"""A pass of a model over a whole graph, segment by segment, in chunks of targets that fit the memory of a device.

Rows that the next chunk reads, too, stay on the device; the others are copied while a chunk is computed.
Source: NeutronRT, section 5 (rows shared by chunks stay on the GPU, and copies overlap with computing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.rows.jumps import CURRENT
from freshet.gnn.torch_modules.chunked.costs import ChunkCosts, Widths, costs_of
from freshet.gnn.torch_modules.chunked.degrees import KNOWN, ROWS, TOTALS, ChunkSources, SourceDegrees
from freshet.gnn.torch_modules.chunked.device import DeviceCopies, DeviceMemoryError, FoundDevice, PassFigures
from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget, SourceNumbers
from freshet.gnn.torch_modules.chunked.segment import (
    AnyDeclared,
    ChunkEdges,
    ChunkInput,
    ModelSegment,
    segments_of,
)
from freshet.gnn.torch_modules.graphs import ModelPass
from freshet.gnn.torch_modules.passes import convs_by_place
from freshet.gnn.torch_modules.registry import conv_of

Rows = Mapping[str, Mapping[str, np.ndarray]]
"""Rows of all vertices by kind and name, (n, width) float32; those of the layer before are `CURRENT`."""
Write = Callable[[str, int, np.ndarray], None]
"""Takes new rows: their name, the first target, and the rows."""
_ALL = slice(None)
_FIRST_TARGETS = 1 << 12  # that are looked at for the first chunk


class _Moves(NamedTuple):
    """Origin of the rows of a kind in a chunk.

    Shapes: places (n,) int64, numbers in the chunk of the rows that are copied, then of those that the chunk before
    has; kept (k,) int32, the numbers of the latter in the chunk before
    """

    places: Tensor
    kept: Tensor


class _Chunk(NamedTuple):
    """A chunk of targets, its vertices by kind, and its input, in which rows are those that are copied."""

    first: int
    ids: dict[str, np.ndarray]
    given: ChunkInput
    moves: dict[str, _Moves]

    def tensors(self) -> list[Tensor]:
        """Return all that is copied."""
        every = [*self.given.rows.values(), *self.given.kept.values()]
        for some in (*self.given.edges.values(), *self.moves.values()):
            every += [one for one in some if one is not None]
        return every

    def copied(self, copies: DeviceCopies) -> _Chunk:
        """Begin to copy it to the device."""
        there = iter(copies.to_device(self.tensors()))
        rows, kept = ({name: next(there) for name in some} for some in (self.given.rows, self.given.kept))
        edges = {
            n: ChunkEdges(*(None if one is None else next(there) for one in some))
            for n, some in self.given.edges.items()
        }
        moves = {kind: _Moves(next(there), next(there)) for kind in self.moves}
        return self._replace(given=self.given._replace(rows=rows, kept=kept, edges=edges), moves=moves)


@dataclass(frozen=True)
class DevicePlan:
    """Segments of a model with their costs, those of all kinds that change together."""

    model: AnyDeclared
    segments: list[list[ChunkCosts]]
    widths: list[Widths]
    """In front of each list of segments, and behind the last one."""
    weight_bytes: int

    def least(self, edges: Mapping[int, EdgesByTarget]) -> int:
        """Return the least memory of a device that does for a graph."""
        found = [one.least({n: edges[n] for n in one.segment.relations}) for some in self.segments for one in some]
        return self.weight_bytes + int(np.ceil(max(found)))


def plan_device_pass(model: AnyDeclared, attrs: Mapping[int, int]) -> DevicePlan:
    """Return the plan of a model; `attrs` are the widths of attributes that the edges of a relation bring.

    Raises: ExportError naming a layer without a form in torch, which a `freshet.Layer` is.
    """
    for place, conv in convs_by_place(model):
        conv_of(conv, place)
    weights = ModelPass(model).double()
    widths: list[Widths] = [_first_widths(model)]
    found = []
    for some in segments_of(model):
        before = widths[-1]
        found.append([costs_of(one, weights, before, attrs) for one in some])
        after = {kind: dict(names) for kind, names in before.items()}
        if some and some[0].conv is not None:
            for kind in after:  # kinds that no relation reaches are not there any more
                after[kind].pop(CURRENT, None)
        for one in found[-1]:
            after[one.segment.kind] |= one.out
        widths.append(after)
    size = sum(one.nbytes for one in weights.state_dict().values())
    return DevicePlan(model, found, widths, size)


def _first_widths(model: AnyDeclared) -> Widths:
    if not isinstance(model, KindsModel):
        return {"": {CURRENT: model.features.width}}
    return {kind: {CURRENT: model.kinds[kind], **parts} for kind, parts in model.row_parts().items()}


class DevicePass:
    """Runs the segments of a plan on a device, for one graph.

    Invariant: the rows are those of the whole graph at once, but for the order of sums in float64.
    """

    def __init__(self, plan: DevicePlan, found: FoundDevice, edges: Mapping[int, EdgesByTarget]) -> None:
        self._weights = ModelPass(plan.model).double().to(found.device)
        self._device, self._edges = found, edges
        self._budget = found.memory - plan.weight_bytes

    def run(
        self, costs: ChunkCosts, vertices: Mapping[str, int], rows: Rows, write: Write,
        progress: Callable[[int], None] = lambda _: None,
    ) -> PassFigures:  # fmt: skip
        """Make the rows of a segment's targets; `progress` gets the number of targets that are done.

        Raises: DeviceMemoryError where the device has less memory than the budget.
        """
        began = time.perf_counter()
        copies = DeviceCopies(self._device.device)
        try:
            self._run(costs, vertices, rows, write, progress, copies)
        except torch.OutOfMemoryError as error:
            msg = (
                f"{self._device.name}: has less memory than the {self._device.memory:,} bytes that chunks may take; "
                f"give a smaller --device-memory and run the same command again ({str(error).splitlines()[0]})"
            )
            raise DeviceMemoryError(msg) from None
        copies.finish()
        figures = copies.figures
        figures.rows, figures.seconds = vertices[costs.segment.kind], time.perf_counter() - began
        return figures

    def _run(
        self, costs: ChunkCosts, vertices: Mapping[str, int], rows: Rows, write: Write,
        progress: Callable[[int], None], copies: DeviceCopies,
    ) -> None:  # fmt: skip
        segment = costs.segment
        degrees = {n: SourceDegrees.of(vertices[segment.kind]) for n in segment.of_degrees()}
        with torch.no_grad():
            for step in (TOTALS, ROWS) if degrees else ():
                for one in degrees.values():
                    one.step = step
                for chunk in self._host_chunks(costs, vertices, rows, copies, of_degrees=True):
                    self._read_degrees(segment, chunk, degrees, copies)
            for one in degrees.values():
                one.step = KNOWN
            chunks = self._host_chunks(costs, vertices, rows, copies)
            for first, made in self._computed(segment, chunks, degrees, copies):
                for name, new in made.items():
                    write(name, first, new)
                progress(first + len(next(iter(made.values()), ())))

    def _computed(
        self, segment: ModelSegment, chunks: Iterator[_Chunk], degrees: dict[int, SourceDegrees], copies: DeviceCopies
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield the results of each chunk; while one is computed the next one is copied, and the one before written."""
        rows, ended = dict[str, Tensor](), None
        with ThreadPoolExecutor(1, "chunks") as ahead:
            waiting = ahead.submit(next, chunks, None)
            chunk = self._following(waiting, copies)
            while chunk is not None:
                waiting = ahead.submit(next, chunks, None)
                copies.arrived(chunk.tensors())
                with copies.computing():
                    rows = {kind: self._gathered(kind, chunk, rows, copies) for kind in chunk.given.rows}
                    far = self._far(segment, chunk, degrees)
                    made = segment.compute(self._weights, chunk.given._replace(rows=rows), far)
                before, ended = ended, (chunk.first, copies.to_host(made))
                del made
                copies.figures.chunks += 1
                chunk = self._following(waiting, copies)
                if before is not None:
                    yield before[0], before[1]()
        if ended is not None:
            yield ended[0], ended[1]()

    def _following(self, waiting: Future[_Chunk | None], copies: DeviceCopies) -> _Chunk | None:
        chunk = waiting.result()
        return None if chunk is None else chunk.copied(copies)

    def _far(
        self, segment: ModelSegment, chunk: _Chunk, degrees: Mapping[int, SourceDegrees]
    ) -> dict[int, ChunkSources]:
        ids = chunk.ids[segment.kind]
        return {n: one.chunk(chunk.first, chunk.given.targets, ids) for n, one in degrees.items()}

    def _read_degrees(
        self, segment: ModelSegment, chunk: _Chunk, degrees: dict[int, SourceDegrees], copies: DeviceCopies
    ) -> None:
        there = chunk.copied(copies)
        copies.arrived(there.tensors())
        for n, far in self._far(segment, chunk, degrees).items():
            segment.read_degrees(n, there.given.edges[n].as_messages(chunk.given.targets, far))

    def _gathered(self, kind: str, chunk: _Chunk, before: Mapping[str, Tensor], copies: DeviceCopies) -> Tensor:
        """Return the rows of a kind in a chunk: those that came, and those that the chunk before has on the device."""
        new = chunk.given.rows[kind]
        if kind not in chunk.moves:
            return new
        places, kept = chunk.moves[kind]
        rows = new.new_empty((len(places), new.shape[1]))
        rows.index_copy_(0, places[: len(new)], new)
        old = before[kind].index_select(0, kept)
        rows.index_copy_(0, places[len(new) :], old)
        copies.figures.bytes_kept += old.nbytes
        return rows

    def _host_chunks(
        self, costs: ChunkCosts, vertices: Mapping[str, int], rows: Rows, copies: DeviceCopies, *,
        of_degrees: bool = False,
    ) -> Iterator[_Chunk]:  # fmt: skip
        """Yield the chunks; `of_degrees`: with the edges of convs that read degrees, and without rows."""
        segment = costs.segment
        relations = segment.of_degrees() if of_degrees else list(segment.relations)
        numbers = {kind: SourceNumbers(vertices[kind]) for kind in segment.source_kinds}
        for first, last in self._ranges(costs, vertices):
            targets = np.arange(first, last, dtype=np.int32)
            for kind, one in numbers.items():
                counts = (self._edges[n].count_of(first, last) for n in relations if segment.ends[n] == kind)
                one.begin(len(targets) * (kind == segment.kind) + sum(counts))
            numbers[segment.kind].add(targets)
            edges = {n: self._edges_of(n, first, last, numbers[segment.ends[n]], copies) for n in relations}
            ids = {kind: one.ids for kind, one in numbers.items()}
            given = ChunkInput(len(targets), {}, {}, edges)
            if of_degrees:
                yield _Chunk(first, ids, given, {})
                continue
            new, moves = dict[str, Tensor](), dict[str, _Moves]()
            for kind, one in numbers.items():
                of_kind = rows[kind].get(CURRENT, np.empty((vertices[kind], 0), np.float32))
                is_kept = one.before >= 0
                new[kind] = copies.gathered(of_kind, one.ids[~is_kept])
                if is_kept.any():
                    places = np.concatenate([np.flatnonzero(~is_kept), np.flatnonzero(is_kept)])
                    moves[kind] = _Moves(*(copies.gathered(of, _ALL) for of in (places, one.before[is_kept])))
            kept = {name: copies.gathered(rows[segment.kind][name], slice(first, last)) for name in segment.reads}
            yield _Chunk(first, ids, given._replace(rows=new, kept=kept), moves)

    def _edges_of(
        self, relation: int, first: int, last: int, numbers: SourceNumbers, copies: DeviceCopies
    ) -> ChunkEdges:
        edges = self._edges[relation]
        here = edges.of_targets(first, last)
        dst = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(edges.ends[first : last + 1]))
        ends = (copies.gathered(of, _ALL) for of in (numbers.add(edges.src[here]), dst))
        values = (None if of is None else copies.gathered(of, edges.order[here]) for of in (edges.weight, edges.attr))
        return ChunkEdges(*ends, *values)

    def _ranges(self, costs: ChunkCosts, vertices: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Yield the first target of each chunk and the one behind its last: as many as fit the budget."""
        segment = costs.segment
        seen = {n: np.zeros(vertices[segment.ends[n]], np.int32) for n in segment.relations}
        edges = {n: self._edges[n] for n in segment.relations}
        first, count, size, token = 0, vertices[segment.kind], _FIRST_TARGETS, 0
        while first < count:
            token, until = token + 1, min(count, first + size)
            found = {n: one.first_seen(first, until, seen[n], token) for n, one in edges.items()}
            needed = costs.of_targets(first, until, found, edges)
            fitting = int(np.searchsorted(needed, self._budget, side="right"))
            if fitting == until - first and until < count:
                size *= 2
                continue
            last = first + max(1, fitting)  # one alone fits, as `DevicePlan.least` says
            yield first, last
            first, size = last, max(16, 2 * (last - first))
