"""The `ts` of each edge's last add, and lower bounds of those of blocks of edges."""

from __future__ import annotations

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner.graph_tables import BLOCK_SHIFT, NEVER, GraphView
from freshet.state.table import touch


@inner
def stamp(g: GraphView, row: int, ts: int) -> None:
    """Set the `ts` of the edge in `row` (NEVER: it has none), where edges have any."""
    if not g.is_timed or g.times.data[row] == ts:
        return
    touch(g.times, row)
    g.times.data[row] = ts
    block = row >> BLOCK_SHIFT
    if ts < g.earliest[block]:
        g.earliest[block] = ts
        wide = block >> BLOCK_SHIFT
        g.earliest_of_many[wide] = min(g.earliest_of_many[wide], ts)


@kernel
def find_earliest(g: GraphView) -> None:
    """Compute the bounds of all blocks."""
    for block in range(len(g.earliest)):
        g.earliest[block] = NEVER
    for wide in range(len(g.earliest_of_many)):
        g.earliest_of_many[wide] = NEVER
    for row in range(len(g.times.data)):
        block = row >> BLOCK_SHIFT
        g.earliest[block] = min(g.earliest[block], g.times.data[row])
    for block in range(len(g.earliest)):
        wide = block >> BLOCK_SHIFT
        g.earliest_of_many[wide] = min(g.earliest_of_many[wide], g.earliest[block])
