"""The lag of a job that is over, or that no process watches: `freshet status` asks the brokers where its topics end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.folder import run_file
from freshet.job.lifecycle.lag_file import Noted, noted_topics, read_lag

ANSWER_S = 3.0  # for the answers of brokers
FRESH_S = 5.0  # for which an answer, or that there is none, holds

Ends = Mapping[int, int]


class AskedLag:
    """The lag of one job by the brokers; asked again when the last answer is a few seconds old."""

    def __init__(self, ask: Callable[[Noted, Mapping[str, Any]], Ends] | None = None) -> None:
        """`ask` returns where a topic ends, by what was noted of it and what `run.json` says of it."""
        self._ask = ask or _ends_by_brokers
        self._asked_s = -FRESH_S
        self._ends: dict[str, Ends] = {}
        self._why = ""

    def read(self, out: Path, run: Mapping[str, Any], events: int) -> tuple[dict[str, int] | None, str | None]:
        """Return the lag as `read_lag` does, and why it is not known."""
        noted, is_over = noted_topics(out), run.get("state") in run_file.ENDED
        if noted is None:
            return None, "no process has noted yet where the input begins"
        if time.monotonic() - self._asked_s >= FRESH_S:
            self._ends, self._why = self._look(noted, run, is_over=is_over)
            self._asked_s = time.monotonic()
        lag = read_lag(out, events, ends=self._ends, has_finished=run_file.has_finished(run))
        return lag, None if lag is not None else self._why

    def _look(self, noted: list[Noted], run: Mapping[str, Any], *, is_over: bool) -> tuple[dict[str, Ends], str]:
        names, topics = list(run.get("sources") or []), list(run.get("topics") or [])
        recorded = {names[one["source"]]: one for one in topics if one["source"] < len(names)}
        ends: dict[str, Ends] = {}
        for one in noted:
            if one["ends"] is not None and one["asked"] is None and not is_over:
                continue  # is read to a given end
            if secret := one.get("withheld"):
                return ends, f"{one['source']}: its brokers want {', '.join(secret)}, which no file of the job has"
            if one["source"] not in recorded:
                return ends, f"{one['source']}: run.json does not say where it is"
            found = _in_time(lambda one=one: self._ask(one, recorded[one["source"]]))  # type: ignore[misc]
            if isinstance(found, str):
                return ends, f"{one['source']}: {found}"
            ends[one["source"]] = found
        return ends, ""


def _ends_by_brokers(noted: Noted, topic: Mapping[str, Any]) -> Ends:
    from freshet.job.kafka.client import ClientProperties  # takes long to load
    from freshet.job.kafka.read_topics import end_offsets
    from freshet.job.kafka.topic_specs import TopicInput

    return end_offsets(TopicInput.model_validate(topic), ClientProperties(noted.get("kafka")))


def _in_time(ask: Callable[[], Ends]) -> Ends | str:
    """Return what was asked for, or why there is no answer; a client can't be given a time limit for all it does."""
    found: list[Ends | str] = []

    def call() -> None:
        try:
            found.append(ask())
        except (JobFailed, UsageError, ValueError) as error:
            found.append(one_line(error))

    thread = threading.Thread(target=call, name="freshet-ends", daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    return found[0] if found else f"its brokers have not answered within {ANSWER_S:g} s"
