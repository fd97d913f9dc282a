"""The memory of a job's processes and what waits in it, looked at twice a second; and a picture of that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import psutil

from freshet.job.lifecycle.summary import progress
from freshet.job.run.watching import in_flight_bytes, operator_levels
from freshet.operators.telemetry.profile import read_profiles

MIB = 1 << 20
INTERVAL_S = 0.5
FIRST = "parser"  # its bytes tell how far the source has read


@dataclass
class Sample:
    """One look; `at_s` since the first one, `rss` by process in bytes, `levels` what waits now, by name."""

    at_s: float
    rss: dict[str, int]
    read_bytes: int
    events: int
    levels: dict[str, int] = field(default_factory=dict)


class Sampler:
    """Takes samples on a thread of its own, from entering to leaving."""

    def __init__(self, out: Path, processes: Callable[[], Mapping[str, int]], file: Path) -> None:
        """`processes` gives the process ids by name; samples are written to `file` as JSON lines, too."""
        self.samples: list[Sample] = []
        self._out, self._processes, self._file = out, processes, file
        self._began, self._stop = time.monotonic(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def now_s(self) -> float:
        """The time of a sample that were taken now."""
        return time.monotonic() - self._began

    def _run(self) -> None:
        try:
            with self._file.open("wb") as file:
                ends = False
                while not ends:
                    ends = self._stop.wait(INTERVAL_S)  # the last look is behind the end
                    self.samples.append(self._look())
                    file.write(orjson.dumps(self.samples[-1]) + b"\n")
        except BaseException as error:
            self._error = error

    def _look(self) -> Sample:
        rss = {}
        for name, pid in self._processes().items():
            with suppress(psutil.NoSuchProcess):
                held = psutil.Process(pid).memory_info().rss
                if held:  # it has not ended
                    rss[name] = held
        profiles = read_profiles(self._out)
        levels = {name: level["now"] or 0 for name, level in operator_levels(profiles).items()}
        levels["in_flight_bytes"] = in_flight_bytes(profiles)
        read = profiles[FIRST]["bytes_out"] if FIRST in profiles else 0
        return Sample(round(self.now_s(), 2), rss, read, progress(self._out)["events"], levels)


@dataclass(frozen=True)
class Pause:
    """From when to when a process stood, in the time of the samples."""

    begin_s: float
    end_s: float

    def within(self, samples: Iterable[Sample]) -> list[Sample]:
        """The samples of the pause."""
        return [one for one in samples if self.begin_s <= one.at_s <= self.end_s]


def stood_after_s(samples: Sequence[Sample], pause: Pause) -> float:
    """How long into the pause the source still read; as long as the pause itself where it never stood."""
    inside = pause.within(samples)
    last = inside[-1].read_bytes
    return next(one.at_s for one in inside if one.read_bytes == last) - pause.begin_s


def caught_up_after_s(samples: Sequence[Sample], pause: Pause, events: int) -> float:
    """How long after the pause all events were in."""
    return next(one.at_s for one in samples if one.events >= events) - pause.end_s


def rises(samples: Sequence[Sample], pause: Pause, since_s: float = 0.0) -> dict[str, int]:
    """By process: bytes by which its memory rose above what it was `since_s` into the pause, at most."""
    before = [one for one in samples if one.at_s <= pause.begin_s + since_s][-1]
    inside = [one for one in pause.within(samples) if one.at_s >= before.at_s]
    return {name: max(one.rss.get(name, 0) for one in inside) - held for name, held in before.rss.items()}


def draw(samples: Sequence[Sample], pause: Pause, path: Path, title: str) -> None:
    """A PNG: memory by process, what waits, and events, over time; the pause is shaded."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (memory, waiting, events) = plt.subplots(3, 1, sharex=True, figsize=(10, 9), layout="constrained")
    at = [one.at_s for one in samples]
    for name in dict.fromkeys(name for one in samples for name in one.rss):
        memory.plot(at, [one.rss.get(name, float("nan")) / MIB for one in samples], label=name)
    for name in _highest(samples):
        waiting.plot(at, [one.levels.get(name, 0) / MIB for one in samples], label=name)
    events.plot(at, [one.events for one in samples], label="events that the sink has taken in")
    for axes, label in ((memory, "RSS, MiB"), (waiting, "waiting, MiB"), (events, "events")):
        axes.axvspan(pause.begin_s, pause.end_s, color="0.9", label="the broker stands")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", fontsize=7)
        axes.grid(alpha=0.3)
    events.set_xlabel("seconds")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _highest(samples: Sequence[Sample], count: int = 8) -> list[str]:
    tops: dict[str, Any] = {}
    for one in samples:
        for name, now in one.levels.items():
            if name.endswith("_bytes"):
                tops[name] = max(now, tops.get(name, 0))
    return sorted(tops, key=lambda name: -tops[name])[:count]
