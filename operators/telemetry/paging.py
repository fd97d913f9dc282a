"""Figures of tables that lie in files in part: of a process, which one of its stages reports."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.operators.telemetry.figures import Figures, all_figures
from freshet.state.memory.pager import Pager

# A count: pages of files that a thread had to wait for, those of libraries included. Gauges, in bytes: all table files,
# what is in memory of them, private memory of the process, and the budget.
PAGE_FAULTS, PAGED, RESIDENT, PRIVATE, BUDGET = (
    "page_faults",
    "paged_bytes",
    "resident_bytes",
    "private_bytes",
    "memory_budget_bytes",
)
_PRIVATE_SHARE_MAX = 0.85  # of the budget: past this little is left for pages


def leaves_little(gauges: Mapping[str, int]) -> bool:
    """Return whether private memory leaves little of the budget for pages of tables."""
    return gauges.get(PRIVATE, 0) > _PRIVATE_SHARE_MAX * gauges.get(BUDGET, 0)


def with_paging(figures: Figures, pager: Pager | None, stage: str) -> Figures:
    """Return the figures of a stage with those of its process, if it is the stage that reports them."""
    if pager is None or not pager.is_reported_by(stage):
        return figures
    gauges = {
        PAGED: pager.file_bytes,
        RESIDENT: pager.resident_bytes_lately,
        PRIVATE: pager.private_bytes_lately,
        BUDGET: pager.budget.nbytes,
    }
    return all_figures([figures, Figures({PAGE_FAULTS: pager.page_faults}, gauges)])
