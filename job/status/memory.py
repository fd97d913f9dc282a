"""Memory of a job whose tables have a budget, and whether the disk limits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.paging import BUDGET, PAGE_FAULTS, PAGED, PRIVATE, RESIDENT, leaves_little

_MANY_FAULTS_PER_S = 300.0  # threads wait for a disk by then: a fault takes 0.1 ms (flash) to 10 ms


def memory_of(figures: Figures, operators: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return figures of memory in bytes, and page faults; None for a job without `--memory`.

    `limited_by` is "disk" where threads wait for pages of tables, "budget" where the process alone takes nearly all of
    it, so that no room is left for pages, and None where neither holds.
    """
    gauges = figures.gauges
    if not gauges.get(BUDGET):
        return None
    rate = sum(one.get(f"{PAGE_FAULTS}_per_s") or 0.0 for one in operators.values())
    limit = None
    if gauges[PAGED] > gauges[RESIDENT]:
        limit = "disk" if rate >= _MANY_FAULTS_PER_S else None
        limit = "budget" if leaves_little(gauges) else limit
    return {
        "budget_bytes": gauges[BUDGET],
        "private_bytes": gauges[PRIVATE],
        "paged_bytes": gauges[PAGED],
        "resident_bytes": gauges[RESIDENT],
        "page_faults": figures.counts.get(PAGE_FAULTS, 0),
        "page_faults_per_s": round(rate, 1),
        "limited_by": limit,
    }


def memory_in_words(memory: Mapping[str, Any]) -> str:
    """Return the same for people."""
    gib = {name: f"{memory[name] / (1 << 30):.2f}" for name in memory if name.endswith("_bytes")}
    tables = (
        f"{gib['resident_bytes']} of {gib['paged_bytes']} GiB of table files" if memory["paged_bytes"] else "tables"
    )
    text = f"{tables} and {gib['private_bytes']} GiB more in memory, of {gib['budget_bytes']} GiB"
    if memory["limited_by"] == "disk":
        text += f"; the disk limits the job: {memory['page_faults_per_s']:,.0f} page faults/s (give more --memory)"
    if memory["limited_by"] == "budget":
        text += "; little is left for pages of tables (give more --memory)"
    return text
