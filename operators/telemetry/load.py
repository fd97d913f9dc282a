"""Load of operators: the share of time in which each is busy, and messages and bytes from and into topics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from freshet.operators.dataflow import OUTLET, PARSER, STORAGE, TAIL, rank
from freshet.operators.telemetry.paging import PAGE_FAULTS
from freshet.operators.telemetry.status_file import PROFILE_PREFIX, read_statuses

WINDOW_S = 2.0
SOURCE, LETTERS = "source", "letters"  # beside OUTLET: places in the flow that are no operators of ours
# Sums of a place, and the names of their growth a second; a share of time is seconds a second.
RATES = {
    "busy_s": "busy",
    "blocked_s": "blocked",
    "messages": "messages_per_s",
    "bytes": "bytes_per_s",
    PAGE_FAULTS: f"{PAGE_FAULTS}_per_s",
}
_SHARES = "busy", "blocked"

_NEEDED: dict[str, Any] = {
    "subtask": int,
    "began": float,
    "time": float,
    "loads": dict[str, dict[str, float]],
}
Sums = Mapping[str, float]


class Window:
    """Growth a second of sums over the last seconds.

    Units: span_s in seconds; a rate covers at least that much once the calls do.
    """

    def __init__(self, span_s: float = WINDOW_S) -> None:
        self._span_s = span_s
        self._samples: deque[tuple[float, Sums]] = deque()

    def rates(self, now_s: float, sums: Sums) -> dict[str, float]:
        """Take the sums of now; all rates are 0 at the first call, and never negative."""
        samples = self._samples
        samples.append((now_s, dict(sums)))
        while len(samples) > 2 and samples[1][0] <= now_s - self._span_s:
            samples.popleft()
        began_s, before = samples[0]
        seconds = now_s - began_s
        if seconds <= 0:
            return dict.fromkeys(sums, 0.0)
        return {name: max(0.0, (now - before.get(name, now)) / seconds) for name, now in sums.items()}


class Loads:
    """Loads that a subtask of an operator counts: its own, and those of Java in the same thread.

    `places` returns the sums of each place since the attempt began, by the names of `RATES`.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.places: dict[str, Callable[[], Sums]] = {}
        self.began_s = time.time()
        self.clock_s = clock_s
        self._windows: dict[str, Window] = {}
        self._has_ended = False

    def end(self) -> None:
        """Have all rates be 0 from now on: the subtask does nothing more."""
        self._has_ended = True

    def sums(self) -> dict[str, dict[str, float]]:
        """Return the sums of each place."""
        return {place: {name: round(value, 3) for name, value in of().items()} for place, of in self.places.items()}

    def look(self) -> dict[str, dict[str, float]]:
        """Return the sums of each place, and their rates over the last seconds."""
        now_s, found = self.clock_s(), self.sums()
        for place, sums in found.items():
            rates = self._windows.setdefault(place, Window()).rates(now_s, sums)
            rates = dict.fromkeys(rates, 0.0) if self._has_ended else rates
            found[place] = sums | {RATES[name]: round(value, 3) for name, value in rates.items()}
        return found


def source_of(parser: str) -> str:
    """Return the place of what reads a topic, by the name of the topic's Parser."""
    return SOURCE + parser.removeprefix(PARSER)


def read_loads(out: Path, *, running: bool) -> dict[str, dict[str, Any]]:
    """Return the loads of a job from its profiles, by place in the order of the flow.

    Shares from 0 to 1: `busy` (of the last seconds) and `busy_mean` (since the attempt began), both over all subtasks;
    `blocked`: until receivers, and operators chained behind it, had taken the output; `busy_by_subtask`. Of topics:
    `messages`, `bytes`, and a second `messages_per_s`, `bytes_per_s`. What is of the last seconds is None for a job
    that is not `running`.
    """
    of_place: dict[str, list[dict[str, Any]]] = {}
    for status in sorted(read_statuses(out, PROFILE_PREFIX, _NEEDED), key=lambda one: int(one["subtask"])):
        until_s = time.time() if running else status["time"]
        for place, load in status["loads"].items():
            of_place.setdefault(place, []).append({**load, "wall_s": max(until_s - status["began"], 1e-3)})
    return {place: _together(of_place[place], running) for place in sorted(of_place, key=_order)}


def layer_loads(loads: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the loads of the layers from 1 on, of what `read_loads` returned.

    `processes` that share the layer; `busy`, `busy_mean` and `busy_by_process` as of operators: where a layer has a
    Tail, of that of the two threads which is busier.
    """
    found: list[dict[str, Any]] = []
    layers = {rank(name)[1] for name in loads if name.startswith((STORAGE, TAIL))} - {0}
    for layer in sorted(layers):
        of_both = [loads[name] for name in (f"{STORAGE}{layer}", f"{TAIL}{layer}") if name in loads]
        shares: dict[str, Any] = {name: _largest(one.get(name) for one in of_both) for name in ("busy", "busy_mean")}
        by_process = [one["busy_by_subtask"] for one in of_both if "busy_by_subtask" in one]
        if by_process:
            shares["busy_by_process"] = [max(both) for both in zip(*by_process, strict=False)]
        found.append({"layer": layer, "processes": max(one["subtasks"] for one in of_both), **shares})
    return found


def _largest(shares: Iterable[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)


def _together(loads: Iterable[Mapping[str, float]], running: bool) -> dict[str, Any]:
    found = list(loads)
    values: dict[str, Any] = {"subtasks": len(found)}
    for total, rate in RATES.items():
        have = [one for one in found if total in one]
        if not have:
            continue
        now = [one.get(rate, 0.0) for one in have]
        if rate in _SHARES:
            values[rate] = round(min(1.0, sum(now) / len(now)), 3) if running else None
            values[f"{rate}_mean"] = round(min(1.0, sum(one[total] / one["wall_s"] for one in have) / len(have)), 3)
        else:
            values[total] = int(sum(one[total] for one in have))
            values[rate] = round(sum(now), 1) if running else None
        if rate == "busy" and running and len(now) > 1:
            values["busy_by_subtask"] = now
    return values


def _order(place: str) -> tuple[Any, ...]:
    """Sort key of places: topics that are read, the operators, topics that are written."""
    if place.startswith(SOURCE):
        return -1, place
    return 0, rank(place), place != OUTLET, place
