"""Tiny pages, so that small tests have many of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def page_bytes(size: int = 1) -> Iterator[None]:
    """Tables made inside have pages of about `size` bytes, but at least 16 rows."""
    with patch("freshet.state.table.PAGE_BYTES", size):
        yield
