"""The options of `freshet run` and `freshet embed` that say how the graph is divided into parts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from freshet.job.options.marks import EPOCHS, FILE, Count, Holds, Option, Options, Ratio
from freshet.job.options.runtime_options import PARTS_MAX
from freshet.partitioner.config import PartitionerConfig, SnapshotPlacement, Strategy

_DEFAULT = PartitionerConfig()


class PartitioningOptions(Options):
    """Parts of the graph and the rules that fill them, all for the job's life."""

    parts: Annotated[Count | None, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default=None,
        ge=1,
        le=PARTS_MAX,
        description="Graph parts, fixed for the job's life, at most 128 on Flink; also the most subtasks that a layer "
        "can ever have (default: --parallelism / --pipeline). Unused parts cost little (docs/design/parts.md).",
    )
    strategy: Annotated[Strategy, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default="hybrid", alias="partitioner", description="Strategy that assigns edges and vertices to parts."
    )
    snapshot_placement: Annotated[SnapshotPlacement, Option(EPOCHS, Holds.FOR_LIFE)] = Field(
        default="whole",
        description="Placement of a snapshot by hybrid and locality: whole, by METIS, so that few edges are cut (up to "
        "8 million edges), or stream, edge by edge like later events.",
    )
    hybrid_threshold: Annotated[Count, Option(FILE, Holds.FOR_LIFE)] = Field(
        default=_DEFAULT.hybrid_threshold,
        ge=1,
        description="hybrid: in-degree above which new in-edges are spread by HDRF.",
    )
    hdrf_lambda: Annotated[Ratio, Option(FILE, Holds.FOR_LIFE)] = Field(
        default=_DEFAULT.hdrf_lambda,
        ge=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: weight of balance against replication.",
    )
    hdrf_epsilon: Annotated[Ratio, Option(FILE, Holds.FOR_LIFE)] = Field(
        default=_DEFAULT.hdrf_epsilon,
        gt=0,
        allow_inf_nan=False,
        description="hdrf, hybrid: keeps the balance term finite.",
    )
