"""Functions of torch for each conv of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from freshet.gnn.declarations import (
    AttentionConv,
    CGConv,
    Conv,
    DegreeScaledConv,
    EdgeConv,
    FiLMConv,
    GENConv,
    GINConv,
    GINEConv,
    GMMConv,
    Laplacian,
    MessageConv,
    NNConv,
    OwnLayer,
    PinSAGEConv,
    PNAConv,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
)
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.attention import attention_conv
from freshet.gnn.torch_modules.networks import (
    cg_conv,
    edge_conv,
    film_conv,
    gen_conv,
    gine_conv,
    gmm_conv,
    nn_conv,
    pna_conv,
)
from freshet.gnn.torch_modules.programs import message_conv
from freshet.gnn.torch_modules.rows import Weights
from freshet.gnn.torch_modules.sums import (
    degree_scaled_conv,
    gated_conv,
    gin_conv,
    laplacian,
    pin_sage_conv,
    rooted_conv,
    sage_conv,
    scaled,
    scaled_laplacian,
)

_CONVS: dict[type[Conv], Callable[[Any, Weights, Tensor, Tensor, MessageEdges], Tensor]] = {
    AttentionConv: attention_conv,
    CGConv: cg_conv,
    DegreeScaledConv: degree_scaled_conv,
    EdgeConv: edge_conv,
    FiLMConv: film_conv,
    GENConv: gen_conv,
    GINConv: gin_conv,
    GINEConv: gine_conv,
    GMMConv: gmm_conv,
    Laplacian: laplacian,
    MessageConv: message_conv,
    NNConv: nn_conv,
    PNAConv: pna_conv,
    PinSAGEConv: pin_sage_conv,
    ResGatedGraphConv: gated_conv,
    RootedConv: rooted_conv,
    SAGEConv: sage_conv,
}

DEGREES: dict[type[Conv], Callable[[Any, MessageEdges], object]] = {
    DegreeScaledConv: scaled,
    Laplacian: scaled_laplacian,
}


def degrees_of(layer: Conv) -> Callable[[Any, MessageEdges], object] | None:
    """Return what reads degrees of sources for a conv (see `FarSources`), of its entry and edges; None: nothing."""
    return next((DEGREES[base] for base in type(layer).__mro__ if base in DEGREES), None)


def conv_of(layer: Conv, where: str) -> Callable[[Any, Weights, Tensor, Tensor, MessageEdges], Tensor]:
    """Return what runs a conv, of its entry, its weights, the rows of sources and of targets, and its edges.

    Raises: ExportError naming a conv that has no form in torch; `where` is its place in the model.
    """
    for base in type(layer).__mro__:
        if base in _CONVS:
            return _CONVS[base]
    if isinstance(layer, OwnLayer):
        refuse(
            f"{where} is {layer.code}, a freshet.Layer: its functions are numpy and have no gradients. Train the "
            "module that the model was exported from, and export that once more"
        )
    refuse(f"{where} ({type(layer).__name__}) has no form in torch")
