"""Memory and disk that an embedding needs, reported before it starts, which is refused if they are not available."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.plan import LayerPlan, Plan
from freshet.job.errors import JobFailed, UsageError
from freshet.job.units import format_size, readable
from freshet.kinds import NO_MIRROR, Kinds
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.embed.id_numbers import dictionary_bytes
from freshet.operators.embed.memory_plan import (
    CONTEXT_BYTES,
    BudgetError,
    LayerColumns,
    held_passes,
    layer_memory,
    least_memory,
    output_block_rows,
    shape_of,
)
from freshet.operators.embed.prepare import sorting_bytes
from freshet.operators.snapshot.reader import Snapshot
from freshet.partitioner.events import INT
from freshet.schema import Features

_EDGE_BYTES = 16  # while edges are sorted
_MIB = 1 << 20
# Of the streaming job (docs/reference/memory.md): the Partitioner's tables and its hash index; adjacency at a layer,
# both ways.
JOB_EDGE_BYTES, _EDGE_LAYER_BYTES = 72, 12
JOB_VERTEX_BYTES, JOB_VERTEX_LAYER_BYTES = 84, 60
_RELATION_BYTES = 28  # of a vertex at each end of a relation: places in lists, and a count
_BATCH = 1 << 17


def layer_edge_bytes(edge: EdgeReads) -> int:
    """Bytes of an edge in the tables of a layer whose messages read this of it."""
    return _EDGE_LAYER_BYTES + (12 + 4 * edge.row_width if edge.row_width else 0)


@dataclass(frozen=True)
class Needs:
    """An embedding's size, by what the snapshot's files say of themselves.

    Units: bytes; `edges` with both ways of an undirected one.
    """

    vertices: int
    edges: int
    text: int
    shapes: list[LayerColumns]
    layers: list[LayerPlan]
    features: Features
    weighted: bool
    files: int
    """The snapshot's own files, which S2 gets too."""

    @property
    def prepare_memory(self) -> int:
        """While ids are numbered: the dictionary, and counts by source."""
        return dictionary_bytes(self.vertices, self.text) + 4 * self.vertices + 2 * _MIB

    @property
    def edge_width(self) -> int:
        """Width of the attributes of edges."""
        return self.features.edge_width

    @property
    def feature_bytes(self) -> int:
        """Features of all vertices."""
        return self.features.row_bytes * self.vertices

    @property
    def out_bytes(self) -> int:
        """All embeddings."""
        return 4 * self.shapes[-1].out * self.vertices

    @property
    def passed_bytes(self) -> int:
        """The most that vertices send to a layer, with the rows that they have there."""
        return 4 * max(self.features.width, *(shape.sent + shape.out for shape in self.shapes)) * self.vertices

    @property
    def operator_bytes(self) -> list[int]:
        """Approximate size of the tables of a streaming job's operators: Partitioner, features, and each layer."""
        found = [JOB_VERTEX_BYTES * self.vertices + JOB_EDGE_BYTES * self.edges, self.feature_bytes]
        for shape, layer in zip(self.shapes, self.layers, strict=True):
            rows = 12 * shape.message + 4 * (shape.sent - shape.message) + 4 * shape.out
            vertices = (JOB_VERTEX_LAYER_BYTES + rows) * self.vertices
            found.append(vertices + layer_edge_bytes(layer.edge) * self.edges)
        return found

    @property
    def job_memory(self) -> int:
        """Approximate size of the tables of a streaming job on this graph."""
        return sum(self.operator_bytes)

    def disk(self, options: EngineOptions, order: str, linked: bool) -> int:
        """The most that lies on the disk at a time; a cold store counts with every row that it can get."""
        ids = 8 * self.vertices + self.text
        topology = (4 + 4 * self.weighted) * self.edges + 40 * self.vertices
        topology += 4 * (self.edges + self.vertices) * (options.eviction == "next-use")
        features = self.features.row_bytes * self.vertices * (1 + (order == "completion"))
        most = features + ids + 2 * _EDGE_BYTES * self.edges + topology
        before = self.features.row_bytes
        for shape in self.shapes:
            rows = before + 4 * shape.out + 8 + (0 if options.passes not in (1, None) else 8 * shape.columns)
            most = max(most, ids + topology + rows * self.vertices)
            before = 4 * shape.out + 4
        last = ids + topology + (8 * self.shapes[-1].out + 30) * self.vertices + self.text
        return max(most, last) + (0 if linked else self.files)


