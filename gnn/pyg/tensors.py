"""The weights of torch modules as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnn.declarations import Layer
from gnn.pyg.steps import ExportError, Step, array_of, class_name

Weights = dict[str, np.ndarray]
Converted = tuple[Layer, Weights]

_LINEAR = ("torch.nn.Linear", "torch_geometric.nn.Linear")


def tensors(step: Step, **modules: Any) -> Weights:
    """Return weight and bias of these modules, as `name.weight` and `name.bias`."""
    found: Weights = {}
    for name, module in modules.items():
        if class_name(module) not in _LINEAR:
            msg = f"{step.name}: its {name} is a {class_name(module)}, expected Linear"
            raise ExportError(msg)
        found[f"{name}.weight"] = array_of(step, module.weight)
        if module.bias is not None:
            found[f"{name}.bias"] = array_of(step, module.bias)
    return found
