"""Parts dealt to tasks: evenly and in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.state.task_parts import TaskParts, grouped


def test_parts_are_dealt_in_order() -> None:
    tasks = TaskParts.dealt(5, 2)
    assert tasks.parts_of == (range(3), range(3, 5))
    assert tasks.task_of.tolist() == [0, 0, 0, 1, 1]
    assert (tasks.parts, tasks.tasks, tasks.counts) == (5, 2, (3, 2))
    assert TaskParts.of(tasks.counts) == tasks


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_every_part_has_one_task_and_no_task_is_much_larger(parts: int) -> None:
    for count in range(1, parts + 1):
        tasks = TaskParts.dealt(parts, count)
        assert [part for here in tasks.parts_of for part in here] == list(range(parts))
        assert max(tasks.counts) - min(tasks.counts) <= 1
        assert min(tasks.counts) >= 1


def test_one_each() -> None:
    assert TaskParts.dealt(3, 3).is_one_each
    assert not TaskParts.dealt(3, 2).is_one_each
    assert not TaskParts.dealt(3, 1).is_one_each


@given(st.lists(st.integers(0, 3)), st.sampled_from([1, 4]))
def test_groups_keep_their_order(members: list[int], count: int) -> None:
    groups = np.array(members, np.int16) * np.int16(count > 1)
    places = np.arange(len(members))
    for group, chosen in enumerate(grouped(groups, count)):
        assert places[chosen].tolist() == [k for k, one in enumerate(groups.tolist()) if one == group]
