"""Fields of every conv's entry in model.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import SerializerFunctionWrapHandler, model_serializer

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.rows.chains import chain_width
from freshet.gnn.rows.dense import DenseLayer
from freshet.gnn.rows.layer import Layer, Width
from freshet.gnn.synopses.quantiles import Quantile as Quantile

Aggregator = Literal["sum", "mean", "max", "min", "std", "var"]
AnyAggregator: TypeAlias = Aggregator | Literal["mul"] | Quantile
"""Aggregators of a message_conv; mul, the product of the messages, 1 of none, and quantiles are made again of all."""
ExistingLoops = Literal["keep", "beside", "drop"]
"""Treatment of self-loops that the graph has. keep: each replaces the one that the conv adds; where the conv adds none,
it is an edge like any other. beside: it is an edge in addition to the added one. drop: it is left out."""


class Conv(Layer):
    """Base of the layers that read neighbours."""

    LATER: ClassVar[dict[str, Any]] = {}
    """Options of later versions, with the values that say what layers did before these."""
    BETWEEN_KINDS: ClassVar[bool] = False
    """The conv may stand in a relation from one kind of vertices to another; each may within a kind."""

    in_channels: Width
    out_channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave later options out where they change nothing: models of before keep their identity."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if self.LATER.get(name, ...) != value}

    @property
    def target_width(self) -> int:
        """Width of the rows of targets, `target_channels` where it has them; else that of sources."""
        return int(getattr(self, "target_channels", None) or self.in_channels)

    @property
    def reads_own(self) -> bool:
        """True if the result for a vertex depends on its own row."""
        return True

    @property
    def edge(self) -> EdgeReads:
        """Description of what its messages read of an edge, by `edge_weights` and `edge_channels` where it has them."""
        return EdgeReads(getattr(self, "edge_weights", False), getattr(self, "edge_channels", 0), self.skips_loops)

    @property
    def loops_there(self) -> ExistingLoops:
        """Treatment of self-loops that the graph has, `existing_loops` where it has them."""
        there: ExistingLoops = getattr(self, "existing_loops", "keep")
        return there

    @property
    def skips_loops(self) -> bool:
        """True if no self-loop of the graph is a message: each is left out, or stands in for one that is added."""
        adds = getattr(self, "add_self_loops", False)
        return self.loops_there == "drop" or (self.loops_there == "keep" and adds)


class AggregatingConv(Conv):
    """Base of the convs that had no other aggregator than the sum once."""

    LATER: ClassVar[dict[str, Any]] = {"aggr": "sum"}

    aggr: Aggregator = "sum"


def check_same_width(conv: Conv) -> None:
    """Refuse another width behind a conv that cannot change it.

    Raises: ValueError
    """
    if conv.out_channels != conv.in_channels:
        kind = type(conv).model_fields["type"].default
        msg = f"{kind}: out_channels {conv.out_channels} differs from in_channels {conv.in_channels}"
        raise ValueError(msg)


def check_nn(conv: Conv, nn: Sequence[DenseLayer], width: int) -> None:
    """Refuse a chain `nn` that does not make the conv's rows of rows of that width.

    Raises: ValueError
    """
    kind = type(conv).model_fields["type"].default
    if (out := chain_width(nn, width, f"{kind}.nn")) != conv.out_channels:
        msg = f"{kind}: nn makes rows of width {out}, expected out_channels {conv.out_channels}"
        raise ValueError(msg)


def check_existing_loops(kind: str, there: ExistingLoops, adds: bool) -> None:
    """Refuse self-loops beside others where a conv adds none.

    Raises: ValueError
    """
    if there == "beside" and not adds:
        msg = f"{kind}: existing_loops beside needs add_self_loops; without, keep says the same"
        raise ValueError(msg)
