"""Watches of the process of a run: for input that is left, data under way in Flink, and rejected records.

It asks the brokers where its topics end, and writes that down for others (`status/lag.json`). Where most deletions find
nothing to delete, it reports that, too: the events are not what was meant.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.errors import EXIT_CHECK_FAILED, EXIT_DONE, JobFailed
from freshet.job.folder.run_file import has_finished, read_run
from freshet.job.lifecycle.lag_file import LAG, left_in
from freshet.job.run.source_kinds import TopicSource
from freshet.job.run.sources import Sources
from freshet.job.units import format_share_or_off
from freshet.operators.parser.letter_box import ReadCounts, read_counts, read_noted, read_reasons
from freshet.operators.telemetry.level import LevelValues
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.profile import read_profiles
from freshet.operators.telemetry.status_file import StatusFile

_ASK_S = 5.0
# Client properties that others need to ask the brokers, and may read.
_NO_SECRETS = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "request.timeout.ms",
    "metadata.max.age.ms",
}
_OF_LOGINS = "sasl.", "ssl.", "security."
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)  # to a variable of the environment
Ends = Mapping[int, int]
IN_FLIGHT = "in_flight_bytes"
LOOK_S = 1.0
Profiles = Mapping[str, Mapping[str, Any]]  # what `read_profiles` returns
SAID_ABOVE = 0.01
ASKED_FROM = 1000  # records: fewer show nothing yet


def _is_no_secret(name: str, value: str) -> bool:
    return name in _NO_SECRETS or _REFERENCE.fullmatch(value) is not None


class Lag:
    """Records of files and messages of topics that have not been read yet; a context manager.

    A thread asks the brokers where the topics end; while they don't answer, their last answer holds.
    """

    def __init__(self, out: Path, sources: Sources, ask: Callable[[TopicSource], Ends] = TopicSource.ends_now) -> None:
        """`ask` returns where a topic's partitions end."""
        self._out, self._records, self._topics, self._ask = out, sources.records, sources.topics, ask
        self._before = read_positions(out)  # of the attempt before: this one reads on behind what that had read
        self._ends: dict[int, Ends] = {}
        self._asked_s: dict[int, float] = {}
        self._status = StatusFile(out, LAG)
        self._tell()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-lag", daemon=True)

    def __enter__(self) -> Lag:
        if self._topics:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def look(self) -> None:
        """Ask where the topics end, and write it down."""
        for topic in self._topics:
            try:
                self._ends[topic.index] = self._ask(topic)
            except JobFailed:  # the job itself tells when brokers are away for too long
                continue
            self._asked_s[topic.index] = time.time()
        self._tell()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(_ASK_S)

    def _tell(self) -> None:
        """Write down what is known of the ends."""
        topics = [self._status_of(topic) for topic in self._topics]
        self._status.write({"records": self._records, "topics": topics}, time.time() * 1e3)

    def _status_of(self, topic: TopicSource) -> dict[str, Any]:
        ends = self._ends.get(topic.index) if topic.end is None else topic.end
        asked_s = None if topic.end is not None else self._asked_s.get(topic.index, 0.0)
        before, plain = self._before.get(topic.name, {}), None if ends is None else dict(ends)
        begun = {"source": topic.name, "start": dict(topic.start), "before": before}
        shown = {name: value for name, value in topic.properties.items() if _is_no_secret(name, value)}
        withheld = [name for name in topic.properties if name not in shown and name.startswith(_OF_LOGINS)]
        return {**begun, "ends": plain, "asked": asked_s, "kafka": shown, "withheld": withheld}

    def of(self, events: int) -> int | None:
        """Return the remaining input after this many events; None while a topic's end is not known.

        For a job that reads topics only their messages are counted.
        """
        if not self._topics:
            return max(0, self._records - events)
        read = read_positions(self._out)
        total = 0
        for topic in self._topics:
            ends = self._ends.get(topic.index) if topic.end is None else topic.end
            if ends is None:
                return None
            done = self._before.get(topic.name, {}) | read.get(topic.name, {})
            total += sum(left_in(topic.start, done, ends).values())
        return total


def operator_levels(profiles: Profiles) -> dict[str, LevelValues]:
    """Return the levels of the operators, by OPERATOR.NAME, over all parts and subtasks."""
    return {f"{operator}.{name}": level for operator, one in profiles.items() for name, level in one["levels"].items()}


def in_flight_bytes(profiles: Profiles) -> int:
    """Return the bytes that operators have passed to Flink and other tasks have not received yet.

    Each operator reports its own count twice a second: while data moves, the sum is off by up to half a second of
    traffic.
    """
    return max(0, sum(one["bytes_out"] - one["bytes_away"] - one["bytes_in"] for one in profiles.values()))


