"""The attributes of edges in a Storage whose layer reads them: a row for each edge of its parts.

An edge has a number in its part, and where lists of other layers have weights (state/adjacency.py), those of such a
layer have numbers: as float32s whose bits count up from that of the smallest normal one, so that two are equal only if
they are the same. So what finds, lists and moves weighted edges does the same with numbered ones, and a message has the
number of its edge in place of a weight. Two edges of one pair, which differ in type, have two numbers. Edges with keys
are known by their tags in lists, which stand here for types.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.edge_reads import EdgeReads
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.operators.graph.edge_changes import EdgeChanges, SomeEdges, value_now
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.state.adjacency import Lists, ListsView, base_of, find, length_of, place_of
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES, EdgeGroup
from freshet.state.codec import Block
from freshet.state.memory import list_index
from freshet.state.table import Table, TableSet, View, align, touch

FIRST_NUMBER = 0x00800000  # the bits of the smallest normal float32
_TAIL, _FREE = 0, 1  # of each part in `free`: numbers that were ever used, the first free one + 1
_FREE_ROWS = 16
_STRIDE = 16
_AHEAD = 8
Kept = np.ndarray | slice


@inner
def _is_edge_at(lists: ListsView, k: int, value: int, types: np.ndarray, first: int, etype: int) -> bool:
    """Return whether the entry at `k` is this end, by an edge of this type; the part's edges begin at row `first`."""
    if lists.pool.data[k] != value:
        return False
    return types[first + lists.weight.data.view(np.int32)[k] - FIRST_NUMBER] == etype


@inner
def _find(lists: ListsView, row: int, value: int, types: np.ndarray, first: int, etype: int) -> np.int64:
    """The bits of the number of an edge in one of the lists of its ends, 0 where it is not there."""
    if lists.tagged:
        place = find(lists, row, value, np.float32(0), etype)
        return np.int64(lists.weight.data.view(np.int32)[place]) if place >= 0 else np.int64(0)
    begin, length, pool = place_of(lists, row), length_of(lists, row), lists.pool.data
    if length > lists.short:  # of edges that go, such lists of both ends have an index from the first one on
        record = list_index.record_of(lists.numbers, row >> lists.shift, row - base_of(lists, row))
        if record != 0:
            places, base = lists.weight.data.view(np.int32), first - FIRST_NUMBER
            number = list_index.number_of_kind(lists.numbers, record, pool, places, begin, value, types, base, etype)
            return np.int64(places[begin + number]) if number >= 0 else np.int64(0)
    end = begin + length
    while begin < end:
        last, hit = min(begin + _STRIDE, end), np.int32(0)
        for k in range(begin, last):  # a stride without the value is passed in a few vector instructions
            hit |= np.int32(pool[k] == value)
        if hit:
            for k in range(begin, last):
                if _is_edge_at(lists, k, value, types, first, etype):
                    return np.int64(lists.weight.data.view(np.int32)[k])
        begin = last
    return np.int64(0)


@kernel
def find_edges(
    out: ListsView,
    inn: ListsView,
    types: np.ndarray,
    stride: int,
    edges: tuple[np.ndarray, np.ndarray, np.ndarray],
    found: np.ndarray,
) -> None:
    """Find edges by sources, destinations and types, in the shorter list of either end; 0 where one is not there.

    Shapes: types (parts * stride,) int32; found (n,) int32
    """
    src, dst, etype = edges
    for i in range(len(src)):
        u, v = src[i], dst[i]
        first = np.int64(u >> out.shift) * stride
        if length_of(out, u) <= length_of(inn, v):
            found[i] = _find(out, u, v - base_of(out, u), types, first, etype[i])
        else:
            found[i] = _find(inn, v, u - base_of(inn, v), types, first, etype[i])


