"""Memory and disk that an embedding needs, reported before it starts, which is refused if they are not available."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.gnn.any_plan import AnyPlan, aggregated, returned_of, without_kinds
from freshet.gnn.kind_layers.plans import KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.plan import LayerPlan
from freshet.job.errors import JobFailed, UsageError
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import option_values
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
from freshet.operators.embed.prepare import record_bytes, sorting_bytes
from freshet.operators.parser.keys import KEY_FIELD
from freshet.operators.snapshot.reader import Snapshot
from freshet.partitioner.config import STREAM, PartitionerConfig
from freshet.partitioner.ids import INT, STRING
from freshet.partitioner.placement.whole_graph import EDGE_BYTES, EDGES_MAX
from freshet.schema import KEY_BYTES

_MIB = 1 << 20
# Of the streaming job (docs/reference/memory.md): the Partitioner's tables and its hash index; adjacency at a layer,
# both ways.
_JOB_EDGE_BYTES, _EDGE_LAYER_BYTES = 72, 12
_JOB_VERTEX_BYTES, _VERTEX_LAYER_BYTES = 84, 60
_RELATION_BYTES = 28  # of a vertex at each end of a relation: places in lists, and a count
# While the graph is placed: of an edge its rows, log, record and column of a block, and its entries of the hash index;
# of a vertex its log, record and columns; of each part that it may have a row in the record. Measured by
# scripts/bench/image.py.
_PLACED_EDGE_BYTES, _REPLICATED_EDGE_BYTES, _PLACED_VERTEX_BYTES, _ROW_BYTES = 64, 48, 120, 16
_RELATION_EDGE_BYTES = 8  # of an edge where vertices have kinds
_PLACED_KEY_BYTES = 28  # of it where edges have keys: index of pairs, hash of the key, column of a block
_WHOLE_EDGE_BYTES = 32  # of it while METIS works (partitioner/placement/whole_graph.py): log and index alone
_EVENT_BYTES = 33  # on the disk
_BATCH = 1 << 17


@dataclass(frozen=True)
class Needs:
    """Size of an embedding by kind and relation, as the snapshot's files say; without kinds there is one of each.

    Units: bytes; `by_relation` has both ways of undirected edges, and the edges of mirrors.
    """

    plan: AnyPlan
    by_kind: tuple[int, ...]
    by_relation: tuple[int, ...]
    text: int
    """All ids that are strings."""
    files: int
    """The snapshot's own files, which S2 gets too."""
    key_kind: str = ""
    """Of the keys of edges, as the snapshot has it."""
    key_text: int = 0
    """All keys that are strings, of edges as `by_relation` counts them."""

    @property
    def vertices(self) -> int:
        """Number of vertices of all kinds."""
        return sum(self.by_kind)

    @property
    def edges(self) -> int:
        """Number of edges of all relations."""
        return sum(self.by_relation)

    @property
    def key_bytes(self) -> int:
        """Keys of all edges in the tables of a job's Partitioner; a text has room of its own, up to twice as long."""
        return (KEY_BYTES * self.edges if self.key_kind else 0) + 2 * self.key_text

    @property
    def shapes(self) -> list[LayerColumns]:
        """Columns of each layer, of a model that is embedded in passes."""
        return [shape_of(layer) for layer in without_kinds(self.plan, "an embedding in passes").layers]

    @property
    def prepare_memory(self) -> int:
        """While ids are numbered: the dictionary, and counts by source."""
        return dictionary_bytes(self.vertices, self.text) + 4 * self.vertices + 2 * _MIB

    @property
    def feature_bytes(self) -> int:
        """Features of all vertices."""
        return self._row_bytes(self.plan.features.widths)

    @property
    def out_bytes(self) -> int:
        """All embeddings."""
        return sum(4 * one.width * self.by_kind[one.number] for one in returned_of(self.plan))

    @property
    def passed_bytes(self) -> int:
        """The most that vertices send to a layer, with the rows that they have there."""
        return max(self.feature_bytes, *(rows for _, rows in map(self._vertices_of, self.plan.layers)))

    @property
    def operator_bytes(self) -> list[int]:
        """Approximate size of the tables of a streaming job's operators: Partitioner, features, and each layer."""
        widths = self.plan.row_widths if isinstance(self.plan, KindsPlan) else self.plan.features.widths
        graph = _JOB_VERTEX_BYTES * self.vertices + _JOB_EDGE_BYTES * self.edges + self.key_bytes
        found = [graph, self._row_bytes(widths)]
        for layer in self.plan.layers:
            vertices, rows = self._vertices_of(layer)
            found.append(_VERTEX_LAYER_BYTES * vertices + rows + sum(map(self._edges_of, layer.relations)))
        return found

    @property
    def job_memory(self) -> int:
        """Approximate size of the tables of a streaming job on this graph."""
        return sum(self.operator_bytes)

    def _row_bytes(self, widths: Sequence[int]) -> int:
        return sum(4 * width * n for width, n in zip(widths, self.by_kind, strict=True))

    def _vertices_of(self, layer: LayerPlan | KindsLayer) -> tuple[int, int]:
        """Return the vertices that have a part in a layer, and the bytes of the rows that they send and have there."""
        kinds = layer.kinds if isinstance(layer, KindsLayer) else [layer]
        there = [(n, one) for n, one in zip(self.by_kind, kinds, strict=True) if one is not None]
        widths = [one.message_width + one.self_width + one.out_width for _, one in there]
        return sum(n for n, _ in there), sum(4 * width * n for width, (n, _) in zip(widths, there, strict=True))

    def _edges_of(self, aggregated: LayerPlan | RelationPlan) -> int:
        """Return the bytes of edges and synopses in the tables of a layer, or of one of its relations."""
        wide = aggregated.edge.row_width
        edge = _EDGE_LAYER_BYTES * (2 if self.key_kind else 1) + (12 + 4 * wide if wide else 0)
        if not isinstance(aggregated, RelationPlan):
            return edge * self.edges + 8 * aggregated.message_width * self.vertices
        sources, targets = self.by_kind[aggregated.source], self.by_kind[aggregated.target]
        edges = sum(self.by_relation[number] for number in aggregated.numbers)
        kept = min(edges, len(aggregated.numbers) * targets)  # pairs with edges
        synopses = kept * aggregated.synopsis.state_bytes(aggregated.message_width)
        return edge * edges + synopses + _RELATION_BYTES * (sources + targets)

    def disk(self, options: EngineOptions, order: str, linked: bool) -> int:
        """The most that lies on the disk at a time in passes; a cold store counts with every row that it can get."""
        shapes, is_weighted = self.shapes, any(one.edge.weighted for one in aggregated(self.plan))
        ids = 8 * self.vertices + self.text
        topology = (4 + 4 * is_weighted) * self.edges + 40 * self.vertices
        topology += 4 * (self.edges + self.vertices) * (options.eviction == "next-use")
        most = self.feature_bytes * (1 + (order == "completion"))
        most += ids + 2 * record_bytes(self.key_kind) * self.edges + topology
        before = self.plan.features.row_bytes
        for shape in shapes:
            rows = before + 4 * shape.out + 8 + (0 if options.passes not in (1, None) else 8 * shape.columns)
            most = max(most, ids + topology + rows * self.vertices)
            before = 4 * shape.out + 4
        last = ids + topology + (8 * shapes[-1].out + 30) * self.vertices + self.text
        return max(most, last) + (0 if linked else self.files)


