"""The weights of torch modules as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import Layer
from freshet.gnn.pyg.steps import Step, array_of, refuse_other

Weights = dict[str, np.ndarray]
Converted = tuple[Layer, Weights]


def tensors(step: Step, **modules: Any) -> Weights:
    """Return weight and bias of these modules, as `name.weight` and `name.bias`."""
    found: Weights = {}
    for name, module in modules.items():
        refuse_other(step, name, module, "torch_geometric.nn.Linear", "torch.nn.Linear")
        found[f"{name}.weight"] = array_of(step, module.weight)
        if module.bias is not None:
            found[f"{name}.bias"] = array_of(step, module.bias)
    return found
