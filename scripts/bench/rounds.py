"""Measurements that are taken by turns, round after round; a file of JSON lines remembers them.

What stands in the file is not measured again, so a benchmark of hours may be stopped, or die, and go on. Lines of
another machine do not count.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from scripts.bench.throughput import machine

Figures = dict[str, float]
FAILURES_MAX = 3


class MeasurementError(RuntimeError):
    """A run that failed; the message says how."""


class Measurement(NamedTuple):
    """A measurement: its key in the results, its name, and the function that takes its figures."""

    what: Mapping[str, Any]
    told: str
    take: Callable[[], Figures]


class Results:
    """Figures by what was measured, in the order of the rounds; `path`: the file that keeps them, if one does."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._machine = path, machine()
        self._found: dict[bytes, list[Figures]] = defaultdict(list)
        self._seconds: dict[bytes, list[float]] = defaultdict(list)
        text = path.read_bytes() if path and path.exists() else b""
        self._cut_off = bool(text) and not text.endswith(b"\n")  # by a kill
        for line in text.splitlines():
            try:
                fields = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if fields["machine"] == self._machine:
                self._remember(fields)

    def of(self, what: Mapping[str, Any]) -> list[Figures]:
        """The figures of each round so far."""
        return self._found.get(_key(what), [])

    def add(self, what: Mapping[str, Any], figures: Figures, seconds: float) -> None:
        """Keep the figures of a round that took so long."""
        fields = {"what": what, "figures": figures, "seconds": round(seconds, 1), "machine": self._machine}
        self._remember(fields)
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"\n" * self._cut_off + orjson.dumps(fields) + b"\n")
            self._cut_off = False

    def seconds_left(self, todo: Sequence[Mapping[str, Any]]) -> float | None:
        """About how long these will take: what such a one took before, or else one of all; None: none was taken yet."""
        if not self._seconds:
            return None
        mean = statistics.fmean(one for some in self._seconds.values() for one in some)
        return sum(statistics.fmean(self._seconds.get(_key(what)) or [mean]) for what in todo)

    def _remember(self, fields: Mapping[str, Any]) -> None:
        self._found[_key(fields["what"])].append(fields["figures"])
        self._seconds[_key(fields["what"])].append(fields["seconds"])


def take_rounds(measurements: Sequence[Measurement], rounds: int, results: Results) -> int:
    """Run each measurement once a round, except those in the results; return the number of failures.

    Failures are reported and left out of later rounds.

    Raises: SystemExit if too many fail, since something else must be wrong.
    """
    todo = [one for number in range(rounds) for one in measurements if len(results.of(one.what)) <= number]
    known = rounds * len(measurements) - len(todo)
    if known:
        print(f"{known} of {rounds * len(measurements)} runs were measured before", file=sys.stderr)
    failed: set[str] = set()
    for place, one in enumerate(todo):
        left = results.seconds_left([other.what for other in todo[place:] if other.told not in failed])
        about = "" if left is None else f", about {duration(left)} left"
        if one.told in failed:
            continue
        print(f"run {place + 1} of {len(todo)}{about}: {one.told}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            figures = one.take()
        except MeasurementError as error:
            print(f"FAILED and left out: {one.told}\n{error}", file=sys.stderr)
            failed.add(one.told)
            if len(failed) > FAILURES_MAX:
                sys.exit(f"{len(failed)} kinds of run failed; once that is mended, the same command goes on from here")
            continue
        results.add(one.what, figures, time.monotonic() - began)
    return len(failed)


def medians(rounds: Sequence[Figures]) -> Figures:
    """Each figure's median."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def duration(seconds: float) -> str:
    """For people, in minutes and hours."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _key(what: Mapping[str, Any]) -> bytes:
    return orjson.dumps(what, option=orjson.OPT_SORT_KEYS)
