"""Settings of the Partitioner's stage: ends of epochs, markers, bounds of waiting data, and the cut log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Events of an epoch: of each one, and of one that adapts at most.
EPOCH_EVENTS, EPOCH_EVENTS_MAX = 1000, 10_000
# Fewer journaled bytes than this call for no marker: it has every changed page written once, and that would cost more
# than it saves.
JOURNAL_BYTES = 64 << 20
WAITING_BYTES = 32 << 20
IDLE_MS = 30_000


@dataclass(frozen=True, slots=True)
class SealingConfig:
    """Rules by which epochs are sealed and markers follow.

    `marker_*`, `vertex_bytes`, `edge_bytes` and `journal_bytes` are explained in operators/epochs/cutter.py.
    `flush_epochs` and `flush_ms` end the intervals of an output that coalesces (operators/epochs/flush_intervals.py).
    `publish_ms` is the longest time until results are readable. `publish_after_ms` after the files of the change log
    closed last, the next epoch closes them again; in a pause an empty one does, once. It need not be a marker (which
    would rewrite a large state for a few rows): the flag in the cut log is enough for a replay to write the same files.
    0: they close at markers and by their size alone.
    `latency_target_ms`: epochs adapt to it, with `epoch_events` as their maximum (operators/epochs/cutter.py), and
    `epoch_ms` cuts none. 0: they do not adapt.
    `epoch_event_time_ms`: the length of the intervals of event time that end epochs, too, and `idle_ms` the time after
    which a lane is passed over (operators/epochs/event_time.py). 0: event time ends none.

    Units: epoch_events, marker_epochs_max, flush_epochs numbers; names in _ms milliseconds, names in _bytes bytes;
    vertex_bytes and edge_bytes what one vertex and one edge take in all operators together.
    """

    epoch_events: int = EPOCH_EVENTS
    epoch_ms: int = 20
    marker_interval_ms: int = 10_000
    marker_epochs_max: int = 20_000
    vertex_bytes: int = 0
    edge_bytes: int = 0
    journal_bytes: int = JOURNAL_BYTES
    waiting_bytes: int = WAITING_BYTES
    flush_epochs: int = 0
    flush_ms: int = 0
    publish_ms: int = 0
    latency_target_ms: float = 0.0
    epoch_event_time_ms: int = 0
    idle_ms: int = IDLE_MS

    @property
    def publish_after_ms(self) -> int:
        """Time after which files close: a tenth of it is left for the operators and the disk."""
        return self.publish_ms * 9 // 10


@dataclass(frozen=True, slots=True)
class CutLogConfig:
    """Location of the cut log (`folder`, or `topic` for the job's life), and the cuts that are kept.

    `topic` is an address as options have them, `topic_id` which topic of that name it is. `opener` names the function
    that opens it, given the address, `properties`, `secrets` and the job: the properties of Kafka's clients, and the
    variables that they name. Only the Partitioner has these, and no file does.
    """

    folder: str = ""
    keep_cuts: bool = False
    checkpoints: str = ""  # the folder of Flink's, or of reports about those in another store
    checkpoints_away: bool = False  # whether they are in another store
    topic: str = ""
    topic_id: str = ""
    opener: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
