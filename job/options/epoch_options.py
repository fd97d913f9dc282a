"""The options of `freshet run` that say how the stream is cut into epochs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from freshet.job.options.marks import EPOCHS, Count, DurationOrOff, Holds, Option, Options
from freshet.job.units import format_duration
from freshet.operators.epochs.config import EPOCH_EVENTS, EPOCH_EVENTS_MAX, SealingConfig

_SEALING = SealingConfig()  # its defaults are those of a run


class EpochOptions(Options):
    """Size and age of an epoch."""

    epoch_events_given: Annotated[Count | None, Option(EPOCHS, Holds.KEPT)] = Field(
        default=None,
        alias="epoch_events",
        ge=1,
        description="Accepted events per epoch "
        f"(default: {EPOCH_EVENTS}); with --latency-target, the maximum (default: {EPOCH_EVENTS_MAX}).",
    )
    epoch_ms: Annotated[Count, Option(EPOCHS, Holds.KEPT)] = Field(
        default=_SEALING.epoch_ms, ge=0, description="Maximum time that an epoch stays open; 0: cut by count alone."
    )
    latency_target_s: Annotated[DurationOrOff, Option(EPOCHS, Holds.KEPT)] = Field(
        default=0.0,
        alias="latency_target",
        description="Adapt epochs to a target latency, such as 50ms: while fewer than two epochs are under way, events "
        "are an epoch at once; otherwise they wait for at most half the target.",
    )

    @property
    def epoch_events(self) -> int:
        """Accepted events that make an epoch; of one that adapts, the most."""
        if self.epoch_events_given is not None:
            return self.epoch_events_given
        return EPOCH_EVENTS_MAX if self.latency_target_s else EPOCH_EVENTS

    @property
    def latency_target_ms(self) -> float:
        """The latency that epochs adapt to, in milliseconds; 0: they don't."""
        return self.latency_target_s * 1000

    def epochs_that_disagree(self) -> str:
        """Describe the conflict if epochs are to adapt and to be cut by count alone; else empty."""
        if not self.latency_target_s or self.epoch_ms:
            return ""
        return (
            f"--latency-target {format_duration(self.latency_target_s)}: epochs can't adapt where --epoch-ms 0 has "
            "them cut by count alone; give another --epoch-ms, or --latency-target off"
        )
