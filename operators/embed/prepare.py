"""A snapshot's rows become numbered vertices, features in their order, and edges sorted by source; all on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshet.operators.embed.edge_sort import EDGE, KEYED_EDGES, EdgeSorter
from freshet.operators.embed.files import DiskFile, EmbedError
from freshet.operators.embed.id_numbers import IdNumbers, SavedIds, owned, save_ids
from freshet.operators.embed.memory_plan import bucket_edges, file_block_rows, sorted_bytes
from freshet.operators.embed.order_kernels import completion_scores, count_sources
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import (
    COUNT,
    DEGREE,
    DST,
    LOOP,
    MORE_LOOPS,
    OFFSETS,
    OUT_COUNT,
    OUT_DEGREE,
    WEIGHT,
    EmbedTopology,
)
from freshet.operators.snapshot.reader import Snapshot, SnapshotError
from freshet.partitioner.config import ONE_TYPE_TOO_MANY, OTHER_ATTR_WIDTH, REASONS, GraphRules
from freshet.partitioner.edge_keys import hash_keys
from freshet.partitioner.events import OP_ADD_VERTEX, Events
from freshet.partitioner.ids import INT, Ids, no_keys
from freshet.state.salt import make_salt
from freshet.state.seed import new_seed

FEATURES, RAW = "features", "raw"
_READ_ROWS_MAX = 65_536


class Prepared(NamedTuple):
    """Contents of the files; kept in the journal."""

    vertices: int
    edges: int
    width: int
    shuffled: bool
    block_rows: int
    rows: dict[str, Any]
    checksums: dict[str, int]
    replaced: int = 0  # edges of the snapshot that repeat one before them

    def features(self, folder: Path) -> RowsFile:
        """The raw features."""
        rows = RowsFile(
            folder / FEATURES, self.vertices, self.width, self.block_rows, shuffled=self.shuffled, new=False
        )
        rows.restore(self.rows)
        return rows

    def check(self, folder: Path) -> None:
        """Check that the topology is what was written.

        Raises: EmbedError naming the file.
        """
        for name, expected in self.checksums.items():
            file = DiskFile(folder / name)
            found = file.crc32()
            file.close()
            if found != expected:
                msg = f"{folder / name}: does not match its checksum; remove the folder and embed again"
                raise EmbedError(msg)


def record_bytes(key_kind: str) -> int:
    """Return the bytes of an edge in the file that is sorted."""
    return KEYED_EDGES[key_kind].itemsize


def sorting_bytes(memory: int, vertices: int, key_kind: str) -> int:
    """Return the memory to sort edges: contexts and counts, and a bucket of edges."""
    record = record_bytes(key_kind)
    return 40 * vertices + sorted_bytes(record) * bucket_edges(memory, vertices, record)


class Preparation:
    """Reads a snapshot once and writes what the engine works on into `folder`."""

    def __init__(
        self,
        snapshot: Snapshot,
        rules: GraphRules,
        folder: Path,
        memory: int,
        progress: Callable[[str], None] = lambda _: None,
        block_memory: int | None = None,
    ) -> None:
        """`block_memory`: of those that read the features, where that is another budget."""
        self._snapshot, self._rules, self._folder, self._memory = snapshot, rules, folder, memory
        self._block_memory = block_memory or memory
        self._progress = progress
        self._numbers = IdNumbers(snapshot.id_kind, snapshot.vertices)
        self._types: dict[str, int] = {}
        self._attr_width = -1
        self._edges = self._loops = 0
        self._counts = np.zeros(snapshot.vertices + 1, np.int32)
        self._edge = KEYED_EDGES[snapshot.key_kind]
        self._salts = make_salt(new_seed()), make_salt(new_seed())

    def run(self, order: str = "given") -> Prepared:
        """Do all of it; `order` is "given" or "completion".

        Raises: SnapshotError for a row that is no vertex or edge; EmbedError for a full disk.
        """
        width = self._snapshot.features.width
        per_row = 16 * max(width, 8)
        read_rows = max(256, min(_READ_ROWS_MAX, self._memory // 32 // per_row))
        features = DiskFile(self._folder / f"{FEATURES}.rows", 4 * width * self._snapshot.vertices)
        raw = DiskFile(self._folder / RAW, self._edge.itemsize * self._snapshot.edges * (1 + self._rules.undirected))
        read = 0
        for events in self._snapshot.blocks(read_rows, mapped=False):
            read += len(events)
            self._progress(f"reading the snapshot: {read:,} of {self._snapshot.vertices + self._snapshot.edges:,} rows")
            if events.op[0] == OP_ADD_VERTEX:
                self._take_vertices(events, features)
            else:
                self._take_edges(events, raw)
        vertices = self._numbers.count
        features.reserve(4 * width * vertices)
        features.close()
        raw.close()
        self._numbers.save(self._folder)
        del self._numbers  # its memory is what sorting takes
        self._progress(f"sorting {self._edges:,} edges")
        counts = self._counts[:vertices]
        edges, loops = self._sort(vertices, self._edges, counts, self._edge, keep_all=False)
        pairs = self._edges - self._loops - (edges - loops)  # of which an undirected edge is two
        self._replaced = self._loops - loops + pairs // (1 + self._rules.undirected)
        if order == "completion":
            return self._reorder(vertices, edges)
        block_rows = file_block_rows(self._block_memory, vertices, width)
        rows = RowsFile(self._folder / FEATURES, vertices, width, block_rows, shuffled=False, new=False)
        rows.seal()
        return self._prepared(vertices, edges, rows, shuffled=False)

    def _prepared(self, vertices: int, edges: int, rows: RowsFile, *, shuffled: bool) -> Prepared:
        rows.sync()
        rows.close()
        sums = {}
        names = [OFFSETS, DST, COUNT, DEGREE, LOOP, *([WEIGHT] if self._rules.weighted else [])]
        names += [MORE_LOOPS] if (self._folder / MORE_LOOPS).exists() else []
        for name in names + ([OUT_COUNT, OUT_DEGREE] if self._rules.out_degrees else []):
            file = DiskFile(self._folder / name)
            sums[name] = file.crc32()
            file.close()
        return Prepared(vertices, edges, rows.width, shuffled, rows.block_rows, rows.record(), sums, self._replaced)

    def _take_vertices(self, events: Events, features: DiskFile) -> None:
        known, width = self._numbers.count, events.features.width
        numbers = self._numbers.of(events.a)
        x = np.ascontiguousarray(events.x.matrix, np.float32)
        if self._numbers.count - known == len(numbers):  # all new
            features.write(4 * width * known, x)
            return
        # of equal vertices the last row holds
        last = len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]
        numbers, x = numbers[last], x[last]
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
            features.write(4 * width * int(numbers[begin]), x[begin:end])

    def _take_edges(self, events: Events, raw: DiskFile) -> None:
        edges = np.empty(len(events), self._edge)
        edges["src"], edges["dst"] = self._numbers.of(events.a), self._numbers.of(events.b)
        edges["weight"] = events.values.weight
        edges["etype"] = self._types_of(events)
        if self._snapshot.key_kind:
            self._set_keys(edges, events.keys or no_keys(self._snapshot.key_kind, len(events)))
        self._check_attr(events)
        if self._rules.undirected:
            edges = np.repeat(edges, 2)
            edges["src"][1::2], edges["dst"][1::2] = edges["dst"][::2].copy(), edges["src"][::2].copy()
            mirrored = np.ones(len(edges), bool)
            mirrored[1::2] = edges["src"][1::2] != edges["dst"][1::2]
            edges = edges[mirrored]
        if self._numbers.count > len(self._counts):
            grown = np.zeros(self._numbers.count + (self._numbers.count >> 2), np.int32)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        count_sources(np.ascontiguousarray(edges["src"]), self._counts)
        raw.write(self._edge.itemsize * self._edges, edges)
        self._edges += len(edges)
        self._loops += int(np.count_nonzero(edges["src"] == edges["dst"]))

    def _set_keys(self, edges: np.ndarray, keys: Ids) -> None:
        if keys.kind == INT:
            edges["key"] = keys.ints
            return
        packed = keys.compact()
        for name, salt in zip(("key", "key_too"), self._salts, strict=True):
            hashes = np.empty(len(edges), np.int64)
            hash_keys(salt, owned(packed.offsets), owned(packed.data), 64, hashes)
            edges[name] = hashes.view(np.uint64)

    def _types_of(self, events: Events) -> np.ndarray:
        used = np.unique(events.etype)
        table = np.zeros(len(events.types), np.int32)
        for k in used.tolist():
            name = events.types[k]
            # the default is number 0 and does not count
            table[k] = self._types.setdefault(name, len(self._types) + 1) if k else 0
            if len(self._types) > self._rules.types_max:
                reason = REASONS[ONE_TYPE_TOO_MANY].format(bound=self._rules.types_max, name=name)
                msg = f"{self._snapshot.folder}: {reason}"
                raise SnapshotError(msg)
        return table[events.etype]

    def _check_attr(self, events: Events) -> None:
        for width in events.values.attr_widths:
            if self._attr_width not in (-1, width):
                reason = REASONS[OTHER_ATTR_WIDTH].format(width=self._attr_width, numbers=width)
                msg = f"{self._snapshot.folder / 'edges.parquet'}: {reason}"
                raise SnapshotError(msg)
            self._attr_width = width

    def _sort(
        self, vertices: int, edges: int, counts: np.ndarray, edge: np.dtype[Any], *, keep_all: bool
    ) -> tuple[int, int]:
        def loop_twice(number: int, reason: int) -> None:
            if self._rules.forbid_typed_loops:
                one = SavedIds(self._folder, self._snapshot.id_kind).read(number, number + 1).to_list()[0]
                msg = f"the snapshot's edge {one} -> {one}: {REASONS[reason]}"
                raise SnapshotError(msg)

        size = bucket_edges(self._memory, vertices, edge.itemsize)
        sorter = EdgeSorter(
            self._folder, vertices, size, weighted=self._rules.weighted, out_degrees=self._rules.out_degrees, edge=edge
        )
        return sorter.sort(self._folder / RAW, edges, counts, keep_all=keep_all, loop_twice=loop_twice)

    def _reorder(self, vertices: int, edges: int) -> Prepared:
        """Renumber the vertices, first those whose destinations wait for the fewest others."""
        self._progress("ordering the vertices by completion score")
        topology = EmbedTopology(self._folder, vertices, edges, weighted=self._rules.weighted)
        order = self._completion_order(topology)
        rank = np.empty(vertices, np.int32)
        rank[order] = np.arange(vertices, dtype=np.int32)
        counts = np.zeros(vertices, np.int32)
        raw = DiskFile(self._folder / RAW, EDGE.itemsize * edges)
        step = 1 << 16
        for first in range(0, vertices, step):
            ends = topology.offsets(first, min(vertices, first + step))
            dst, weight, _ = topology.read(int(ends[0]), int(ends[-1]))
            some = np.zeros(len(dst), EDGE)
            some["src"] = np.repeat(rank[first : first + step], np.diff(ends))
            some["dst"] = rank[dst]
            some["weight"] = weight if self._rules.weighted else 1
            raw.write(EDGE.itemsize * int(ends[0]), some)
            counts[rank[first : first + step]] = np.diff(ends)
        raw.close()
        topology.close()
        save_ids(self._folder, SavedIds(self._folder, self._snapshot.id_kind).read(0, vertices).take(order))
        self._sort(vertices, edges, counts, EDGE, keep_all=True)
        return self._prepared(vertices, edges, self._moved(vertices, rank), shuffled=True)

    def _completion_order(self, topology: EmbedTopology) -> np.ndarray:
        vertices, step = topology.vertices, 1 << 16
        count, scores = topology.contexts().count, np.empty(vertices, np.float64)
        for first in range(0, vertices, step):
            ends = topology.offsets(first, min(vertices, first + step))
            dst, _, _ = topology.read(int(ends[0]), int(ends[-1]))
            completion_scores(ends - ends[0], dst, count, scores[first : first + step])
        return np.argsort(-scores, kind="stable").astype(np.int32)

    def _moved(self, vertices: int, rank: np.ndarray) -> RowsFile:
        """The features in the new order."""
        width = self._snapshot.features.width
        block_rows = file_block_rows(self._block_memory, vertices, width)
        given = RowsFile(self._folder / FEATURES, vertices, width, block_rows, shuffled=False, new=False)
        (self._folder / f"{FEATURES}.rows").rename(self._folder / "given.rows")
        out = RowsFile(self._folder / FEATURES, vertices, width, block_rows, shuffled=True, new=True)
        given.seal()
        for block in range(given.blocks):
            first, last = given.rows_of(block)
            rows, to = given.read(block), rank[first:last]
            order = np.argsort(to, kind="stable")
            to, rows = to[order], rows[order]
            blocks = to // block_rows
            for k in np.unique(blocks).tolist():
                chosen = blocks == k
                out.append(k, to[chosen] - k * block_rows, rows[chosen])
        given.close()
        (self._folder / "given.rows").unlink()
        return out
