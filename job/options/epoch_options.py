"""The options of `freshet run` that say how the stream is cut into epochs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from freshet.job.options.marks import EPOCHS, Count, DurationOrOff, Holds, MillisecondsOrOff, Option, Options
from freshet.job.units import format_duration
from freshet.operators.epochs.config import EPOCH_EVENTS, EPOCH_EVENTS_MAX, IDLE_MS, SealingConfig

LATENCY_TARGET_S = 0.05
_EPOCH_MS = SealingConfig().epoch_ms


class EpochOptions(Options):
    """Size and age of an epoch: adapted to the load, or given."""

    epoch_events_given: Annotated[Count | None, Option(EPOCHS, Holds.KEPT)] = Field(
        default=None,
        alias="epoch_events",
        ge=1,
        description="Accepted events per epoch; where epochs adapt, the maximum "
        f"(default: {EPOCH_EVENTS_MAX}, or {EPOCH_EVENTS} where they don't).",
    )
    epoch_ms_given: Annotated[Count | None, Option(EPOCHS, Holds.KEPT)] = Field(
        default=None,
        alias="epoch_ms",
        ge=0,
        description="Maximum time that an epoch stays open; 0: cut by count alone "
        f"(default: {_EPOCH_MS}, where epochs don't adapt).",
    )
    latency_target_given: Annotated[DurationOrOff, Option(EPOCHS, Holds.KEPT)] = Field(
        default=None,
        alias="latency_target",
        description="Adapt epochs to a target latency, such as 50ms: while fewer than two epochs are under way, events "
        "are an epoch at once; otherwise they wait for at most half the target. off: epochs don't adapt (default: "
        f"{format_duration(LATENCY_TARGET_S)}, or off where --epoch-events or --epoch-ms is given).",
    )

    epoch_event_time_ms: Annotated[MillisecondsOrOff, Option(EPOCHS, Holds.KEPT)] = Field(
        default=0,
        alias="epoch_event_time",
        description="End an epoch also before the first event whose ts is in the next interval of this length, such as "
        "1d, by the largest ts so far; of several partitions, the one that is behind counts.",
    )
    idle_ms: Annotated[MillisecondsOrOff, Option(EPOCHS, Holds.KEPT)] = Field(
        default=IDLE_MS,
        alias="idle",
        description="With --epoch-event-time: time without a ts after which a partition is not waited for; off: never.",
    )

    @property
    def epoch_events(self) -> int:
        """Accepted events that make an epoch; of one that adapts, the most."""
        if self.epoch_events_given is not None:
            return self.epoch_events_given
        return EPOCH_EVENTS_MAX if self.latency_target_ms else EPOCH_EVENTS

    @property
    def epoch_ms(self) -> int:
        """The longest time that an epoch stays open, in milliseconds; 0: epochs are cut by count alone."""
        return _EPOCH_MS if self.epoch_ms_given is None else self.epoch_ms_given

    @property
    def latency_target_ms(self) -> float:
        """The latency that epochs adapt to, in milliseconds; 0: they don't."""
        if self.latency_target_given is not None:
            return self.latency_target_given * 1000
        is_cut = self.epoch_events_given is not None or self.epoch_ms_given is not None
        return 0.0 if is_cut else LATENCY_TARGET_S * 1000

    def epochs_that_disagree(self) -> str:
        """Describe the conflict if epochs are to adapt and to be cut by count alone; else empty."""
        if not self.latency_target_ms or self.epoch_ms:
            return ""
        return (
            f"--latency-target {format_duration(self.latency_target_ms / 1000)}: epochs can't adapt where --epoch-ms 0 "
            "has them cut by count alone; give another --epoch-ms, or --latency-target off"
        )
