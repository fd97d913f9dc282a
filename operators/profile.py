"""Where the time of a Flink operator goes, counted per subtask since its attempt began, in files beside the status."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson

from operators.status import STATUS, StatusFile

PREFIX = "profile-"
# What is counted, in the order of an act. Seconds: in the stage's own code; in the hand-over to its thread and back;
# in writes of keyed state; and until Flink has taken what was sent (back-pressure, and operators chained behind it).
SECONDS = ("stage", "hand_over", "state", "emit")
COUNTS = ("acts", "bytes_out", "bytes_state")


class Profile:
    """The counters of one operator's subtask; `write` puts them in a file at most twice a second."""

    def __init__(self, out: Path, operator: str, subtask: int) -> None:
        self.operator, self.subtask = operator, subtask
        self.stage = self.hand_over = self.state = self.emit = 0.0
        self.acts = self.bytes_out = self.bytes_state = 0
        self.memory_bytes: dict[int, int] = {}  # by part: tables and what waits
        self.input_ended = False  # of the Partitioner: whether it has seen the end of its input
        self._file = StatusFile(out, f"{PREFIX}{operator}-{subtask}")

    def is_due(self) -> bool:
        """Whether it is time to write again."""
        return self._file.is_due(time.time() * 1e3)

    def write(self) -> None:
        """Replace the file."""
        fields: dict[str, Any] = {"operator": self.operator, "subtask": self.subtask}
        fields |= {name: round(getattr(self, name), 6) for name in SECONDS}
        fields |= {name: getattr(self, name) for name in COUNTS}
        fields["input_ended"] = self.input_ended
        fields["memory_bytes"] = {str(part): held for part, held in self.memory_bytes.items()}
        self._file.write(fields, time.time() * 1e3)


def forget_profiles(out: Path) -> None:
    """Remove those of an earlier attempt, which may have had more subtasks."""
    for path in (out / STATUS).glob(f"{PREFIX}*.json"):
        path.unlink(missing_ok=True)


def input_ended(out: Path) -> bool:
    """Whether the present attempt has come to the end of its input, and not been stopped before."""
    found = [orjson.loads(path.read_bytes()) for path in (out / STATUS).glob(f"{PREFIX}*.json")]
    return any(one["input_ended"] for one in found)


def read_profiles(out: Path) -> dict[str, dict[str, Any]]:
    """By operator, in the order of the flow: seconds and counts summed over its subtasks, and memory by part."""
    found = [orjson.loads(path.read_bytes()) for path in (out / STATUS).glob(f"{PREFIX}*.json")]
    sums: dict[str, dict[str, Any]] = {}
    for one in sorted(found, key=lambda fields: _place(fields["operator"])):
        total = sums.setdefault(one["operator"], dict.fromkeys((*SECONDS, *COUNTS, "subtasks"), 0))
        for name in (*SECONDS, *COUNTS):
            total[name] = round(total[name] + one[name], 3)
        total["subtasks"] += 1
        total["memory_bytes"] = {**total.get("memory_bytes", {}), **one.get("memory_bytes", {})}
    return sums


def _place(operator: str) -> tuple[int, int]:
    kinds = ("parser", "partitioner", "storage", "tail", "sink")
    operator = operator.partition("-")[0]  # the Parser of a topic stands with that of the files
    kind = operator.rstrip("0123456789")
    layer = operator.removeprefix(kind)
    rank = kinds.index(kind) if kind in kinds else len(kinds)
    return (2, 2 * int(layer) + (kind == "tail")) if layer else (rank, 0)