def needs_of(plan: Plan, snapshot: Snapshot, *, undirected: bool) -> Needs:
    """The needs of embedding a snapshot."""
    return Needs(
        snapshot.vertices,
        snapshot.edges * (1 + undirected),
        text_bytes(snapshot),
        [shape_of(layer) for layer in plan.layers],
        plan.layers,
        plan.features,
        any(layer.edge.weighted for layer in plan.layers),
        file_bytes(snapshot),
    )


def text_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of all ids that are strings."""
    return 0 if snapshot.id_kind == INT else _bytes_of_column(snapshot.folder / "vertices.parquet", "id")


def file_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of the snapshot's own files."""
    return sum((snapshot.folder / name).stat().st_size for name in ("vertices.parquet", "edges.parquet"))


def _bytes_of_column(path: Path, name: str) -> int:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
        columns = [group.column(k) for group in groups for k in range(group.num_columns)]
        # a dictionary holds equal texts once, and ids differ
        return sum(one.total_uncompressed_size for one in columns if one.path_in_schema == name)


def memory_lines(
    needs: Needs, options: EngineOptions, side_by_side: int = 1, passes: Sequence[int] | None = None
) -> list[str]:
    """Describe, for people, the share of each step in the budget, and the memory of a later job.

    `side_by_side`: passes of a layer that are done at a time, and share the budget; `passes`: of each layer, where that
    is settled.
    Raises: UsageError when a step does not fit.
    """
    least = max(needs.prepare_memory, side_by_side * least_memory(needs.vertices, needs.shapes))
    of_pass = replace(options, memory=options.memory // side_by_side)
    spread = f", {side_by_side} passes at a time, each" if side_by_side > 1 else ""
    preparing = max(needs.prepare_memory, sorting_bytes(options.memory, needs.vertices))
    lines = [f"memory: {readable(options.memory)}, beside what Python and its libraries take"]
    try:
        if options.memory < needs.prepare_memory:
            raise BudgetError
        lines.append(f"  reading and sorting: up to {readable(min(options.memory, preparing))}")
        for number, shape in enumerate(needs.shapes, 1):
            of_layer = of_pass if passes is None else replace(of_pass, passes=passes[number - 1])
            lines.append(f"  layer {number}{spread}: {_layer_line(needs, of_layer, shape)}")
    except BudgetError:
        msg = (
            f"--memory {format_size(options.memory)}: too little for {needs.vertices:,} vertices and "
            f"{needs.edges:,} edges; give {format_size(-(-least // _MIB) * _MIB)} or more"
        )
        raise UsageError(msg) from None
    job = readable(needs.job_memory)
    lines.append(f"  a later `freshet run` on this graph: about {job} in its tables")
    return lines


def _layer_line(needs: Needs, options: EngineOptions, shape: LayerColumns) -> str:
    passes = options.passes
    if shape.held:
        passes = held_passes(options.memory, needs.vertices, shape, passes or 1)
    block_rows = output_block_rows(options.memory, needs.vertices, shape, passes)
    next_use = options.eviction == "next-use"
    planned = layer_memory(options.memory, needs.vertices, shape, passes or 1, block_rows, next_use=next_use)
    share = 100.0 * planned.slots / max(1, planned.destinations)
    told = "passes as they turn out cheapest" if passes is None else f"{planned.passes} passes"
    state = readable(CONTEXT_BYTES * needs.vertices)
    if shape.held:
        held = f"all {planned.destinations:,} destinations of a pass"
        return f"{readable(planned.bytes)}: contexts {state}, {held}, {told}"
    return (
        f"{readable(planned.bytes)}: contexts {state}, hot store {planned.slots:,} of {planned.destinations:,} "
        f"destinations ({share:.0f}%), {told}"
    )


def check_disk(needed: int, out: Path, used: int) -> str:
    """Describe, for people, the disk space needed and free; `used` is that of an earlier attempt.

    Raises: JobFailed when there is too little.
    """
    free = shutil.disk_usage(out).free
    if needed > free + used:
        msg = (
            f"--out {out}: needs {readable(needed)} of disk while it works, {readable(free + used)} are free; free "
            "some, or name another disk"
        )
        raise JobFailed(msg)
    return f"disk: up to {readable(needed)} while it works, {readable(free + used)} are free"


@dataclass(frozen=True)
class KindsNeeds:
    """Size of an embedding by kind and relation, as the snapshot's files say.

    Units: bytes; `by_relation` has the edges of mirrors, too.
    """

    plan: KindsPlan
    by_kind: tuple[int, ...]
    by_relation: tuple[int, ...]
    text: int
    files: int
    """The snapshot's own files, which S2 gets too."""

    @property
    def vertices(self) -> int:
        """Number of vertices of all kinds."""
        return sum(self.by_kind)

    @property
    def edges(self) -> int:
        """Number of edges of all relations."""
        return sum(self.by_relation)

    @property
    def edge_width(self) -> int:
        """Largest width of attributes."""
        return self.plan.features.edge_width

    @property
    def feature_bytes(self) -> int:
        """Features of all vertices."""
        return 4 * sum(np.multiply(self.by_kind, self.plan.features.widths).tolist())

    @property
    def out_bytes(self) -> int:
        """All embeddings."""
        kinds = self.plan.features.kinds
        assert kinds is not None  # as each such model has them
        return sum(4 * width * self.by_kind[kinds.kind_codes[kind]] for kind, width in self.plan.out.items())

    @property
    def passed_bytes(self) -> int:
        """The most that vertices send to a layer, with the rows that they have there."""
        layers = [
            sum(
                4 * (one.message_width + one.self_width + one.out_width) * n
                for one, n in zip(layer.kinds, self.by_kind, strict=True)
                if one is not None
            )
            for layer in self.plan.layers
        ]
        return max(self.feature_bytes, *layers)

    @property
    def operator_bytes(self) -> list[int]:
        """Approximate size of the tables of a streaming job's operators: Partitioner, features, and each layer."""
        found = [JOB_VERTEX_BYTES * self.vertices + JOB_EDGE_BYTES * self.edges]
        found.append(4 * sum(np.multiply(self.by_kind, self.plan.row_widths).tolist()))
        for layer in self.plan.layers:
            total = 0
            for one, n in zip(layer.kinds, self.by_kind, strict=True):
                if one is not None:
                    rows = 4 * (one.message_width + one.self_width + one.out_width)
                    total += n * (JOB_VERTEX_LAYER_BYTES + rows)
            for relation in layer.relations:
                ends = self.by_kind[relation.source] + self.by_kind[relation.target]
                edges = sum(self.by_relation[number] for number in relation.numbers)
                kept = min(edges, len(relation.numbers) * self.by_kind[relation.target])  # pairs with edges
                total += _RELATION_BYTES * ends + layer_edge_bytes(relation.edge) * edges
                total += kept * relation.synopsis.state_bytes(relation.message_width)
            found.append(total)
        return found

    @property
    def job_memory(self) -> int:
        """Approximate size of the tables of a streaming job on this graph."""
        return sum(self.operator_bytes)


def kinds_needs(plan: KindsPlan, snapshot: Snapshot, text: int, files: int, *, undirected: bool) -> KindsNeeds:
    """Count vertices by kind and edges by relation; rows that name none of the model's are refused as they are read.

    Raises: KindsError where edges between two kinds are to be undirected.
    """
    kinds = plan.features.kinds
    assert kinds is not None  # as each such model has them
    by_kind = [snapshot.vertices]
    if kinds.are_named:
        found = _counted(snapshot.folder / "vertices.parquet", ("kind",))
        by_kind = [found[(name,)] for name in kinds.names]
    counts = [0] * len(kinds.relations)
    for names, many in _counted(snapshot.folder / "edges.parquet", ("type", "src_kind", "dst_kind")).items():
        for number in _relation_of(kinds, names):
            counts[number] += many
    for number, mirror in enumerate(kinds.mirrors(undirected=undirected).tolist()):
        if mirror != NO_MIRROR:
            counts[mirror] += counts[number]
    return KindsNeeds(plan, tuple(by_kind), tuple(counts), text, files)


def _counted(path: Path, columns: Sequence[str]) -> Counter[tuple[str | None, ...]]:
    """Return how many rows have which texts in these columns; None in one that is not there."""
    found: Counter[tuple[str | None, ...]] = Counter()
    with pq.ParquetFile(path) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(_BATCH, columns=there):
            texts = pa.table([pc.cast(batch.column(name), pa.string()) for name in there], names=there)
            for row in texts.group_by(there).aggregate([([], "count_all")]).to_pylist():
                found[tuple(row.get(name) for name in columns)] += row["count_all"]
    return found


def _relation_of(kinds: Kinds, names: Sequence[str | None]) -> list[int]:
    """Return the relation that a type and the kinds of its ends name; none where they name none, or several."""
    name, *ends = names
    if any(end is not None and end not in kinds.kind_codes for end in ends):
        return []
    source, target = (None if end is None else kinds.kind_codes[end] for end in ends)
    matching = kinds.matching(name or "", source, target)
    return matching if len(matching) == 1 else []
