"""What a status says of memory: nothing without a budget, and by what the job is limited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from freshet.job.lifecycle.summary import scarce_memory_in_words
from freshet.job.status.memory import memory_in_words, memory_of
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.paging import BUDGET, PAGED, PRIVATE, RESIDENT, with_paging
from freshet.state.memory.pager import Pager

GIB = 1 << 30


def figures(*, private: int, paged: int, resident: int) -> Figures:
    """Figures of a job with 2 GiB."""
    return Figures({"page_faults": 5000}, {BUDGET: 2 * GIB, PRIVATE: private, PAGED: paged, RESIDENT: resident})


def test_without_a_budget_there_is_nothing_to_say() -> None:
    assert memory_of(Figures(), {}) is None
    assert scarce_memory_in_words({}) is None


@pytest.mark.parametrize(
    ("private", "resident", "rate", "limit", "words"),
    [
        (GIB // 2, GIB, 1.0, None, "1.00 of 4.00 GiB of table files and 0.50 GiB more in memory, of 2.00 GiB"),
        (GIB // 2, GIB, 2000.0, "disk", "the disk limits the job: 2,000 page faults/s (give more --memory)"),
        (GIB // 2, 4 * GIB, 2000.0, None, "4.00 of 4.00 GiB"),  # faults of something else: all pages are there
        (2 * GIB, GIB, 2000.0, "budget", "little is left for pages of tables"),
    ],
)
def test_a_limit_is_named(private: int, resident: int, rate: float, limit: str | None, words: str) -> None:
    operators: dict[str, dict[str, Any]] = {"partitioner": {"page_faults_per_s": rate}, "sink": {}}
    found = memory_of(figures(private=private, paged=4 * GIB, resident=resident), operators)
    assert found is not None
    assert (found["limited_by"], found["page_faults"], found["page_faults_per_s"]) == (limit, 5000, rate)
    assert words in memory_in_words(found)
    scarce = scarce_memory_in_words(figures(private=private, paged=4 * GIB, resident=resident).gauges)
    assert (scarce is not None) == (limit == "budget")


def test_one_stage_of_a_process_reports_its_memory() -> None:
    reporters = list[str]()

    def is_reported_by(name: str) -> bool:
        reporters.append(name)
        return name == reporters[0]

    pager = cast(
        Pager,
        SimpleNamespace(
            is_reported_by=is_reported_by,
            file_bytes=7,
            resident_bytes_lately=5,
            private_bytes_lately=3,
            page_faults=2,
            budget=SimpleNamespace(nbytes=9),
        ),
    )
    own = Figures({"events": 1}, {"edges": 4})
    assert with_paging(own, None, "sink-0") is own
    assert with_paging(own, pager, "partitioner").plain() == {
        "counts": {"events": 1, "page_faults": 2},
        "gauges": {"edges": 4, PAGED: 7, RESIDENT: 5, PRIVATE: 3, BUDGET: 9},
    }
    assert with_paging(own, pager, "sink-0") is own
