"""Served epochs of a service: each generation, of which each has another job, has a range of its own."""

from __future__ import annotations

GENERATION = 10**12  # epochs that each generation has


def generation_of(epoch: int) -> int:
    """Return the generation of a served epoch."""
    return epoch // GENERATION
