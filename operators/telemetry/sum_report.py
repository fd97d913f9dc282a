"""Report on the sums of a layer: rows that were worn, and findings of the scrubber."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict


class SumReport(TypedDict):
    """Counted since the attempt began.

    `recomputed` rows were worn and summed again; `scrubbed` rows were summed again whatever their notes, and `differed`
    of them had other values: by `largest_difference` at most, beside the largest value of the row.
    """

    recomputed: int
    scrubbed: int
    differed: int
    largest_difference: float


def all_sums(reports: Iterable[SumReport | None]) -> SumReport | None:
    """The reports of several parts together, without those that have none; None where none has one."""
    found = [report for report in reports if report is not None]
    if not found:
        return None
    return SumReport(
        recomputed=sum(one["recomputed"] for one in found),
        scrubbed=sum(one["scrubbed"] for one in found),
        differed=sum(one["differed"] for one in found),
        largest_difference=max(one["largest_difference"] for one in found),
    )
