"""The progress of a job: a line in a terminal, a table that changes in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from freshet.job.console import ProgressDisplay, Stats, format_stats

_BAR = 24  # characters of a bar
INTERVAL_S = 0.25


class Showing(Protocol):
    """Shows the progress of a job."""

    def update(self, status: Mapping[str, Any]) -> None:
        """Show a status."""

    def close(self) -> None:
        """Show no more."""


def showing(shown: Any) -> Showing:
    """Return what shows the progress of a job here; `shown`: shows itself in a notebook."""
    display = _display_of_notebook()
    return _Line() if display is None else _Notebook(display, shown)


def _display_of_notebook() -> Callable[..., Any] | None:
    """Return the function of IPython that shows an object, where this process is a notebook's; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    return display


class _Notebook:
    """An output of a notebook that is replaced; it needs no widgets."""

    def __init__(self, display: Callable[..., Any], shown: Any) -> None:
        self._shown, self._output = shown, display(shown, display_id=True)

    def update(self, status: Mapping[str, Any]) -> None:
        self._output.update(self._shown)

    def close(self) -> None:
        self._output.update(self._shown)


class _Line:
    """The progress line of the command, led by a bar."""

    def __init__(self) -> None:
        self._display = ProgressDisplay()
        self._display.__enter__()

    def update(self, status: Mapping[str, Any]) -> None:
        self._display.update(line_of(status))

    def close(self) -> None:
        self._display.close()


def share_of(status: Mapping[str, Any]) -> float | None:
    """Return the share of the input that is taken in; None where nobody knows."""
    lag, events = status.get("lag_total"), status.get("events", 0)
    if status.get("state") == "ended":
        return 1.0
    return None if lag is None else events / (events + lag) if events + lag else 0.0


def line_of(status: Mapping[str, Any]) -> str:
    """Return a status as a line of progress."""
    share, state = share_of(status), status["state"]
    bar = "" if share is None else f"[{'#' * round(share * _BAR):<{_BAR}}] {share:4.0%}  "
    if "epoch" not in status:
        return f"{state}"
    stats = Stats(
        events=status["events"],
        events_per_s=status["events_per_s"],
        epoch=status["epoch"],
        rows=status["rows"],
        lag_events=status["lag_total"],
        latency_ms_p50=status["freshness_ms_p50"],
        latency_ms_p99=status["freshness_ms_p99"],
        rejected=f"{status['rejected']:,}" if status["rejected"] else "",
    )
    return f"{bar}{state}  {format_stats(stats)}"
