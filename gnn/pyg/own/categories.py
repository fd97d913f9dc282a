"""Attributes of edges that number categories: as inputs of a module that is read, and as columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from freshet.gnn.pyg.own.recorder import NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import Value, column_of, constant, take

COUNTS = "categories"
"""The array of an input of attributes that says how many categories each column numbers, 0 where it is any number."""


def drawn(edges: int, width: int, counts: Sequence[int], random: torch.Generator) -> tuple[torch.Tensor, Value]:
    """Return random attributes of edges, (edges, width), and what they hold; `counts`: as COUNTS, or none."""
    rows = torch.randn(edges, width, generator=random)
    for place, count in enumerate(counts[:width]):
        if count:
            rows[:, place] = torch.randint(count, (edges,), generator=random).float()
    arrays = {COUNTS: np.array(counts)} if len(counts) == width and any(counts) else {}
    return rows, Value("attr", width, "edges", arrays=arrays)


def columns_of_categories(value: Value, place: str) -> list[Value] | None:
    """Return a row of 0 and 1 for each column of a value, 1 for its category; None where one is of none as it came."""
    found = list[Value]()
    for number in range(value.width):
        base, column = column_of(value, number)
        count = int(base.arrays[COUNTS][column]) if COUNTS in base.arrays else 0
        if not count or base.of:
            return None
        again = take([base], np.zeros(count, np.int64), np.full(count, column), base.over, place)
        found.append(Value("equal", count, base.over, (again, constant(np.arange(count), place)), place))
    return found


def are_categories(value: Value) -> bool:
    """Return whether each column of a value numbers categories, as it came."""
    return columns_of_categories(value, "") is not None


def categories(rec: Recorder, call: Operation) -> NotedValue:
    """Note attributes as they are handed to a forward, some or all of which number categories."""
    noted = rec.find(call.args[0])
    if noted is None or noted.value.op != "attr":
        call.refuse("categories are read of something other than the attributes of edges")
    return noted
