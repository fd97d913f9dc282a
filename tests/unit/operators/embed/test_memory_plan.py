"""The plan keeps to the budget, and says honestly when it can't."""

from __future__ import annotations

import itertools

import pytest

from freshet.operators.embed.memory_plan import (
    BudgetError,
    LayerColumns,
    file_block_rows,
    layer_memory,
    least_memory,
    passes_without_cold_store,
)

NARROW, WIDE, OWN = (
    LayerColumns(128, 40, 40, 0, 0, 40),
    LayerColumns(1024, 1024, 1024, 0, 0, 256),
    LayerColumns(128, 256, 128, 128, 128, 128),
)


@pytest.mark.parametrize("shape", [NARROW, WIDE, OWN])
@pytest.mark.parametrize("vertices", [1, 1000, 1_000_000, 8_000_000])
def test_no_layer_takes_more_than_the_budget(vertices: int, shape: LayerColumns) -> None:
    planned = 0
    for size, passes in itertools.product((1, 8, 64, 256, 1024, 4096), (1, 3, 16)):
        memory = size << 20
        rows = file_block_rows(memory, vertices, shape.out)
        try:
            found = layer_memory(memory, vertices, shape, passes, rows, next_use=False)
        except BudgetError:
            assert memory < 4 * least_memory(vertices, [shape])
            continue
        planned += 1
        assert found.bytes <= memory
        assert 0 < found.slots <= found.destinations <= vertices
    assert planned


def test_the_least_memory_is_enough_and_less_is_not() -> None:
    for vertices, shape in itertools.product((1000, 1_000_000), (NARROW, WIDE, OWN)):
        least = least_memory(vertices, [shape])
        rows = file_block_rows(least, vertices, shape.out)
        assert layer_memory(least, vertices, shape, 1, rows, next_use=False).slots
        if least > 1 << 20:
            less = least - (1 << 20)
            with pytest.raises(BudgetError):
                layer_memory(less, vertices, shape, 1, file_block_rows(less, vertices, shape.out), next_use=False)


def test_more_memory_takes_fewer_passes() -> None:
    found = []
    for size in (64, 128, 256, 512, 1024, 4096):
        memory = size << 20
        rows = file_block_rows(memory, 1_000_000, OWN.out)
        passes = passes_without_cold_store(memory, 1_000_000, OWN, rows, 64)
        assert passes
        assert not layer_memory(memory, 1_000_000, OWN, passes, rows, next_use=False).needs_cold_store
        found.append(passes)
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] == 1
