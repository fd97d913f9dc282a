"""The synopses of aggregators, as they stand in model.json."""

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
from freshet.gnn.synopses.quantiles import MulSynopsis, Quantile, QuantileSynopsis

OF_NAMES: dict[str, Callable[[Any, bool], Synopsis]] = {
    "sum": InvertibleSynopsis,
    "mean": InvertibleSynopsis,
    "max": MonotonicSynopsis,
    "min": MonotonicSynopsis,
    "std": MomentsSynopsis,
    "var": MomentsSynopsis,
    "mul": lambda name, weighted: MulSynopsis(),
}
"""What makes the synopsis of a name, of that name and whether messages are weighted."""


def synopsis_of(kinds: Any, weighted: bool) -> Synopsis:
    """Return the synopsis of an aggregator, a name or a quantile, or of a tuple of these."""
    if isinstance(kinds, tuple):
        return ProductSynopsis(tuple(synopsis_of(kind, weighted) for kind in kinds))
    return QuantileSynopsis(kinds) if isinstance(kinds, Quantile) else OF_NAMES[kinds](kinds, weighted)
