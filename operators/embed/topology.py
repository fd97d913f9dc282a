"""The edges on disk, by source: offsets, destinations and weights, read for a range of sources at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from freshet.files.whole import write_whole
from freshet.gnn.plan import Context
from freshet.operators.embed.files import DiskFile, EmbedError, full_disk

OFFSETS, DST, WEIGHT, FOLLOWING, FIRST_USE = "offsets", "dst", "weight", "following", "first_use"
COUNT, DEGREE, LOOP, OUT_COUNT, OUT_DEGREE = "count", "degree", "loop", "out_count", "out_degree"
MORE_LOOPS = "more_loops"
_CONTEXT = {COUNT: np.int32, DEGREE: np.float64, LOOP: np.float32, OUT_COUNT: np.int32, OUT_DEGREE: np.float64}
_NONE_F, _NONE_I = np.empty(0, np.float32), np.empty(0, np.int32)


class EmbedTopology:
    """The edges of a graph whose vertices are numbered; those of one source by destination.

    Shapes: offsets (vertices + 1,) int64; dst (edges,) int32; weight (edges,) float32, where any layer wants it;
    following (edges,) int32 and first_use (vertices,) int32 once `freshet embed --eviction next-use` made them;
    more_loops (vertices,) int32, self-loops beside the first one, where any vertex has several.
    """

    def __init__(self, folder: Path, vertices: int, edges: int, *, weighted: bool) -> None:
        self.folder, self.vertices, self.edges, self.weighted = folder, vertices, edges, weighted
        self._offsets, self._dst = DiskFile(folder / OFFSETS), DiskFile(folder / DST)
        self._weight = DiskFile(folder / WEIGHT) if weighted else None
        self._following: DiskFile | None = None

    @property
    def size(self) -> int:
        """Bytes that one pass reads."""
        return 8 * self.vertices + (8 if self.weighted else 4) * self.edges

    def offsets(self, first: int, last: int) -> np.ndarray:
        """Return where the edges of the sources `first` to `last` begin; the last place is the end: int64."""
        return self._offsets.read(8 * first, np.empty(last - first + 1, np.int64))

    def read(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Destinations of these edges, their weights, and the next source of each destination; empty where not kept."""
        n = end - begin
        dst = self._dst.read(4 * begin, np.empty(n, np.int32))
        weight = _NONE_F if self._weight is None else self._weight.read(4 * begin, np.empty(n, np.float32))
        following = _NONE_I if self._following is None else self._following.read(4 * begin, np.empty(n, np.int32))
        return dst, weight, following

    def follow(self) -> np.ndarray:
        """Open (or make) the next source at the destination of each edge; returns the first ones.

        Source: Belady's rule, evict the row needed furthest in the future, can be followed if the order is known.
        """
        first_use = self.folder / FIRST_USE
        if not first_use.exists():
            self._make_following(first_use)
        if self._following is None:
            self._following = DiskFile(self.folder / FOLLOWING)
        found = np.fromfile(first_use, np.int32)
        if len(found) != self.vertices:
            msg = f"{first_use}: has {len(found):,} numbers, not {self.vertices:,}; remove the folder and embed again"
            raise EmbedError(msg)
        return found

    def _make_following(self, first_use: Path) -> None:
        from freshet.operators.embed.order_kernels import follow

        out = DiskFile(self.folder / FOLLOWING, 4 * self.edges)
        latest = np.full(self.vertices, self.vertices, np.int32)
        step = max(1, min(self.vertices, 1 << 16))
        for last in range(self.vertices, 0, -step):
            first = max(0, last - step)
            ends = self.offsets(first, last)
            dst, _, _ = self.read(int(ends[0]), int(ends[-1]))
            following = np.empty(len(dst), np.int32)
            follow(first, ends - ends[0], dst, latest, following)
            out.write(4 * int(ends[0]), following)
        out.sync()
        out.close()
        try:
            write_whole(first_use, latest.data)
        except OSError as error:
            raise full_disk(first_use, error) from None

    def contexts(self) -> Context:
        """Return the properties of every vertex's edges; those of out-edges where any layer wants them."""
        found = list[np.ndarray]()
        for name, dtype in _CONTEXT.items():
            if name in (COUNT, DEGREE, LOOP) or (self.folder / name).exists():
                file = DiskFile(self.folder / name)
                found.append(file.read(0, np.empty(self.vertices, dtype)))
                file.close()
        return Context(*found)

    def more_loops(self, first: int, last: int) -> np.ndarray:
        """Return the number of self-loops of these vertices beside the first one, (n,) int32."""
        found = np.zeros(last - first, np.int32)
        if (self.folder / MORE_LOOPS).exists():
            file = DiskFile(self.folder / MORE_LOOPS)
            file.read(4 * first, found)
            file.close()
        return found

    def close(self) -> None:
        """Close the files."""
        for file in (self._offsets, self._dst, self._weight, self._following):
            if file is not None:
                file.close()
