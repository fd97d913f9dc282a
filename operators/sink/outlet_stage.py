"""The stage of Sinks with outlets."""

from __future__ import annotations

from collections.abc import Iterable

from freshet.operators.outcome import Outcome
from freshet.operators.sink.core import Sink
from freshet.operators.sink.task import TaskSink
from freshet.operators.stage import Stage
from freshet.operators.telemetry.traffic import Traffic, all_traffic
from freshet.state.codec import Block

_FLUSHED = "flushed"  # the entry of keyed state


class OutletStage(Stage):
    """The stage of Sinks with outlets: keeps how far each has handed over in keyed state, beside its tables."""

    core: Sink | TaskSink

    def restore(self, *items: Iterable[tuple[str, bytes]]) -> None:
        """Load the newest complete cut, and the epochs up to which rows were handed over."""
        states = [dict(entries) for entries in items]
        for outlet, entries in zip(self.core.outlets, states, strict=True):
            outlet.flushed = int(entries.pop(_FLUSHED, b"0"))
        super().restore(*(entries.items() for entries in states))

    @property
    def traffic(self) -> Traffic:
        """Messages to the topic, of all parts."""
        return all_traffic(outlet.traffic for outlet in self.core.outlets)

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""
        before = [outlet.flushed for outlet in self.core.outlets]
        outcome = super().act(blocks)
        for part, outlet, flushed in zip(self.parts, self.core.outlets, before, strict=True):
            if outlet.flushed != flushed:
                outcome.of(part).puts.append((_FLUSHED, str(outlet.flushed).encode()))
        return outcome
