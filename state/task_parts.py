"""Parts of each task of an operator: parts are fixed for the job's life, tasks are those of this run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

DENSE_PARTS = 16  # with more parts, what is known of a vertex in each of them stands in lists; part of the state format


def key_group_of(part: int, parts: int, key_groups: int) -> int:
    """The key group of a part: the parts' groups are spread evenly."""
    return -(-part * key_groups // parts)


def subtask_of(part: int, parts: int, parallelism: int, key_groups: int) -> int:
    """The subtask that a part is on: Flink gives each a contiguous range of key groups."""
    return key_group_of(part, parts, key_groups) * parallelism // key_groups


@dataclass(frozen=True)
class TaskParts:
    """The parts of every task, in order: consecutive ones, each in exactly one task.

    What an operator computes of a part does not depend on its task, so a job may go on with other tasks.
    """

    parts_of: tuple[range, ...]

    @staticmethod
    def of(counts: Iterable[int]) -> TaskParts:
        """Return tasks with these numbers of parts."""
        ends = [0, *accumulate(counts)]
        return TaskParts(tuple(map(range, ends, ends[1:])))

    @staticmethod
    def dealt(parts: int, tasks: int) -> TaskParts:
        """Return parts dealt evenly to tasks, at most one task per part."""
        ends = [-(-task * parts // tasks) for task in range(tasks + 1)]
        return TaskParts(tuple(map(range, ends, ends[1:])))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of parts of each task."""
        return tuple(map(len, self.parts_of))

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.parts_of)

    @cached_property
    def parts(self) -> int:
        """Number of parts."""
        return sum(map(len, self.parts_of))

    @cached_property
    def task_of(self) -> np.ndarray:
        """The task of each part, (parts,) int16."""
        return np.repeat(np.arange(self.tasks, dtype=np.int16), [len(parts) for parts in self.parts_of])

    @cached_property
    def is_one_each(self) -> bool:
        """True if every task has one part, of the same number."""
        return self.tasks == self.parts and all(len(parts) == 1 for parts in self.parts_of)


def in_groups(groups: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the members of `count` groups, one group after the other, and where each one begins.

    Shapes: groups (n,) of a small integer; result (n,), and (count + 1,), which ends with n.
    """
    order = np.argsort(groups, kind="stable")
    return order, np.searchsorted(groups[order], np.arange(count + 1))


def grouped(groups: np.ndarray, count: int) -> list[np.ndarray | slice]:
    """Return the places of the members of each of `count` groups, in their order."""
    if count == 1:
        return [slice(None)]
    order, ends = in_groups(groups, count)
    return [order[begin:end] for begin, end in pairwise(ends)]
