"""Conditions of a request, and the two kinds of consistency that answers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

IDS_MAX = 100_000  # of a request
TIMEOUT_S = 5.0
# What the rows of an answer have in common: an epoch, or nothing: each is the newest of its own that is known.
EPOCH, ROW = "epoch", "row"


class Wanted(NamedTuple):
    """Condition on the table for an answer, and how long to wait for it.

    `min_position`: partition (or SOURCE:PARTITION) -> the offset of a record that must be covered.
    """

    min_epoch: int = 0
    min_position: Mapping[str, int] | None = None
    timeout_s: float = TIMEOUT_S


NOTHING_SPECIAL = Wanted()
