"""Rows of vertices that other ranks have, fetched before a layer; gradients of them go back the same way."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from freshet.job.training.ranks.shards import HaloRows


class Halo:
    """Sources of one kind: a rank's own vertices first, then those of others, as `FarSources` of edges.

    All ranks call the same methods in the same order: each call waits for the others.
    `sent`: bytes of rows and gradients that this rank has sent.
    """

    def __init__(self, own: int, plan: HaloRows) -> None:
        """`own`: the number of the rank's own vertices."""
        self.own, self.plan = own, plan
        self.count = own + sum(plan.takes)
        self.sent = 0
        self._last: tuple[Tensor, Tensor] | None = None

    def rows(self, here: Tensor) -> Tensor:
        """Return the values of all sources, given those of the rank's own vertices.

        Shapes: here (own, ...); result (count, ...)
        """
        if self._last is None or self._last[0] is not here:  # relations of one kind read the same rows
            far: Tensor = _Fetch.apply(here, self)
            self._last = here, torch.cat([here, far])
        return self._last[1]

    def totals(self, values: Tensor) -> Tensor:
        """Return what edges of all ranks add to this rank's own vertices, given what its own edges add to sources.

        Shapes: values (count, ...); result (own, ...)
        """
        found: Tensor = _GiveBack.apply(values[: self.own], values[self.own :], self)
        return found

    def forget(self) -> None:
        """Let go the rows of the last pass."""
        self._last = None

    def taken(self, here: Tensor) -> Tensor:
        """Exchange rows: send those that others need, and return those of others."""
        return self._exchanged(here.index_select(0, self.plan.places), self.plan.sends, self.plan.takes)

    def given_back(self, far: Tensor) -> Tensor:
        """Exchange rows the other way round; return what others have of those that were sent, in that order."""
        return self._exchanged(far.contiguous(), self.plan.takes, self.plan.sends)

    def added(self, back: Tensor) -> Tensor:
        """Return the sums of rows that came back, by vertex.

        Shapes: back (sent, ...); result (own, ...)
        """
        return back.new_zeros((self.own, *back.shape[1:])).index_add_(0, self.plan.places, back)

    def _exchanged(self, rows: Tensor, sends: list[int], takes: list[int]) -> Tensor:
        found = rows.new_empty((sum(takes), *rows.shape[1:]))
        if 0 in rows.shape[1:]:  # rows without columns, as on all ranks
            return found
        dist.all_to_all_single(found, rows, takes, sends)
        self.sent += rows.numel() * rows.element_size()
        return found


class _Fetch(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Rows of other ranks; backwards their gradients, summed at those that have the rows."""

    @staticmethod
    def forward(ctx: Any, here: Tensor, halo: Halo) -> Tensor:
        ctx.halo = halo
        return halo.taken(here)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override, unused-ignore]
        return ctx.halo.added(ctx.halo.given_back(gradient)), None


class _GiveBack(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Sums at a rank's own vertices, with what other ranks have of them; backwards the gradients of these."""

    @staticmethod
    def forward(ctx: Any, here: Tensor, far: Tensor, halo: Halo) -> Tensor:
        ctx.halo = halo
        return here + halo.added(halo.given_back(far))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override, unused-ignore]
        return gradient, ctx.halo.taken(gradient), None
