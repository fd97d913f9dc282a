"""The seed of a job's hashes; apart from the hashes, so that code that only reads options does not load numpy."""

from __future__ import annotations

import secrets

SEED_BITS = 63  # so that a seed fits any JSON reader


def new_seed() -> int:
    """A seed for a job."""
    return secrets.randbits(SEED_BITS)
