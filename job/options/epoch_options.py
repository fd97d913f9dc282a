"""The options of `freshet run` that say how the stream is cut into epochs and the graph into parts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from job.options.marks import EPOCHS, Count, Holds, Option, Options, Ratio
from job.options.runtime_options import PARTS_MAX
from operators.epochs.config import SealingConfig
from partitioner.config import PartitionerConfig

PartitionerName = Literal["hybrid", "hdrf", "locality", "hash"]
_PARTITIONER, _SEALING = PartitionerConfig(), SealingConfig()  # their defaults are those of a run


class EpochOptions(Options):
    """Epochs and parts."""

    parts: Annotated[Count | None, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default=None,
        ge=1,
        le=PARTS_MAX,
        description="Parts of the graph, for the job's life, on Flink at most 128 (default: --parallelism).",
    )
    epoch_events: Annotated[Count, Option(EPOCHS, Holds.KEPT)] = Field(
        default=_SEALING.epoch_events, ge=1, description="Accepted events that make an epoch."
    )
    epoch_ms: Annotated[Count, Option(EPOCHS, Holds.KEPT)] = Field(
        default=_SEALING.epoch_ms, ge=0, description="Longest that an epoch stays open; 0: cut by count alone."
    )
    strategy: Annotated[PartitionerName, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default="hybrid", alias="partitioner", description="How edges and vertices find their part."
    )
    hybrid_threshold: Annotated[Count, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default=_PARTITIONER.hybrid_threshold,
        ge=1,
        description="hybrid: in-degree past which new in-edges are spread by HDRF.",
    )
    hdrf_lambda: Annotated[Ratio, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default=_PARTITIONER.hdrf_lambda,
        ge=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: weight of balance against replication.",
    )
    hdrf_epsilon: Annotated[Ratio, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default=_PARTITIONER.hdrf_epsilon,
        gt=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: keeps the balance term finite.",
    )
