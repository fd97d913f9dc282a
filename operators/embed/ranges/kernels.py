"""Kernels that list the messages of a chunk to a range of destinations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.embed.hot_kernels import Items
from freshet.operators.graph.edge_messages import Messages


class RangeTask(NamedTuple):
    """Constants of a pass: `first` is the vertex of row 0, sources are in the values from row `base` on."""

    first: int
    base: int
    skip_loops: bool
    weighted: bool


@kernel
def list_messages(items: Items, task: RangeTask, messages: Messages, got: np.ndarray) -> int:
    """List the messages of a chunk to destinations of the range, and count them by destination; returns how many."""
    count = 0
    for u in range(len(items.ends) - 1):
        for e in range(items.ends[u], items.ends[u + 1]):
            row = np.int64(items.dst[e]) - task.first
            if row < 0 or row >= len(got) or (task.skip_loops and items.dst[e] == items.source + u):
                continue
            messages.src[count], messages.dst[count] = task.base + u, row
            messages.weight[count] = items.weight[e] if task.weighted else np.float32(1)
            got[row] += 1
            count += 1
    return count
