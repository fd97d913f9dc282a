"""Modules that know which model they are, so that their export reads nothing."""

from __future__ import annotations

from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model


class DeclaredModule(Module):
    """Base of the modules that were made of a model, and are exported as that model with the weights of now."""

    def model(self) -> Model | KindsModel:
        """Return the model with the weights that the module has now.

        Raises: ExportError for weights that are NaN, infinite or past float32.
        """
        raise NotImplementedError
