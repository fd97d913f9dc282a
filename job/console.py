"""The progress line of long work: live on a terminal, a log line every ten seconds elsewhere; always on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from freshet.log_lines import is_json, log

if TYPE_CHECKING:
    from rich.live import Live

Report = Callable[[str], None]

LOG_INTERVAL_S = 10.0
LIVE_INTERVAL_S = 0.2
LOG_FORMAT_HELP = "Format of the lines on stderr: text (default), or json: an object a line with time, level, event."


def say(text: str, level: str = "info", **fields: Any) -> None:
    """A line of progress for people; `fields` stand beside it in a log of JSON objects."""
    log(text, level, **fields)


class Stats(NamedTuple):
    """Progress of a run; `events_per_s` is that of the last seconds.

    Latencies run from an event's arrival at the Parser: `latency_ms` to its rows being readable by others, `applied_ms`
    to their being computed.
    """

    events: int
    events_per_s: float
    epoch: int
    rows: int
    lag_events: int | None = None
    latency_ms_p50: float | None = None
    latency_ms_p99: float | None = None
    applied_ms_p50: float | None = None
    applied_ms_p99: float | None = None
    rejected: str = ""  # in words, nothing where it is nothing


def format_stats(stats: Stats) -> str:
    """Return the fields of the progress line; unknown ones are `-`."""
    rejected = f"  rejected {stats.rejected}" if stats.rejected else ""
    return "  ".join(
        (
            f"events {stats.events:,}",
            f"events/s {stats.events_per_s:,.0f}",
            f"epoch {stats.epoch:,}",
            f"lag {_or_dash(stats.lag_events, ',')}",
            f"p50 {_or_dash(stats.latency_ms_p50, '.1f', ' ms')}",
            f"p99 {_or_dash(stats.latency_ms_p99, '.1f', ' ms')}",
            f"applied p50 {_or_dash(stats.applied_ms_p50, '.1f', ' ms')}",
            f"p99 {_or_dash(stats.applied_ms_p99, '.1f', ' ms')}",
            f"rows {stats.rows:,}{rejected}",
        )
    )


class ProgressDisplay:
    """Shows the newest of the stats it is given; a context manager.

    `update` may be called as often as one likes. Nothing is shown after `close`, which shows the last stats once more
    when they have not been seen.
    """

    def __init__(
        self, label: str = "freshet", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._pending: Stats | str | None = None
        self._shown_at = clock()
        self._live: Live | None = None
        self._is_json = stream is None and is_json()
        if self._stream.isatty() and not self._is_json:
            from rich.console import Console
            from rich.live import Live

            # stdout is left alone: JSON results stand there.
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=True)
        self._interval_s = LIVE_INTERVAL_S if self._live else LOG_INTERVAL_S

    def __enter__(self) -> ProgressDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, stats: Stats | str) -> None:
        """Take the newest stats (or a line of other work), and show them when it is time to."""
        self._pending = stats
        if self._clock() - self._shown_at >= self._interval_s:
            self._show()

    def close(self) -> None:
        """Show what has not been shown, and give the terminal back."""
        if self._pending is not None:
            self._show()
        if self._live:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        if self._pending is None:
            return
        pending = self._pending
        line = pending if isinstance(pending, str) else format_stats(pending)
        self._pending, self._shown_at = None, self._clock()
        if self._is_json:
            fields = {"text": pending} if isinstance(pending, str) else pending._asdict()
            log("progress", of=self._label, **fields)
            return
        if self._live:
            from rich.text import Text

            self._live.update(Text(f"{self._label}  {line}", no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            stamp = time.strftime("%H:%M:%S")
            print(f"{stamp}  {self._label}  {line}", file=self._stream, flush=True)


def _or_dash(value: float | None, spec: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{spec}}{unit}"


class CheckProgress:
    """Shows the newest status text, with the seconds since the check began; a context manager."""

    def __init__(self, progress: ProgressDisplay | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress or ProgressDisplay("freshet check")
        self._clock, self._began = clock, clock()
        self._text = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-check-progress", daemon=True)

    def __enter__(self) -> CheckProgress:
        self._progress.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._progress.close()

    def report(self, text: str) -> None:
        """Set the status text."""
        self._text = text

    def show(self) -> None:
        """Show the newest text."""
        if self._text:
            self._progress.update(f"{self._text}  {self._clock() - self._began:,.0f} s")

    def _run(self) -> None:
        while not self._ended.wait(LIVE_INTERVAL_S):
            self.show()
