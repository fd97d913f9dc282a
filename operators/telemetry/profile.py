"""Time spent in a Flink operator, counted per subtask since its attempt began, in files beside the status."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from freshet.operators.dataflow import PARTITIONER, rank
from freshet.operators.output_folders import STATUS
from freshet.operators.telemetry.figures import Figures, all_figures
from freshet.operators.telemetry.level import AnyLevel, LevelValues, together
from freshet.operators.telemetry.load import Loads
from freshet.operators.telemetry.paging import PAGE_FAULTS
from freshet.operators.telemetry.status_file import LAST_STATUS, PROFILE_PREFIX, StatusFile, read_statuses
from freshet.operators.telemetry.sum_report import SumReport, all_sums

# What is counted, in the order of an act. Seconds: in the stage's own code; in the hand-over to its thread and back;
# in writes of keyed state; and until Flink has taken what was sent (back-pressure, and operators chained behind it).
SECONDS = ("stage", "hand_over", "state", "emit")
COUNTS = ("acts", "bytes_in", "bytes_out", "bytes_away", "bytes_state")

_NEEDED: dict[str, Any] = {
    "operator": str,
    **dict.fromkeys(SECONDS, float),
    **dict.fromkeys(COUNTS, int),
    "memory_bytes": dict[str, int],
    "levels": dict[str, dict[str, int | None]],
}


class ProfiledStage(Protocol):
    """Interface of a stage for the profile."""

    @property
    def levels(self) -> Mapping[str, AnyLevel]:
        """Levels of its queues."""

    @property
    def memory_bytes(self) -> int:
        """Bytes held."""

    @property
    def figures(self) -> Figures:
        """Figures for metrics."""


# Of this process, by file. An attempt that ended while Flink was to take what it sent, as its JobManager died, is never
# closed; what it counts is not to stand in place of what its successor does.
_newest: WeakValueDictionary[Path, Profile] = WeakValueDictionary()


class Profile:
    """The counters of one operator's subtask; `write` puts them in a file.

    `bytes_in` are from other tasks; `bytes_out` went to tasks, or `bytes_away` of them to a topic: over all operators,
    out - away - in is under way between them. `stages` are those of the subtask, by part; their levels and those of the
    shell itself (`levels`) are in the file, too.
    """

    def __init__(self, out: Path, operator: str, subtask: int) -> None:
        self.operator, self.subtask = operator, subtask
        self.stage = self.hand_over = self.state = self.emit = 0.0
        self.emits_since: float | None = None  # on the clock of `time.perf_counter`, while Flink takes what was sent
        self.acts = self.bytes_in = self.bytes_out = self.bytes_away = self.bytes_state = 0
        self.input_ended = False  # of the Partitioner: whether it has seen the end of its input
        self.stages: dict[int, ProfiledStage] = {}
        self.sums: Callable[[], SumReport | None] = lambda: None  # what the sums of all stages have shown
        self.levels: dict[str, AnyLevel] = {}
        self.loads = Loads()
        self.loads.places[operator] = self._own_load
        self.figures = Figures()  # of all stages, as of the last write
        self._file = StatusFile(out, f"{PROFILE_PREFIX}{operator}-{subtask}")
        self._written: dict[str, Any] = {}
        _newest[self._file.path] = self

    @property
    def own_s(self) -> float:
        """Seconds in which it worked itself."""
        return self.stage + self.hand_over + self.state

    @property
    def emit_s(self) -> float:
        """Seconds until Flink had taken what was sent, with the present ones."""
        since = self.emits_since
        return self.emit + (time.perf_counter() - since if since is not None else 0.0)

    def is_due(self) -> bool:
        """Return whether it is time to write again."""
        return self._file.is_due(time.time() * 1e3)

    def write(self) -> None:
        """Replace the file."""
        self._put(self._fields())

    def end(self) -> None:
        """Write the last file of this attempt: the subtask does nothing more."""
        self.loads.end()
        self._put({**self._fields(), LAST_STATUS: True})

    def write_if_changed(self) -> None:
        """Replace the file when it is due and says something else; for a thread that has nothing else to do."""
        if self.is_due() and (fields := self._fields()) != self._written:
            self._put(fields)

    def all_levels(self) -> dict[str, LevelValues]:
        """Return the levels of this subtask, by name; those of several parts combined."""
        found: dict[str, list[LevelValues]] = {name: [level.as_dict()] for name, level in self.levels.items()}
        for stage in list(self.stages.values()):
            for name, level in stage.levels.items():
                found.setdefault(name, []).append(level.as_dict())
        return {name: together(levels) for name, levels in found.items()}

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"operator": self.operator, "subtask": self.subtask}
        fields |= {name: round(getattr(self, name), 6) for name in SECONDS}
        fields |= {name: getattr(self, name) for name in COUNTS}
        fields["input_ended"] = self.input_ended
        stages = list(self.stages.items())
        held = {str(part): stage.memory_bytes for part, stage in stages}
        sums = self.sums()
        more = {} if sums is None else {"sums": sums}
        self.figures = all_figures(stage.figures for _, stage in stages)
        if figures := self.figures.plain():
            fields["figures"] = figures
        fields |= {"began": round(self.loads.began_s, 3), "loads": self.loads.look()}
        return {**fields, "memory_bytes": held, "levels": self.all_levels(), **more}

    def _own_load(self) -> dict[str, float]:
        faults = self.figures.counts.get(PAGE_FAULTS)
        return {"busy_s": self.own_s, "blocked_s": self.emit_s, **({} if faults is None else {PAGE_FAULTS: faults})}

    def _put(self, fields: dict[str, Any]) -> None:
        if _newest.get(self._file.path) is not self:
            return
        self._written = fields
        now_s = time.time()
        self._file.write({**fields, "time": round(now_s, 3)}, now_s * 1e3)


def forget_profiles(out: Path) -> None:
    """Remove those of an earlier attempt, which may have had more subtasks."""
    for path in (out / STATUS).glob(f"{PROFILE_PREFIX}*.json"):
        path.unlink(missing_ok=True)


def input_ended(out: Path, *, bounded: bool) -> bool:
    """Return whether the present attempt has read its input to the end, and was not stopped before.

    The Partitioner of an attempt that goes on from a state past the end of a `bounded` input has nothing to begin with.
    """
    needs = {"operator": str, "input_ended": bool, "acts": int}
    found = [one for one in read_statuses(out, PROFILE_PREFIX, needs) if one["operator"] == PARTITIONER]
    return any(one["input_ended"] or (bounded and not one["acts"]) for one in found)


def read_profiles(out: Path) -> dict[str, dict[str, Any]]:
    """Return, by operator in order of the flow: seconds, counts and levels over all subtasks, and memory by part."""
    found = read_statuses(out, PROFILE_PREFIX, _NEEDED)
    sums: dict[str, dict[str, Any]] = {}
    for one in sorted(found, key=lambda fields: rank(fields["operator"])):
        total = sums.setdefault(one["operator"], dict.fromkeys((*SECONDS, *COUNTS, "subtasks"), 0))
        for name in (*SECONDS, *COUNTS):
            total[name] = round(total[name] + one[name], 3)
        total["subtasks"] += 1
        total["memory_bytes"] = {**total.get("memory_bytes", {}), **one.get("memory_bytes", {})}
        total["levels"] = _added(total.get("levels", {}), one.get("levels", {}))
        if "sums" in one:
            total["sums"] = all_sums([one["sums"], *([total["sums"]] if "sums" in total else [])])
    return sums


def read_figures(out: Path) -> Figures:
    """Return the figures of all operators together."""
    written = [one["figures"] for one in read_statuses(out, PROFILE_PREFIX) if isinstance(one.get("figures"), dict)]
    return all_figures(map(Figures.of, written))


def _added(some: dict[str, LevelValues], more: dict[str, LevelValues]) -> dict[str, LevelValues]:
    names = dict.fromkeys([*some, *more])
    return {name: together(one[name] for one in (some, more) if name in one) for name in names}