@kernel
def number_edges(
    free: View, types: View, attr: View, shift: int, stride: int, src: np.ndarray, etype: np.ndarray,
    values: np.ndarray, found: np.ndarray,
) -> None:  # fmt: skip
    """Give edges numbers of their parts, and keep their types and attributes there.

    Shapes: values (n, width) float32; found (n,) int32
    """
    for i in range(len(src)):
        part = np.int64(src[i] >> shift)
        mine, number = part * _FREE_ROWS, np.int64(0)
        touch(free, mine)
        if free.data[mine + _FREE]:
            number = free.data[mine + _FREE] - 1
            free.data[mine + _FREE] = types.data[part * stride + number]
        else:
            number = free.data[mine + _TAIL]
            free.data[mine + _TAIL] = number + 1
        row = part * stride + number
        touch(types, row)
        touch(attr, row)
        types.data[row] = etype[i]
        for c in range(attr.data.shape[1]):
            attr.data[row, c] = values[i, c]
        found[i] = number + FIRST_NUMBER


@kernel
def free_numbers(free: View, types: View, attr: View, stride: int, rows: np.ndarray) -> None:
    """Have no edges in these rows any more."""
    for i in range(len(rows)):
        row = np.int64(rows[i])
        part = row // stride
        touch(free, part * _FREE_ROWS)
        touch(types, row)
        touch(attr, row)
        types.data[row] = np.int32(free.data[part * _FREE_ROWS + _FREE])
        free.data[part * _FREE_ROWS + _FREE] = row - part * stride + 1
        for c in range(attr.data.shape[1]):
            attr.data[row, c] = 0


@kernel
def gather_attributes(
    attr: np.ndarray, stride: int, shift: int, dst: np.ndarray, numbers: np.ndarray, out: np.ndarray
) -> None:
    """Write the attributes of edges, by their destinations and the bits of their numbers."""
    width = attr.shape[1]
    for i in range(len(dst)):
        if i + _AHEAD < len(dst):
            ahead = np.int64(dst[i + _AHEAD] >> shift) * stride + numbers[i + _AHEAD] - FIRST_NUMBER
            prefetch(attr, ahead * width)
        row = np.int64(dst[i] >> shift) * stride + numbers[i] - FIRST_NUMBER
        for c in range(width):
            out[i, c] = attr[row, c]


