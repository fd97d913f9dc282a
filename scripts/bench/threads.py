"""Processor time of a job and its broker by thread, between the first epochs and the last.

A thread that Python started has the name of the thread that started it, in Linux: the task of Flink in which its
operator runs. The task's own thread is the oldest of these.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from scripts.bench.parts import Cpu
from scripts.bench.rounds import MeasurementError

# What a thread does, by the beginning of its name; of a task, with what is Python's apart.
_TASKS = (
    ("Source: ", "source and Parser"),
    ("partitioner", "Partitioner, Storage 0"),
    ("storage", "Storages, Sink"),
)
_THREADS = (
    ("Source Data Fetcher", "Kafka's consumer (fetcher)"),
    ("kafka-producer", "Kafka's producer (sender)"),
    ("async-executor", "writer of the change log"),
    ("tokio", "writer of the change log"),
    ("rocksdb", "checkpoints"),
    ("Flink-RocksDB", "checkpoints"),
    ("AsyncOperations", "checkpoints"),
    ("data-plane-kafka", "network and requests"),
    ("kafka-log-cleaner", "log cleaner"),
)
_OF_JAVA = re.compile(r"C\d |G1 |GC Thread|VM ")  # compilers, collectors of garbage
_COMM = 15  # characters of a name that Linux keeps

Times = dict[str, float]  # by what a thread does


class ThreadTimes(Cpu):
    """The processor time of a process and all below it, and of `others`, by thread."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, others: Mapping[str, int]) -> None:
        """`others`: further processes by name, such as the broker."""
        self._others = others
        self._names: dict[tuple[str, int, int], str] = {}  # by group, process and thread
        self._ns: dict[tuple[str, int, int], int] = {}
        self._looks: list[dict[tuple[str, int, int], int]] = []  # at every mark
        super().__init__(process, out)

    def us_by_thread(self) -> Times:
        """Microseconds an event, by what the threads do.

        Raises: MeasurementError when the process was through too soon.
        """
        self.us_per_event()
        first, last = self._looks[0], self._looks[-2]
        events = self._marks[-2][1] - self._marks[0][1]
        if not events:
            msg = "over before its processor time could be measured; give more --events"
            raise MeasurementError(msg)
        oldest: dict[tuple[str, int, str], int] = {}
        for (group, pid, thread), name in self._names.items():
            oldest[group, pid, name] = min(thread, oldest.get((group, pid, name), thread))
        found: Times = {}
        for key, ns in last.items():
            group, pid, thread = key
            does = _does(self._names[key], is_oldest=oldest[group, pid, self._names[key]] == thread)
            does = does if group == "job" else f"{group}: {does}"
            found[does] = found.get(does, 0.0) + (ns - first.get(key, 0)) / 1e3 / events
        return found

    def _look(self) -> None:
        marks = len(self._marks)
        super()._look()
        for pid, _ in list(self._seconds):
            self._look_at("job", pid)
        for name, pid in self._others.items():
            self._look_at(name, pid)
        if len(self._marks) > marks:
            self._looks.append(dict(self._ns))

    def _look_at(self, group: str, pid: int) -> None:
        try:
            for one in psutil.Process(pid).threads():
                folder = Path(f"/proc/{pid}/task/{one.id}")
                key = group, pid, one.id
                self._ns[key] = int((folder / "schedstat").read_text().split()[0])
                self._names[key] = (folder / "comm").read_text().strip()
        except (psutil.Error, OSError, IndexError):  # what it took so far stays
            return


def _does(name: str, *, is_oldest: bool) -> str:
    """Return what a thread of this name in Linux does."""
    for begin, does in _TASKS:
        if name.startswith(begin):
            return f"{does}: {'Flink' if is_oldest else 'Python'}"
    for begin, does in _THREADS:
        if name.startswith(begin[:_COMM]):
            return does
    return "Java's compiler and collector" if _OF_JAVA.match(name) else "other"


def thread_table(titles: Sequence[str], runs: Sequence[Times]) -> str:
    """Return a table in Markdown: microseconds an event, by thread and run, without what is below 0.05."""
    most = {name: max(one.get(name, 0.0) for one in runs) for one in runs for name in one}
    names = [name for name in sorted(most, key=lambda name: -most[name]) if most[name] >= 0.05]
    lines = [f"| us an event | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name in names:
        times = [one.get(name, 0.0) for one in runs]
        lines.append(f"| {name} | {' | '.join(f'{time:.2f}' for time in times)} |")
    lines.append(f"| all | {' | '.join(f'{sum(one.values()):.1f}' for one in runs)} |")
    return "\n".join(lines)
