"""The reference of all that `import freshet` has, by its docstrings."""

from __future__ import annotations

import freshet

_HEAD = """# Python

All names of the package `freshet`. Each is loaded at its first use. `freshet-client` has the clients and the errors.
"""


def page() -> str:
    """Markdown, with a line for each name that mkdocstrings replaces by its docstring."""
    names = (name for name in freshet.__all__ if not name.startswith("_"))
    return "\n".join([_HEAD, *map(_line, sorted(names, key=str.lower))])


def _line(name: str) -> str:
    one = getattr(freshet, name)
    return f"::: {one.__module__}.{one.__name__}\n    options:\n      heading: {name}\n"
