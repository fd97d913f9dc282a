"""Handling of rejected records in a run: it reports them, and ends with 1 if they are too many.

Where most deletions find nothing to delete, it reports that, too: the events are not what was meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.errors import EXIT_CHECK_FAILED, EXIT_DONE
from freshet.job.folder.run_file import has_finished, read_run
from freshet.job.units import format_share_or_off
from freshet.operators.parser.letter_box import ReadCounts, read_counts, read_noted, read_reasons

SAID_ABOVE = 0.01
ASKED_FROM = 1000  # records: fewer show nothing yet


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
        told = ReadCounts(summary["events"], summary["rejected"])
        counts = max(told, read_counts(self._out))
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
