"""Aggregates of messages at their targets by PyTorch Geometric's functions, and self-loops that convs add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from freshet.gnn.convs.base import ExistingLoops, Quantile
from freshet.gnn.pyg.aggregations import Quantiles

_LEAST_VARIANCE = 1e-5
"""Variance up to which StdAggregation of PyTorch Geometric gives 0."""


class FarSources(Protocol):
    """Sources that are not all here: those that are here come first, as targets of relations within the kind do."""

    count: int

    def rows(self, here: Tensor) -> Tensor:
        """Return the values of all sources, given those that are here.

        Shapes: here (vertices here, ...); result (sources, ...)
        """

    def totals(self, values: Tensor) -> Tensor:
        """Return what edges everywhere add to the vertices here, given what those here add to all sources.

        Shapes: values (sources,); result (vertices here,)
        """


class MessageEdges(NamedTuple):
    """The edges that messages go along: numbers of sources and targets, and what each edge carries.

    Shapes: src, dst (e,) int64; weight (e,); attr (e, width); targets is the number of vertices that `dst` counts. With
    `far`, `src` counts its sources.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor
    attr: Tensor
    targets: int
    far: FarSources | None = None

    def at_sources(self, here: Tensor) -> Tensor:
        """Return values of vertices as those of the sources that `src` counts."""
        return here if self.far is None else self.far.rows(here)

    def aggregated(self, kinds: str | Quantile | Sequence[str | Quantile], messages: Tensor) -> Tensor:
        """Return an aggregate of messages, (e, width), or several side by side, as PyG's; most are 0 of none."""
        if isinstance(kinds, Quantile):
            quantiles = Quantiles(kinds.q, kinds.interpolation, kinds.fill_value).to(messages)
            of_all: Tensor = quantiles(messages, self.dst, dim_size=self.targets)
            return of_all
        if not isinstance(kinds, str):
            return torch.cat([self.aggregated(kind, messages) for kind in kinds], dim=1)
        if kinds in ("std", "var"):
            variance = self._variance(messages)
            return variance if kinds == "var" else _deviation(variance)
        made: Tensor = scatter(messages, self.dst, dim_size=self.targets, reduce=kinds)
        return made

    def _variance(self, messages: Tensor) -> Tensor:
        """Return the mean square of the distance from the mean.

        PyTorch Geometric subtracts the square of the mean from that of squares, of which float32 leaves little where
        messages are alike; jobs sum those in float64.
        """
        away = messages - self.of_targets(self.aggregated("mean", messages))
        return self.aggregated("mean", away * away)

    def softmax(self, scores: Tensor) -> Tensor:
        """Return the softmax of scores over the in-edges of each target, column by column."""
        made: Tensor = softmax(scores, self.dst, num_nodes=self.targets)
        return made

    def of_sources(self, rows: Tensor) -> Tensor:
        """Return rows of sources, or numbers of them, for each edge."""
        return rows.index_select(0, self.src)

    def of_targets(self, rows: Tensor) -> Tensor:
        """Return rows of targets, or numbers of them, for each edge."""
        return rows.index_select(0, self.dst)

    def counts(self) -> Tensor:
        """Return the number of in-edges of each target, (targets,) in the type of the weights."""
        return self.totals(torch.ones_like(self.weight))

    def totals(self, values: Tensor) -> Tensor:
        """Return the sum of a number of each edge at each target, (targets,)."""
        made: Tensor = scatter(values, self.dst, dim_size=self.targets, reduce="sum")
        return made

    def totals_of_sources(self, values: Tensor) -> Tensor:
        """Return the sum of a number of each edge at its source, within a kind; (targets,)."""
        count = self.targets if self.far is None else self.far.count
        made: Tensor = scatter(values, self.src, dim_size=count, reduce="sum")
        return made if self.far is None else self.far.totals(made)

    def chosen(self, places: Tensor) -> MessageEdges:
        """Return some of the edges, by a mask or their numbers."""
        src, dst, weight, attr = (of[places] for of in self[:4])
        return self._replace(src=src, dst=dst, weight=weight, attr=attr)

    def with_loops(self, fill: float | None, there: ExistingLoops, *, keeps: bool = True) -> MessageEdges:
        """Return the edges with a self-loop of weight and attributes `fill` at each vertex; None: with no further ones.

        `there` is what becomes of self-loops that are there; of those that are kept the weight is, if `keeps`.
        """
        if fill is None and there != "drop":
            return self
        is_loop = self.src == self.dst
        others = self if there == "beside" else self.chosen(~is_loop)
        if fill is None:
            return others
        weight = self.weight.new_full((self.targets,), fill)
        if keeps and there == "keep":
            weight[self.src[is_loop]] = self.weight[is_loop]
        return others.with_each_loop(weight, self.attr.new_full((self.targets, self.attr.shape[1]), fill))

    def with_each_loop(self, weight: Tensor, attr: Tensor) -> MessageEdges:
        """Return the edges and, behind them, a self-loop of each vertex with these values."""
        every = torch.arange(self.targets, device=self.dst.device)
        more = every, every, weight, attr
        src, dst, weight, attr = (torch.cat(both) for both in zip(self[:4], more, strict=True))
        return self._replace(src=src, dst=dst, weight=weight, attr=attr)


def _deviation(variance: Tensor) -> Tensor:
    return variance.clamp(min=_LEAST_VARIANCE).sqrt().masked_fill(variance <= _LEAST_VARIANCE, 0)