def needs_of(plan: AnyPlan, snapshot: Snapshot, *, undirected: bool) -> Needs:
    """Return the needs of embedding a snapshot; rows of no kind or relation of the model are refused as they are read.

    Raises: KindsError where edges between two kinds are to be undirected.
    """
    vertices, edges = snapshot.folder / "vertices.parquet", snapshot.folder / "edges.parquet"
    text = 0 if snapshot.id_kind == INT else _bytes_of_column(vertices, "id")
    by_kind, counts = [snapshot.vertices], [snapshot.edges * (1 + undirected)]
    if (kinds := plan.features.kinds) is not None:
        if kinds.are_named:
            found = _counted(vertices, ("kind",))
            by_kind = [found[(name,)] for name in kinds.names]
        counts = [0] * len(kinds.relations)
        for names, many in _counted(edges, ("type", "src_kind", "dst_kind")).items():
            for number in _relation_of(kinds, names):
                counts[number] += many
        for number, mirror in enumerate(kinds.mirrors(undirected=undirected).tolist()):
            if mirror != NO_MIRROR:
                counts[mirror] += counts[number]
    files = vertices.stat().st_size + edges.stat().st_size
    keys = _bytes_of_column(edges, KEY_FIELD) if snapshot.key_kind == STRING else 0
    keys = keys * sum(counts) // max(snapshot.edges, 1)  # of other directions and of mirrors, too
    return Needs(plan, tuple(by_kind), tuple(counts), text, files, snapshot.key_kind, keys)


def _bytes_of_column(path: Path, name: str) -> int:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
        columns = [group.column(k) for group in groups for k in range(group.num_columns)]
        # a dictionary holds equal texts once, and ids differ
        return sum(one.total_uncompressed_size for one in columns if one.path_in_schema == name)


