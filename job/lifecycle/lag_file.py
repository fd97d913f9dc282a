"""`status/lag.json`: where the input of a running job ends, as its process knows it (`job.run.lag`), and the lag."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from freshet.operators.telemetry.status_file import read_statuses

LAG = "lag"
FILES = "files"  # in place of a partition: all files of the input together
STALE_S = 30.0  # ends of topics that were asked for longer ago say nothing of now


class _Topic(TypedDict):
    """A topic of the input: where it begins, what an earlier attempt had read, and where it ends, and since when.

    `asked` is None for a topic that is read to a given end.
    """

    source: str
    start: dict[str, int]
    before: dict[str, int]
    ends: dict[str, int] | None
    asked: float | None


_NEEDED: dict[str, Any] = {"records": int, "topics": list[_Topic]}


def read_lag(out: Path, events: int, now_s: float | None = None) -> dict[str, int] | None:
    """Return the input that a job has yet to read, by partition (SOURCE:PARTITION of several topics).

    None where it is not known: no broker has said lately where a topic ends.

    `events`: those of files that it has read; files stand together, as `FILES`.
    """
    found = read_statuses(out, LAG, needs=_NEEDED)
    if not found:
        return None
    told, now_s = found[0], time.time() if now_s is None else now_s
    topics = told["topics"]
    if not topics:
        return {FILES: max(0, told["records"] - events)}
    if any(one["ends"] is None or (one["asked"] or now_s) < now_s - STALE_S for one in topics):
        return None
    from freshet.operators.parser.topic_stage import read_positions  # takes long to load

    read = read_positions(out)
    left: dict[str, int] = {}
    for topic in topics:
        done = {int(p): at for p, at in topic["before"].items()} | read.get(topic["source"], {})
        for name, end in sorted(topic["ends"].items(), key=lambda one: int(one[0])):
            key = name if len(topics) == 1 else f"{topic['source']}:{name}"
            left[key] = max(0, end - done.get(int(name), topic["start"].get(name, 0)))
    return left
