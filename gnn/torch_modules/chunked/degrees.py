"""Degrees of sources that a chunk of targets does not have, found chunk by chunk before the layer's own pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

TOTALS, ROWS, KNOWN = range(3)


@dataclass
class SourceDegrees:
    """Numbers that a conv reads of all vertices of a kind beside their rows: a total of each one, then a scale.

    A pass over the edges alone sums the totals, a second one takes the scales, and the third one has both.

    Shapes: totals, scales (vertices,) float64
    """

    totals: np.ndarray
    scales: np.ndarray
    step: int = TOTALS

    @staticmethod
    def of(vertices: int) -> SourceDegrees:
        """Return those of some vertices of which nothing is known."""
        return SourceDegrees(np.zeros(vertices), np.zeros(vertices))

    def chunk(self, first: int, targets: int, ids: np.ndarray) -> ChunkSources:
        """Return the sources of a chunk, which begin with its targets."""
        return ChunkSources(self, slice(first, first + targets), ids)


class ChunkSources:
    """Sources of a chunk of targets of the same kind, as `FarSources` of its edges."""

    def __init__(self, degrees: SourceDegrees, targets: slice, ids: np.ndarray) -> None:
        self._degrees, self._targets, self._ids = degrees, targets, ids
        self.count = len(ids)

    def rows(self, here: Tensor) -> Tensor:
        """Return the scales of all sources; those of the targets are taken in the second pass."""
        degrees = self._degrees
        if degrees.step == ROWS:
            degrees.scales[self._targets] = here.cpu().numpy()
        return _there(degrees.scales[self._ids], here)

    def totals(self, values: Tensor) -> Tensor:
        """Return the totals of the targets; in the first pass the chunk's edges are added to those of its sources."""
        degrees = self._degrees
        if degrees.step == TOTALS:
            degrees.totals[self._ids] += values.cpu().numpy()
        return _there(degrees.totals[self._targets], values)


class UnknownDegrees:
    """Sources of a conv that is not known to read degrees: a conv that does so all the same ends with an error.

    Raises: TypeError from both methods.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def rows(self, here: Tensor) -> Tensor:
        """Refuse to give scales."""
        msg = "a conv that reads degrees of sources has no entry in DEGREES (gnn/torch_modules/registry.py)"
        raise TypeError(msg)

    totals = rows


def _there(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like)
