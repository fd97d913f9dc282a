"""The stage of Sinks with outlets."""

from __future__ import annotations

from collections.abc import Iterable

from freshet.operators.outcome import Outcome
from freshet.operators.sink.core import Sink
from freshet.operators.sink.task import TaskSink
from freshet.operators.stage import Stage
from freshet.operators.telemetry.traffic import Traffic, all_traffic
from freshet.state.codec import Block

_FLUSHED = "flushed"  # the entry of keyed state, behind the prefix of a kind where several are returned


class OutletStage(Stage):
    """The stage of Sinks with outlets: keeps how far each has handed over in keyed state, beside its tables."""

    core: Sink | TaskSink

    def restore(self, *items: Iterable[tuple[str, bytes]]) -> None:
        """Load the newest complete cut, and the epochs up to which rows were handed over."""
        states = [dict(entries) for entries in items]
        for outlets, entries in zip(self.core.outlets, states, strict=True):
            for prefix, outlet in outlets.items():
                outlet.flushed = int(entries.pop(prefix + _FLUSHED, b"0"))
        super().restore(*(entries.items() for entries in states))

    @property
    def traffic(self) -> Traffic:
        """Messages to the topic, of all parts."""
        return all_traffic(outlet.traffic for outlets in self.core.outlets for outlet in outlets.values())

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""
        by_part = list(zip(self.parts, self.core.outlets, strict=True))
        every = [(part, prefix, outlet) for part, outlets in by_part for prefix, outlet in outlets.items()]
        before = [outlet.flushed for *_, outlet in every]
        outcome = super().act(blocks)
        for (part, prefix, outlet), flushed in zip(every, before, strict=True):
            if outlet.flushed != flushed:
                outcome.of(part).puts.append((prefix + _FLUSHED, str(outlet.flushed).encode()))
        return outcome
