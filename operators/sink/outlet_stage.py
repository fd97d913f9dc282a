"""The stage of a Sink with an outlet."""

from __future__ import annotations

from collections.abc import Iterable

from operators.outcome import Outcome
from operators.sink.core import Sink
from operators.sink.outlet import Outlet
from operators.stage import Stage
from state.codec import Block

_FLUSHED = "flushed"  # the entry of keyed state


class OutletStage(Stage):
    """The stage of a Sink with an outlet: keeps how far it has handed over in keyed state, beside the tables."""

    core: Sink

    def restore(self, *items: Iterable[tuple[str, bytes]]) -> None:
        """Load the newest complete cut, and the epoch up to which rows were handed over."""
        (entries,) = map(dict, items)
        self._outlet.flushed = int(entries.pop(_FLUSHED, b"0"))
        super().restore(entries.items())

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""
        before = self._outlet.flushed
        outcome = super().act(blocks)
        if self._outlet.flushed != before:
            outcome.of(self.parts[0]).puts.append((_FLUSHED, str(self._outlet.flushed).encode()))
        return outcome

    @property
    def _outlet(self) -> Outlet:
        assert self.core.outlet is not None
        return self.core.outlet
