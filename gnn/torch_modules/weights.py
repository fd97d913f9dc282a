"""The weights of a model as parameters and buffers of torch, by their names in model.safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, Parameter


class WeightTree(Module):
    """A container of weights and of further containers, one for each part of a weight's name."""


def put(root: Module, name: str, values: np.ndarray, *, is_trained: bool) -> None:
    """Enter a copy of a weight into a module: a parameter if it is trained, else a buffer.

    A `state_dict` then has it by its name. Names of kinds are parts of names. They may be those of attributes of a
    module, such as `type`, or be empty, so that weights are entered, and found, without `setattr` and `getattr`.
    """
    *parts, last = name.split(".")
    place = root
    for part in parts:
        inside = place._modules.setdefault(part, WeightTree())
        assert inside is not None  # modules hold no None here
        place = inside
    tensor = torch.from_numpy(np.array(values))
    if is_trained:
        place._parameters[last] = Parameter(tensor)
    else:
        place._buffers[last] = tensor


def under(root: Module, prefix: str = "") -> dict[str, Tensor]:
    """Return the weights whose names begin with `prefix.`, by the rest of their names; empty: all of them."""
    place: Module | None = root
    for part in prefix.split(".") if prefix else ():
        place = None if place is None else place._modules.get(part)
    return {} if place is None else dict(_weights_in(place, ""))


def _weights_in(place: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    for tensors in (place._parameters, place._buffers):
        yield from ((prefix + name, tensor) for name, tensor in tensors.items() if tensor is not None)
    for name, inside in place._modules.items():
        if isinstance(inside, WeightTree):
            yield from _weights_in(inside, f"{prefix}{name}.")
        elif name == "parametrizations" and inside is not None:  # torch.nn.utils.parametrize has moved some there
            yield from ((prefix + one, getattr(place, one)) for one in inside._modules)


def within(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return those of some weights whose names begin with `prefix.`, by the rest of their names."""
    begin = prefix + "."
    return {name[len(begin) :]: weight for name, weight in weights.items() if name.startswith(begin)}
