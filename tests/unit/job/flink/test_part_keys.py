from collections import Counter

import pytest

from freshet.job.flink.pipeline import key_group, part_keys, parts_by_subtask
from freshet.operators.flink.shell import parts_of_subtask


def subtask_of(group: int, max_parallelism: int, parallelism: int) -> int:
    """The subtask that owns a key group, as Flink has it."""
    return group * parallelism // max_parallelism


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 8, 16, 128])
def test_every_part_has_the_key_group_it_wants(parts: int) -> None:
    keys = part_keys(parts, 128)
    assert len(set(keys)) == parts
    assert [key_group(key, 128) for key in keys] == [-(-part * 128 // parts) for part in range(parts)]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 8, 16])
def test_parts_spread_evenly_at_every_parallelism(parts: int) -> None:
    groups = [key_group(key, 128) for key in part_keys(parts, 128)]
    for parallelism in range(1, parts + 1):
        load = Counter(subtask_of(group, 128, parallelism) for group in groups)
        assert len(load) == parallelism, load
        assert max(load.values()) - min(load.values()) <= 1, load


class Task:
    """What a shell asks Flink about its subtask."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index, self.parallelism = index, parallelism

    def getIndexOfThisSubtask(self) -> int:
        return self.index

    def getNumberOfParallelSubtasks(self) -> int:
        return self.parallelism

    def getMaxNumberOfParallelSubtasks(self) -> int:
        return 128


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 8, 16, 100, 128])
def test_a_shell_preloads_the_parts_that_flink_sends_it(parts: int) -> None:
    keys = part_keys(parts, 128)
    for parallelism in {1, 2, 3, 7, parts}:
        owner = [subtask_of(key_group(key, 128), 128, parallelism) for key in keys]
        for index in range(parallelism):
            expected = [part for part in range(parts) if owner[part] == index]
            assert parts_of_subtask(parts, Task(index, parallelism)) == expected
        told = parts_by_subtask(parts, parallelism, 128)
        here = [parts_of_subtask(parts, Task(index, parallelism)) for index in range(parallelism)]
        assert [list(found) for found in told.parts_of] == [found for found in here if found], "a job is told the same"


def test_keys_are_the_same_for_ever() -> None:
    """They are part of every savepoint."""
    assert part_keys(4, 128) == FOUR_PARTS


FOUR_PARTS = [250, 13, 22, 113]
