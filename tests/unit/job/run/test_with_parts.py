"""How many parts a new job has where nobody says: as many as a layer has subtasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from job.errors import UsageError
from job.options.run_config import RunConfig
from job.run.prepare import with_parts


def parts(layers: int, **options: Any) -> int:
    config = RunConfig(model=Path("M"), events=["e.jsonl"], out=Path("O"), **options)
    return with_parts(config, layers).part_count


@pytest.mark.parametrize(
    ("parallelism", "layers", "expected"), [(1, 2, 1), (2, 2, 1), (3, 1, 1), (4, 2, 1), (4, 1, 2), (8, 2, 2), (7, 2, 7)]
)
def test_processes_share_the_layers_first(parallelism: int, layers: int, expected: int) -> None:
    assert parts(layers, parallelism=parallelism) == expected


def test_what_is_given_holds() -> None:
    assert parts(2, parallelism=2, parts=5) == 5
    assert parts(2, parallelism=4, pipeline=2) == 2
    assert parts(2, parallelism=4, pipeline=1) == 4
    assert parts(2, parallelism=4, runtime="local") == 4, "it takes --parallelism and ignores it"
    with pytest.raises(UsageError, match="the model has 1 convs"):
        parts(1, parallelism=4, pipeline=4)
