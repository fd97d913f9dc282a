"""Number of waiting events in the next epoch, if the cut log does not have it.

Without a latency target, epochs are cut by count: as many events as an epoch has, no sooner. (The clock cuts, too, but
that is the Cutter's.) With one they adapt, as a database commits in groups: what comes while nothing is under way is an
epoch at once, and what comes while epochs are under way waits and is the next one. So epochs are as small as the job
can keep up with, and grow with the backlog, up to the ceiling.
"""

from __future__ import annotations

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.under_way import UnderWay

# As many epochs are under way at once before events wait: operators overlap, and no epoch stands in a long line.
EPOCHS_UNDER_WAY = 2


class Pace:
    """Decides when enough events wait.

    With a target, an epoch is due when fewer than `EPOCHS_UNDER_WAY` are under way, when it has reached the ceiling, or
    when its oldest event has waited for half of the target: the other half is for the way to the Sink.

    `under_way` is to be set by whoever knows the Sink; without it only the ceiling and the clock decide.
    """

    def __init__(self, config: SealingConfig) -> None:
        self.under_way = UnderWay()
        self.adapts = config.latency_target_ms > 0
        self._ceiling, self._patience_ms = config.epoch_events, config.latency_target_ms / 2
        self._since_ms: float | None = None  # that the oldest event waits

    def events_due(self, waiting: int, now_ms: float) -> int:
        """Return how many of the waiting events become an epoch now; 0: it is not time yet."""
        if waiting >= self._ceiling:
            return self._ceiling
        return waiting if waiting and self.adapts and self._is_time(now_ms) else 0

    def _is_time(self, now_ms: float) -> bool:
        if self._since_ms is None:
            self._since_ms = now_ms
        epochs = self.under_way.epochs
        has_room = epochs is not None and epochs < EPOCHS_UNDER_WAY
        return has_room or now_ms - self._since_ms >= self._patience_ms

    def note_sealed(self, epoch: int) -> None:
        """Note a sealed epoch; the remaining events arrived with its last ones."""
        self._since_ms = None
        self.under_way.note_sealed(epoch)