def lines_of_passes(
    needs: Needs, options: EngineOptions, side_by_side: int = 1, passes: Sequence[int] | None = None
) -> list[str]:
    """Describe, for people, the share of each step in the budget, and the memory of a later job.

    `side_by_side`: passes of a layer that are done at a time, and share the budget; `passes`: of each layer, where that
    is settled.
    Raises: UsageError when a step does not fit.
    """
    memory, shapes = options.memory, needs.shapes
    of_pass = replace(options, memory=memory // side_by_side)
    spread = f", {side_by_side} passes at a time, each" if side_by_side > 1 else ""
    preparing = max(needs.prepare_memory, sorting_bytes(memory, needs.vertices, needs.key_kind))
    lines = [f"reading and sorting: up to {readable(min(memory, preparing))}"]
    try:
        if memory < needs.prepare_memory:
            raise BudgetError
        for number, shape in enumerate(shapes, 1):
            of_layer = of_pass if passes is None else replace(of_pass, passes=passes[number - 1])
            lines.append(f"layer {number}{spread}: {_layer_line(needs, of_layer, shape)}")
    except BudgetError:
        least = max(needs.prepare_memory, side_by_side * least_memory(needs.vertices, shapes))
        msg = f"{_too_little(needs, memory, 'for')}; {_give(least)}"
        raise UsageError(msg) from None
    return _described(needs, memory, lines)


def placing_memory(needs: Needs, placement: PartitioningOptions) -> int:
    """The private memory of the step that takes most: the graph's topology is placed as a whole."""
    parts = placement.parts or 1
    edge = _PLACED_EDGE_BYTES + _REPLICATED_EDGE_BYTES * (parts > 1)
    edge += 0 if needs.plan.features.kinds is None else _RELATION_EDGE_BYTES
    if (
        parts > 1
        and PartitionerConfig(**option_values(placement, PartitionerConfig)).places_whole
        and needs.edges <= EDGES_MAX
    ):
        edge = max(edge, EDGE_BYTES + _WHOLE_EDGE_BYTES)
    edge += _PLACED_KEY_BYTES if needs.key_kind else 0
    rows = min(parts * needs.vertices, needs.vertices + 2 * needs.edges)  # an edge brings two replicas at most
    return edge * needs.edges + _PLACED_VERTEX_BYTES * needs.vertices + _ROW_BYTES * rows + 2 * needs.text + 4 * _MIB


def lines_of_placing(
    needs: Needs, memory: int, placement: PartitioningOptions, other_ways: Sequence[str] = ()
) -> list[str]:
    """Describe, for people, the shares of the steps in the budget where a graph is placed, and of a later job.

    `other_ways`: what else to advise where the budget is too small.
    Raises: UsageError when it is.
    """
    placing = placing_memory(needs, placement)
    if placing > memory:
        stream = placement.model_copy(update={"snapshot_placement": STREAM})
        ways = ["or --snapshot-placement stream"] if placing_memory(needs, stream) <= memory else []
        held = f"{_too_little(needs, memory, 'to place')}, which are held in memory"
        msg = f"{held}; {', '.join([_give(placing), *ways, *other_ways])}"
        raise UsageError(msg)
    layers = f"tables in mapped files, of which sums in {readable(memory // 2)} are written at random at a time"
    return _described(needs, memory, [f"placing the graph: up to {readable(placing)}", f"layers: {layers}"])


def _described(needs: Needs, memory: int, steps: Sequence[str]) -> list[str]:
    later = f"a later `freshet run` on this graph: about {readable(needs.job_memory)} in its tables"
    first = f"memory: {readable(memory)}, beside what Python and its libraries take"
    return [first, *(f"  {one}" for one in (*steps, later))]


def _too_little(needs: Needs, memory: int, what: str) -> str:
    return f"--memory {format_size(memory)}: too little {what} {needs.vertices:,} vertices and {needs.edges:,} edges"


def _give(least: int) -> str:
    return f"give {format_size(-(-least // _MIB) * _MIB)} or more"


def _layer_line(needs: Needs, options: EngineOptions, shape: LayerColumns) -> str:
    passes = options.passes
    if shape.held:
        passes = held_passes(options.memory, needs.vertices, shape, passes or 1)
    block_rows = output_block_rows(options.memory, needs.vertices, shape, passes)
    next_use = options.eviction == "next-use"
    planned = layer_memory(options.memory, needs.vertices, shape, passes or 1, block_rows, next_use=next_use)
    share = 100.0 * planned.slots / max(1, planned.destinations)
    in_passes = "passes as they turn out cheapest" if passes is None else f"{planned.passes} passes"
    state = readable(CONTEXT_BYTES * needs.vertices)
    if shape.held:
        held = f"all {planned.destinations:,} destinations of a pass"
        return f"{readable(planned.bytes)}: contexts {state}, {held}, {in_passes}"
    return (
        f"{readable(planned.bytes)}: contexts {state}, hot store {planned.slots:,} of {planned.destinations:,} "
        f"destinations ({share:.0f}%), {in_passes}"
    )


def disk_bytes(needs: Needs, linked: bool, parts: int, *, rows_alone: bool = False) -> int:
    """The most that lies on the disk at a time where operators embed.

    With `rows_alone` it has one operator's tables, and partial synopses of it.
    """
    tables = max(needs.operator_bytes) * (1 + (parts > 1)) if rows_alone else needs.job_memory
    kept = tables + needs.out_bytes
    events = (_EVENT_BYTES + 8 * needs.plan.features.edge_width) * needs.edges + _EVENT_BYTES * needs.vertices
    events += needs.feature_bytes + 2 * needs.text + needs.key_text + (8 * needs.edges if needs.key_kind else 0)
    return kept + kept // 2 + 2 * needs.passed_bytes + events + (0 if linked else needs.files)


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
