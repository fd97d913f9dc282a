"""Memory and disk that an embedding needs where vertices have kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.job.embed.needs import JOB_EDGE_BYTES, JOB_VERTEX_BYTES, JOB_VERTEX_LAYER_BYTES, layer_edge_bytes
from freshet.kinds import NO_MIRROR, Kinds
from freshet.operators.snapshot.reader import Snapshot

_RELATION_BYTES = 28  # of a vertex at each end of a relation: places in lists, and a count
_BATCH = 1 << 17


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
