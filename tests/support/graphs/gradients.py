"""Gradients of a module, compared with central differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_STEP, _TOLERANCE = 1e-6, 1e-6


def assert_gradients(module: Any, run: Callable[[], Sequence[Any]], seed: int, *, least: int = 1) -> None:
    """Compare the derivatives of a random projection of rows along a random direction of each parameter.

    `run` calls the module, which is in float64, and whose parameters are moved a little. At least `least` parameters
    have a gradient other than 0.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # weights of 0 and 1 that an export made may leave rows at the kink of an activation
        for parameter in module.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    weights = [torch.randn(rows.shape, generator=draw, dtype=torch.float64) for rows in run()]

    def projected() -> Any:
        return sum((rows * weight).sum() for rows, weight in zip(run(), weights, strict=True))

    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(projected(), list(parameters.values()), allow_unused=True)
    moved = 0
    for (name, parameter), gradient in zip(parameters.items(), found, strict=True):
        direction = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        with torch.no_grad():
            values = []
            for sign in (1, -1):
                parameter += sign * _STEP * direction
                values.append(float(projected()))
                parameter -= sign * _STEP * direction
        difference = (values[0] - values[1]) / (2 * _STEP)
        terms = torch.zeros(1) if gradient is None else gradient * direction
        size = float(terms.abs().sum()) + 0.02 * max(1.0, *map(abs, values))
        assert abs(difference - float(terms.sum())) <= _TOLERANCE * size, (name, difference, float(terms.sum()))
        moved += bool(terms.abs().max() > 0)
    assert moved >= least, "no parameter has a gradient"
