"""Result of a command: the JSON line that it prints, as an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any


class CommandResult(dict[str, Any]):
    """Figures of a command by name, as items and as attributes: those of the JSON line that it prints."""

    title = ""

    @staticmethod
    def of(title: str, figures: Mapping[str, Any]) -> CommandResult:
        """Return figures with a title for people."""
        made = CommandResult(figures)
        made.__dict__["title"] = title
        return made

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            msg = f"no figure {name!r}; there are {', '.join(self)}"
            raise AttributeError(msg) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        rows = "".join(f"\n  {name:<24} {text}" for name, text in self._rows())
        return f"{self.title}{rows}" if self.title else dict.__repr__(self)

    def _repr_html_(self) -> str:
        return table_of(self.title, dict(self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        for name, value in self.items():
            yield name, in_words(value)


def in_words(value: Any) -> str:
    """Return a figure for people."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float | Mapping):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {in_words(one)}" for name, one in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def table_of(title: str, rows: Mapping[str, str]) -> str:
    """Return names and texts as a table of HTML, with every character escaped."""
    cells = "".join(
        f"<tr><td style='text-align:left'>{escape(name)}</td><td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in rows.items()
    )
    return f"<div><b>{escape(title)}</b><table>{cells}</table></div>"
