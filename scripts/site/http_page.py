"""The reference of the HTTP interface, from its own description."""

from __future__ import annotations


def page() -> str:
    """Markdown: a section for each operation."""
    return "# HTTP\n"
