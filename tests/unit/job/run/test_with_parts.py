"""How many parts a new job has where nobody says, and which processes can run so many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.job.errors import UsageError
from freshet.job.options.run_config import RunConfig
from freshet.job.run.model import fit_parts, parts_of


def parts(layers: int, **options: Any) -> int:
    config = RunConfig(model=Path("M"), events=["e.jsonl"], out=Path("O"), **options)
    return parts_of(config, layers)


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


@pytest.mark.parametrize(
    ("parallelism", "pipeline", "made", "fitting"),
    [
        (1, None, 1, 1),
        (2, None, 1, 2),
        (4, None, 1, 4),
        (5, None, 1, 4),
        (8, None, 1, 4),
        (8, None, 2, 8),
        (7, None, 2, 6),
        (4, 2, 1, 2),
        (4, 1, 2, 2),
        (4, 4, 1, 4),
    ],
)
def test_a_state_is_run_by_processes_that_leave_no_more_subtasks_than_parts(
    parallelism: int, pipeline: int | None, made: int, fitting: int
) -> None:
    config = RunConfig(
        model=Path("M"),
        events=["e.jsonl"],
        out=Path("O"),
        parallelism=parallelism,
        pipeline=pipeline,
        snapshot=Path("S"),
    )
    if fitting == parallelism:
        fit_parts(config, made, 2)
        return
    with pytest.raises(UsageError, match=f"made with --parts {made}; give --parallelism {fitting}$"):
        fit_parts(config, made, 2)
