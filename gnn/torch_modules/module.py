"""Models as modules of torch: what they have in common, and one class for each way in which they are called."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as chain_of
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data, HeteroData

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.kinds.names import head_name
from freshet.gnn.link_head import DOT, LEFT, RIGHT, LinkHead
from freshet.gnn.model import Model, validated
from freshet.gnn.module_answers import ModuleAnswer
from freshet.gnn.pyg.declared import DeclaredModule
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.export import export_model
from freshet.gnn.pyg.finite import why_not_finite
from freshet.gnn.rows.layer import Layer
from freshet.gnn.torch_modules.answers import renewed
from freshet.gnn.torch_modules.data import arguments_of
from freshet.gnn.torch_modules.errors import refuse_input
from freshet.gnn.torch_modules.graphs import ModelPass
from freshet.gnn.torch_modules.inputs import rows_of
from freshet.gnn.torch_modules.programs import run_program
from freshet.gnn.torch_modules.rows import chain
from freshet.gnn.torch_modules.statistics import statistics_of
from freshet.gnn.torch_modules.weights import put, under


class FreshetModule(DeclaredModule):
    """Base of the torch modules that `freshet.to_torch` makes of model folders.

    Its `state_dict` has the names of model.safetensors. Trained weights are parameters. Statistics are buffers: the
    degrees of PNAConv, norms over all vertices with what they had on the graph of the export (`frozen_norm`), the ids
    of learned rows, and numbers in the messages of convs of your own. What is no weight of a model is a constant here,
    too, such as the eps of GINConv.

    Not there is what an export leaves out: dropout, and the running statistics of BatchNorm, which are part of its
    factor and its shift. So `train()` and `eval()` change nothing. Weights that layers shared, such as the bases of an
    RGCNConv, are copies by layer, kind or type, which training may move apart.
    """

    def __init__(self, model: Model | KindsModel, answers: Sequence[ModuleAnswer] = ()) -> None:
        """Take a model, and what the module that it was exported from made of some graphs."""
        super().__init__()
        self._sha256, self._answers = model.sha256(), list(answers)
        self._declared = model.model_copy(update={"weights": {}})
        statistics = statistics_of(model)
        for name in model.tensors():
            put(self, name, model.weights[name], is_trained=name not in statistics)

    @property
    def declared(self) -> Model | KindsModel:
        """The model without its tensors."""
        return self._declared

    def model(self) -> Model | KindsModel:
        """Return the model with the weights that the module has now, in float32.

        Raises: ExportError naming weights that are NaN, infinite or past float32.
        """
        if reason := why_not_finite(self):
            raise ExportError(reason)
        declared, weights = self._declared, dict[str, np.ndarray]()
        for name, tensor in under(self).items():
            values = tensor.detach().cpu()
            weights[name] = np.array((values.float() if values.is_floating_point() else values).numpy())
        made = validated(type(declared), {**declared.declaration(), "weights": weights, "checks": declared.checks})
        is_as_loaded = made.sha256() == self._sha256
        return made.model_copy(update={"module_answers": renewed(made, self._answers, keep=is_as_loaded)})

    def save(self, folder: str | Path) -> None:
        """Write the model with the weights of now as a model folder, in float32.

        Weights that did not change keep the SHA-256 of the model and of model.safetensors. The findings about layers
        stay, since they are about what layers declare; `freshet.export_model(module, folder)` checks them once more.
        What the module of the export made of some graphs is made by this one where weights have changed.

        Raises: ExportError for weights that are NaN or infinite, and for a folder of another model.
        """
        export_model(self, folder)

    def as_pass(self, model: Model | KindsModel) -> Module:
        """Return such a model as a module that is called with a graph of numpy, as export compares it with its plan."""
        return ModelPass(model)

    def arguments_of(self, data: Data | HeteroData) -> dict[str, Any]:
        """Return what the module is called with for a graph of `freshet.LiveGraph` or a batch of `freshet.loader`.

        Weights, attributes, types and ids are those that the data and the model have: `module(**arguments)`.

        Raises: ModuleInputError for data with kinds where the model has none, or the other way round.
        """
        return arguments_of(self._declared, data)

    def logits(self, rows: Tensor, kind: str = "") -> Tensor:
        """Return what the head of the model makes of embeddings.

        Shapes: rows (n, width of the embedding), result (n, classes). `kind` is that of the rows; it may be left out
        where the model returns one kind.
        Raises: ModuleInputError for a kind without a head, or other rows.
        """
        kind = self._returned(kind, "kind")
        layers, prefix = self._head(kind)
        if not layers:
            refuse_input(f"kind: the model has no head for {kind!r}" if kind else "logits: the model has no head")
        return chain(layers, under(self, prefix), "", rows_of(rows, self._widths()[kind], self._real(), "rows"))

    def scores(self, left: Tensor, right: Tensor, left_kind: str = "", right_kind: str = "") -> Tensor:
        """Return the score of each pair of embeddings: by the link head of the model, else their dot product.

        Shapes: left (n, width), right (n, width), result (n,)
        Raises: ModuleInputError for kinds without a link head, where the model has one for others, or other rows.
        """
        kinds, rows = [], dict[str, Tensor]()
        for name, given, kind in (("left", left, left_kind), ("right", right, right_kind)):
            kinds.append(self._returned(kind, f"{name}_kind"))
            rows[name] = rows_of(given, self._widths()[kinds[-1]], self._real(), name)
        head, prefix = self._link_head(*kinds)
        if len(left) != len(right) or (head is DOT and left.shape[1] != right.shape[1]):
            refuse_input(f"right: got shape {tuple(right.shape)}, expected that of left, {tuple(left.shape)}")
        given_rows = {LEFT: rows["left"], RIGHT: rows["right"]}
        (scores,) = run_program(head.program, under(self, prefix) if prefix else {}, given_rows, len(left))
        return scores[:, 0]

    def extra_repr(self) -> str:
        """Return a line about what the module is."""
        return "without dropout, running statistics and shared weights"

    def __repr__(self) -> str:
        """Return the class and a line for each layer."""
        lines = [*_lines(self._declared), self.extra_repr()]
        return "\n".join([f"{type(self).__name__}(", *(f"  {line}" for line in lines), ")"])

    def _real(self) -> torch.dtype | None:
        """Return the type of the weights; None where there are none."""
        every = chain_of(self.parameters(), self.buffers())
        return next((one.dtype for one in every if one.is_floating_point()), None)

    def _widths(self) -> dict[str, int]:
        declared = self._declared
        return declared.out_widths if isinstance(declared, KindsModel) else {"": declared.out_width}

    def _returned(self, kind: str, where: str) -> str:
        """Return the name of a returned kind, which may be left out where there is one."""
        widths = self._widths()
        if kind == "" and len(widths) == 1:
            return next(iter(widths))
        if kind not in widths:
            refuse_input(f"{where}: got {kind!r}, expected a kind that is returned: {', '.join(map(repr, widths))}")
        return kind

    def _head(self, kind: str) -> tuple[Sequence[Layer], str]:
        if isinstance(self._declared, KindsModel):
            return self._declared.heads.get(kind, []), head_name(kind)
        return self._declared.head, "head"

    def _link_head(self, left: str, right: str) -> tuple[LinkHead, str]:
        """Return the head for two kinds and what the names of its weights begin with, empty for the dot product."""
        declared = self._declared
        if not isinstance(declared, KindsModel):
            return (DOT, "") if declared.link_head is None else (declared.link_head, "link_head")
        for i, one in enumerate(declared.link_heads):
            if (one.left, one.right) == (left, right):
                return one, f"link_heads.{i}"
        if declared.link_heads:
            there = ", ".join(f"{one.left!r} and {one.right!r}" for one in declared.link_heads)
            refuse_input(f"left_kind, right_kind: no link head for {left!r} and {right!r}; there is one for {there}")
        return DOT, ""


def _lines(model: Model | KindsModel) -> list[str]:
    """Return a line for each layer, and for each relation of one."""
    if isinstance(model, Model):
        return [f"({i}): {_named(layer)}" for i, layer in enumerate(model.layers)]
    found = []
    for i, layer in enumerate(model.layers):
        if layer.type == "hetero_conv":
            parts = [f"{model.relations[one.relation]}: {_named(one.conv)}" for one in layer.convs]
            found.append(f"({i}): {layer.aggr} of {'; '.join(parts)}")
        else:
            parts = [f"{kind}: {', '.join(map(_named, layers))}" for kind, layers in layer.layers.items()]
            found.append(f"({i}): {'; '.join(parts)}")
    return found


def _named(layer: Layer) -> str:
    """Return the type of a layer, with its widths where it says both."""
    name = str(type(layer).model_fields["type"].default)
    widths = [getattr(layer, f"{end}_channels", None) for end in ("in", "out")]
    return f"{name} {widths[0]} -> {widths[1]}" if all(widths) else name
