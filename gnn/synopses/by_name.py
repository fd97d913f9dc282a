"""The synopses of aggregators' names, as they stand in model.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshet.gnn.synopses.of_messages import (
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)

OF_NAMES: dict[str, Callable[[Any, bool], Synopsis]] = {
    "sum": InvertibleSynopsis,
    "mean": InvertibleSynopsis,
    "max": MonotonicSynopsis,
    "min": MonotonicSynopsis,
    "std": MomentsSynopsis,
    "var": MomentsSynopsis,
}
"""What makes the synopsis of a name, of that name and whether messages are weighted."""


def synopsis_of(names: str | tuple[str, ...], weighted: bool) -> Synopsis:
    """Return the synopsis of an aggregator's name, or of several names."""
    if isinstance(names, str):
        return OF_NAMES[names](names, weighted)
    return ProductSynopsis(tuple(OF_NAMES[name](name, weighted) for name in names))
