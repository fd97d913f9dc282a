"""Takes a sample a second of what a server and its job do, for the history."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from freshet.errors import FreshetError
from freshet.job.serving.bounds.calls import OTHER, Calls
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.history import STATE, History
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.place import say_once
from freshet.job.serving.view.job_here import out_of
from freshet.operators.telemetry.load import Window

EVERY_S = 1.0
_RATES_S = 5.0  # the time that a rate covers
_NO_READS = {OTHER, "http health", "http metrics"}
_OF_SERVER = "generation", "epoch", "vertices", "behind_s"
Figures = Mapping[str, Any]


class Sampler:
    """One thread of the process that keeps the table; workers read what it writes.

    A sample reads the status files of the job, and asks no broker and no cluster.
    """

    def __init__(self, lookup: Lookup, health: Health, clock_s: Callable[[], float] = time.time) -> None:
        self._lookup, self._health, self._clock_s = lookup, health, clock_s
        self.history: History = health.history
        self._reads, self._rows = Window(_RATES_S), Window(_RATES_S)
        self._out: Path | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-history", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()

    def take(self) -> None:
        """Append a sample of now."""
        now_s, figures = self._clock_s(), self._health.figures()
        state = figures.get("job")
        sample: dict[str, Any] = {"time_ms": int(now_s * 1e3), STATE: state}
        sample |= {name: figures.get(name) for name in _OF_SERVER}
        sample["reads_per_s"] = self._reads.rates(now_s, {"reads": _reads(self._lookup.budget.calls)})["reads"]
        with suppress(FreshetError, OSError):  # a damaged file: the status names it
            sample |= self._of_job(now_s, running=state in ("running", "silent"))
        self.history.add(sample)

    def _of_job(self, now_s: float, *, running: bool) -> dict[str, Any]:
        from freshet.job.status.glance import glance  # with libraries that take a while

        out = out_of(self._lookup)
        if out != self._out:  # the next job of a service
            self._out, self._rows = out, Window(_RATES_S)
        found = glance(out, now_s, running=running)
        if found is None:
            return {}
        rate = self._rows.rates(now_s, {"rows": found["rows"]})["rows"]
        return {**found, "rows_per_s": rate if running else 0.0}

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            try:
                self.take()
            except Exception as error:  # the next one may do
                say_once(f"a sample for /v1/history is left out: {type(error).__name__}: {error}")
            due_s = max(due_s + EVERY_S, time.monotonic())  # after a pause there is one sample, not many


def _reads(calls: Calls) -> int:
    return sum(sum(one.ends.values()) for one in calls.all() if one.kind not in _NO_READS)
