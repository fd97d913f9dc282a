"""Modules that know which model they are, so that their export reads nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.check import Theirs, compare, ours_of
from freshet.gnn.pyg.forward.asked import FORWARD
from freshet.gnn.pyg.graphs import Graphs
from freshet.gnn.pyg.kinds.calling import ModuleCall
from freshet.gnn.pyg.kinds.metadata import WITHOUT_KINDS, Metadata, Parts
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.kinds.widths import Widths
from freshet.kinds_graph import KindsGraph


class DeclaredModule(Module):
    """Base of the modules that were made of a model, and are exported as that model with the weights of now."""

    def model(self) -> Model | KindsModel:
        """Return the model with the weights that the module has now.

        Raises: ExportError for weights that are NaN, infinite or past float32.
        """
        raise NotImplementedError

    def as_pass(self, model: Model | KindsModel) -> Module:
        """Return a module with the weights of such a model that is called with a KindsGraph.

        It makes a list: the embeddings of each returned kind, then the logits of those with a head.
        """
        raise NotImplementedError


def checked_model(module: DeclaredModule) -> Model | KindsModel:
    """Return the model of a module, whose plan makes what the module makes of random graphs.

    Raises: ExportError where it makes something else, or for weights that are NaN, infinite or past float32.
    """
    model = module.model()

    def run(made: Any, graph: KindsGraph, dtype: Any) -> list[np.ndarray]:
        with torch.no_grad():
            return [rows.numpy() for rows in made(graph)]

    def copies() -> Theirs:
        return Theirs(module.as_pass(model), module.as_pass(model).double(), run, copies)

    graphs = _graphs_of(model)
    compare(copies(), ours_of(model, graphs), list(graphs.trials()), list(graphs.sized(large=False)))
    return model


def _graphs_of(model: Model | KindsModel) -> Graphs:
    """Return random graphs of a model, in which learned rows are features."""
    call = ModuleCall("forward")
    if isinstance(model, Model):
        edges = [model.edge_features]
        return Graphs(Run(call, WITHOUT_KINDS, FORWARD), Widths([model.features.width], edges, edges), Parts([0], [0]))
    widths = [sum(parts.values()) for parts in model.row_parts().values()]
    kinds = Metadata(list(model.kinds), [one.ends for one in model.relations], [one.mirrors for one in model.relations])
    edges = [one.edge_features for one in model.relations]
    every = Parts(list(range(len(widths))), list(range(len(edges))))
    return Graphs(Run(call, kinds, FORWARD), Widths(widths, edges, edges), every)
