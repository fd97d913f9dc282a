"""`status/lag.json`: where the input of a running job ends, by its process (`job.run.watching`), and the lag."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.status_file import read_statuses

LAG = "lag"
FILES = "files"  # in place of a partition: all files of the input together
STALE_S = 30.0  # ends of topics that were asked for longer ago say nothing of now


class Noted(TypedDict):
    """A topic of the input: where it begins, what an earlier attempt had read, and where it ends, and since when.

    `asked` is None for a topic that is read to a given end. `kafka` are the client properties without secrets,
    `withheld` the names of those that may be some.
    """

    source: str
    start: dict[str, int]
    before: dict[str, int]
    ends: dict[str, int] | None
    asked: float | None
    kafka: NotRequired[dict[str, str]]
    withheld: NotRequired[list[str]]


_NEEDED: dict[str, Any] = {"records": int, "topics": list[Noted]}


def noted_topics(out: Path) -> list[Noted] | None:
    """Return what is noted of the topics of a job; None where nothing is."""
    found = read_statuses(out, LAG, needs=_NEEDED)
    return list(found[0]["topics"]) if found else None


def read_lag(
    out: Path,
    events: int,
    now_s: float | None = None,
    ends: Mapping[str, Mapping[int, int]] | None = None,
    *,
    has_finished: bool = False,
) -> dict[str, int] | None:
    """Return the input that a job has yet to read, by partition (SOURCE:PARTITION of several topics).

    None where it is not known: no broker has said lately where a topic ends.

    `events`: those of files that it has read; files stand together, as `FILES`. `ends`: where topics end now, by
    source, if that is known better. `has_finished`: the job has read its topics up to the ends that it was given.
    """
    found = read_statuses(out, LAG, needs=_NEEDED)
    if not found:
        return None
    status, now_s = found[0], time.time() if now_s is None else now_s
    better = ends or {}
    topics = [
        {**one, "given": one["ends"], "ends": better[one["source"]], "asked": now_s} if one["source"] in better else one
        for one in status["topics"]
    ]
    if not topics:
        return {FILES: max(0, status["records"] - events)}
    if any(one["ends"] is None or (one["asked"] or now_s) < now_s - STALE_S for one in topics):
        return None
    read = read_positions(out)
    left: dict[str, int] = {}
    for topic in topics:
        start, before, until = ({int(p): at for p, at in topic[name].items()} for name in ("start", "before", "ends"))
        done = before | read.get(topic["source"], {})
        if has_finished:
            done |= {int(p): at for p, at in (topic.get("given") or {}).items()}
        for partition, messages in left_in(start, done, until).items():
            key = f"{partition}" if len(topics) == 1 else f"{topic['source']}:{partition}"
            left[key] = messages
    return left


def left_in(start: Mapping[int, int], done: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Return the messages of a topic that are not read yet, by partition in the order of their numbers.

    By partition: `start` is the first offset of the job, `done` the next one that it reads, `ends` where it ends.
    """
    return {p: max(0, end - done.get(p, start.get(p, 0))) for p, end in sorted(ends.items())}
