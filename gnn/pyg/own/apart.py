"""Operations of torch that are noted as simpler ones, which give the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table


def _clamp(x: torch.Tensor, low: Any = None, high: Any = None) -> torch.Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _variance(x: torch.Tensor, dim: Sequence[int], *, correction: float = 1, keepdim: bool = False) -> torch.Tensor:
    """Return the variance over dimensions of each row."""
    off = x - x.mean(dim, keepdim=True)
    count = math.prod(x.shape[d] for d in dim)
    return (off * off).sum(dim, keepdim=keepdim) * (1 / (count - correction))


def _product(x: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    parts = x.unbind(dim)
    made = math.prod(parts[1:], start=parts[0])
    return made.unsqueeze(dim) if keepdim else made


def _log_odds(x: torch.Tensor) -> torch.Tensor:
    return (x / (1 - x)).log()


def _log_of_sum(x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    most = x.amax(dim, keepdim=True)
    return (x - most).exp().sum(dim, keepdim).log() + (most if keepdim else most.squeeze(list(dim)))


def _log_of_sums(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.maximum(one, other) + (1 + (-(one - other).abs()).exp()).log()


_APART: dict[str, Callable[..., torch.Tensor]] = {
    "log1p": lambda x: (x + 1).log(),
    "log2": lambda x: x.log() * (1 / math.log(2)),
    "log10": lambda x: x.log() * (1 / math.log(10)),
    "exp2": lambda x: (x * math.log(2)).exp(),
    "expm1": lambda x: x.exp() - 1,
    "lerp": lambda one, other, weight: one + weight * (other - one),
    "hypot": lambda one, other: (one * one + other * other).sqrt(),
    "logaddexp": _log_of_sums,
    "logsumexp": _log_of_sum,
    "logit": lambda x, eps=None: _log_odds(x if eps is None else x.clamp(eps, 1 - eps)),
    "var.correction": _variance,
    "var.default": lambda x, dims, correction=1, *, output_dtype=None: _variance(x, dims, correction=correction),
    "std.correction": lambda *args, **options: _variance(*args, **options).sqrt(),
    "prod.dim_int": _product,
    "clamp.Tensor": lambda x, min=None, max=None: _clamp(x, min, max),
    "clamp_min.Tensor": lambda x, min: _clamp(x, min),
    "clamp_max.Tensor": lambda x, max: _clamp(x, None, max),
}


def taken_apart(operation: Any) -> Callable[..., Any] | None:
    """Return the function that makes what an operation of torch makes, of simpler operations; None where there is none.

    Those that are not listed are taken apart as torch's own compiler does it.
    """
    name, overload = operation.overloadpacket.__name__, operation._overloadname
    own = name.rstrip("_")  # which does not write over what it reads
    if (found := _APART.get(f"{own}.{overload}") or _APART.get(own)) is not None or name.endswith("_"):
        return found
    if (found := decomposition_table.get(operation)) is not None:
        return found
    return operation.decompose if operation._can_decompose() else None