class LevelWatch:
    """Looks at a running job once a second, since no operator knows how much is under way between all of them."""

    def __init__(self, out: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.network_bytes: Callable[[], int | None] = lambda: None  # Flink's network memory, where it is known
        self._out, self._clock = out, clock
        self._looked_at = float("-inf")
        self._in_flight: LevelValues = {"now": 0, "peak": 0, "bound": None}

    def look(self) -> None:
        """Count the data under way, if the last count was a second ago."""
        if self._clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self._clock()
        if self._in_flight["bound"] is None:
            self._in_flight["bound"] = self.network_bytes()
        self._see(read_profiles(self._out))

    def as_dict(self) -> dict[str, LevelValues]:
        """Return all levels now; peaks are those since the job's last restart, except of data under way."""
        profiles = read_profiles(self._out)
        self._see(profiles)
        return {IN_FLIGHT: dict(self._in_flight), **operator_levels(profiles)}

    def _see(self, profiles: Profiles) -> None:
        now = in_flight_bytes(profiles)
        self._in_flight |= {"now": now, "peak": max(now, self._in_flight["peak"] or 0)}


def in_words(counts: ReadCounts, reasons: Mapping[str, int]) -> str:
    """Describe the number of rejected records, and the most frequent reason."""
    most = next(iter(reasons), "")
    why = f", most of them for: {most}" if len(reasons) > 1 else f": {most}" if most else ""
    return f"{counts.rejected:,} of {counts.read:,} records were rejected ({counts.share:.1%}){why}"


class RejectWatch:
    """Looks at what a run rejects, while it runs and at its end.

    `letters` is where its rejected records are, `share_max` the share of --max-rejected; None: it may be any.
    """

    def __init__(self, out: Path, letters: str, share_max: float | None = None) -> None:
        self._out, self._letters, self._share_max = out, letters, share_max
        self._has_said = self._was_too_much = self._has_told_deletions = False

    def look(self) -> str:
        """Say once that much is rejected, or deletes nothing; returns what the progress line has of rejected ones."""
        self._look_at_deletions(ASKED_FROM)
        counts = read_counts(self._out)
        if counts.share <= SAID_ABOVE:
            return f"{counts.rejected:,}" if counts.rejected else ""
        reasons = read_reasons(self._out)
        if not self._has_said and counts.read >= ASKED_FROM:
            self._has_said = True
            self._say(counts, reasons)
        return f"{counts.share:.1%}: {next(iter(reasons), '')}"

    def is_too_much(self) -> bool:
        """Return whether more was rejected than allowed, of enough records; once True, it stays True."""
        if self._share_max is not None and not self._was_too_much:
            counts = read_counts(self._out)
            self._was_too_much = counts.read >= ASKED_FROM and counts.share > self._share_max
        return self._was_too_much

    def verdict(self, summary: Mapping[str, Any], code: int) -> int:
        """The exit code of a run that has ended, with a reason on stderr where it is no success."""
        self._look_at_deletions(1)
        final = ReadCounts(summary["events"], summary["rejected"])
        counts = max(final, read_counts(self._out))
        if counts.share > SAID_ABOVE:
            self._say(counts, summary["reasons"])
        if code != EXIT_DONE or not counts.rejected:
            return code
        if counts.rejected == counts.read:
            say("freshet: no record was accepted")
            code = EXIT_CHECK_FAILED
        # what came between the look that stopped it and the stop may have made the share small again
        has_ended = has_finished(read_run(self._out))
        was_stopped = self._was_too_much and not has_ended
        if self._share_max is None or (counts.share <= self._share_max and not was_stopped):
            return code
        how = "the state is kept: --resume latest goes on, with a higher --max-rejected or off"
        if has_ended:
            how = "the run has taken in all of its input"
        say(f"freshet: more was rejected than --max-rejected {format_share_or_off(self._share_max)}; {how}")
        return EXIT_CHECK_FAILED

    def _look_at_deletions(self, least: int) -> None:
        """Say once that most of the deletions, `least` or more, were of what was not there."""
        noted = read_noted(self._out)
        nothing, deletions = noted["nothing_deleted"], noted["deletions"]
        if self._has_told_deletions or deletions < least or 2 * nothing <= deletions:
            return
        self._has_told_deletions = True
        say(
            f"{nothing:,} of {deletions:,} deletions were of a vertex or an edge that was not there, and changed "
            "nothing (nothing_deleted): see that ids and types are those of the additions, that these come first, and "
            "that the conditions (`when`) of an events-map are what you mean"
        )

    def _say(self, counts: ReadCounts, reasons: Mapping[str, int]) -> None:
        say(f"{in_words(counts, reasons)}; they are in {self._letters}")