class EdgeTable:
    """The numbered edges of a task's parts.

    Shapes: type (rows,) int32, the Partitioner's code, or of a free number the next free one + 1; attr (rows, width)
    float32; free (parts * 16,) int64
    A row has the value that messages read, if they do, in front of the attributes. Without self-loops in the layer's
    lists it has none, either.
    Invariant: in `changes` edges come, in `settle` they change and go: in between all messages of before can be made.
    """

    def __init__(self, tables: TableSet, sources: PartRows, targets: PartRows, reads: EdgeReads) -> None:
        self._reads, self._parts, self.width = reads, tables.parts, reads.row_width
        self._sources, self._targets = sources, targets
        self.type = tables.add("edge.type", "i4")
        self.attr = tables.add("edge.attr", "f4", self.width)
        self.free = tables.add("edge.free", "i8")
        self.free.reserve(_FREE_ROWS)
        self._gone, self._changed = np.empty(0, np.int64), np.empty(0, np.int64)
        self._new = np.empty((0, self.width), np.float32)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables."""
        return self.type, self.attr, self.free

    @property
    def ends(self) -> np.ndarray:
        """Return the numbers that were ever used, of each part."""
        return self.free.data.reshape(self._parts, -1)[:, _TAIL]

    def changes(self, block: Block, out: Lists, inn: Lists) -> EdgeChanges:
        """Return the edges that an epoch changes, with their numbers; those of which only the weight does are left out.

        An edge that is not here has a number that no edge has.
        """
        self._reserve(self._sources.of(block, ADDED_EDGES.name, "src"))
        deleted, changed = (self._found(block, group, out, inn) for group in (DELETED_EDGES, CHANGED_EDGES))
        added = self._added(block)
        self._gone = self._rows(deleted[0], deleted[2])
        src, dst, numbers, tags = changed
        if src.size:
            here, new = numbers.view(np.int32) != 0, self._values(block, CHANGED_EDGES)
            rows, new = self._rows(src, numbers), new[here]
            differs = (self.attr.data[rows].view(np.int32) != new.view(np.int32)).any(axis=1)
            self._changed, self._new = rows[differs], new[differs]
            other = ~here
            other[here] = differs
            src, dst, numbers = (frozen(column[other]) for column in changed[:3])
            tags = frozen(tags[other]) if out.tagged else tags
        return EdgeChanges(deleted, (src, dst, numbers, numbers, tags), added)

    @property
    def changing(self) -> np.ndarray:
        """Return the rows of edges whose attributes will change, (n,) int64, each once."""
        return self._changed

    def settle(self) -> None:
        """Have the new attributes of changed edges from now on, and none of deleted ones."""
        if self._changed.size:
            self.attr.touch_rows(self._changed)
            self.attr.data[self._changed] = self._new
            self._changed, self._new = self._changed[:0], self._new[:0]
        if self._gone.size:
            free_numbers(self.free.view, self.type.view, self.attr.view, self.type.stride, self._gone)
            self._gone = self._gone[:0]

    def of(self, dst: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return what messages read of edges, (n, width) float32, by their destinations and numbers."""
        found = np.empty((dst.size, self.width), np.float32)
        gather_attributes(self.attr.data, self.attr.stride, self._targets.shift, dst, numbers.view(np.int32), found)
        return found

    def rows_of(self, src: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return types, (n,) int32, and attributes, (n, width) float32, of edges after a restore, by their sources."""
        align(self.type, self.attr)
        rows = self._rows(src, numbers)
        return self.type.data[rows], self.attr.data[rows, self.width - self._reads.attributes :]

    def _reserve(self, src: np.ndarray) -> None:
        if src.size:
            needs = self.ends + np.bincount(src >> self._sources.shift, minlength=self._parts)
            for table in (self.type, self.attr):
                table.reserve(needs)
        align(self.type, self.attr)

    def _found(self, block: Block, group: EdgeGroup, out: Lists, inn: Lists) -> SomeEdges:
        src, dst, etype, tags = self._edges_of(block, group)
        found = np.empty(src.size, np.int32)
        if src.size:
            if out.tagged:  # of parallel edges both ends have a long list
                out.make_index(src)
                inn.make_index(dst)
            find_edges(out.view, inn.view, self.type.data, self.type.stride, (src, dst, etype), found)
        return src, dst, frozen(found.view(np.float32)), tags

    def _added(self, block: Block) -> SomeEdges:
        src, dst, etype, tags = self._edges_of(block, ADDED_EDGES)
        found = np.empty(src.size, np.int32)
        if src.size:
            tables, values = (self.free.view, self.type.view, self.attr.view), self._values(block, ADDED_EDGES)
            number_edges(*tables, self._sources.shift, self.type.stride, src, etype, values, found)
        return src, dst, frozen(found.view(np.float32)), tags

    def _values(self, block: Block, group: EdgeGroup) -> np.ndarray:
        """Return what messages read of the edges of a group from now on, (n, width) float32."""
        kept = self._kept(block, group)
        attr = block.get(group.attr)[kept]
        if not self._reads.weighted:
            return attr
        values = np.concatenate([value_now(block, group, self._reads.value)[kept, None], attr], axis=1)
        values.flags.writeable = attr.flags.writeable  # or kernels would be compiled once more
        return values

    def _kept(self, block: Block, group: EdgeGroup) -> Kept:
        """Say which edges of a group it keeps."""
        if not self._reads.skip_loops:
            return slice(None)
        return self._sources.of(block, group.name, "src") != self._targets.of(block, group.name, "dst")

    def _edges_of(self, block: Block, group: EdgeGroup) -> SomeEdges:
        """Sources, destinations, types and tags of the edges of a group that it keeps; tags stand for types."""
        kept = self._kept(block, group)
        src, dst = self._sources.of(block, group.name, "src"), self._targets.of(block, group.name, "dst")
        tags = block.get(group.row)
        if tags.size:
            tags = frozen(tags[kept])
            return frozen(src[kept]), frozen(dst[kept]), tags, tags
        return frozen(src[kept]), frozen(dst[kept]), block.get(group.type)[kept], tags

    def _rows(self, src: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The rows of numbered edges, without those that are not here."""
        bits = numbers.view(np.int32).astype(np.int64)
        rows = (src.astype(np.int64) >> self._sources.shift) * self.type.stride + bits - FIRST_NUMBER
        return rows[bits >= FIRST_NUMBER]
