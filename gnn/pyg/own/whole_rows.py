"""Notes of functions of whole rows: softmax over their columns, LayerNorm and PReLU."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import PRelu
from freshet.gnn.pyg.own.recorder import Note, Noted, Operation, Recorder, tracked
from freshet.gnn.rows.functions import LogSoftmax, Softmax
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import LayerNorm


def _over_columns(layer: Layer) -> Note:
    """Note a softmax over the columns of a row."""

    def note(rec: Recorder, call: Operation) -> Noted:
        tensor, noted = tracked(rec, call)
        if noted.axis == call.args[1] % tensor.dim():
            call.refuse(f"{call.name} over dim={call.args[1]} reads all vertices or edges at once")
        # over dimensions that are all of a row, as weights of one head; else functions of the numbers
        whole = noted.value.over == "vertices" and tensor.shape[call.args[1]] == noted.value.width
        if tensor.dim() != 2 and not whole:
            return rec.taken_apart(call)
        return noted.then("layer", call.place, layer=layer)

    return note


def _layer_norm(rec: Recorder, call: Operation) -> Noted:
    tensor, noted = tracked(rec, call)
    _, shape, weight, bias, eps = call.args
    if noted.axis >= tensor.dim() - len(shape):
        call.refuse("layer_norm reads all vertices or edges at once")
    if list(shape) != [noted.value.width]:
        return rec.taken_apart(call)
    arrays = {
        name: one.double().numpy().astype(np.float32)
        for name, one in (("weight", weight), ("bias", bias))
        if one is not None
    }
    layer = LayerNorm(channels=noted.value.width, eps=eps, weight="weight" in arrays, bias="bias" in arrays)
    return [noted.then("layer", call.place, layer=layer, arrays=arrays), None, None]


def _prelu(rec: Recorder, call: Operation) -> Noted:
    tensor, noted = tracked(rec, call)
    slopes = call.args[1]
    if tensor is not call.args[0] or rec.find(slopes) is not None:
        call.refuse("prelu by slopes that depend on the graph is no function of rows that Freshet knows")
    if slopes.numel() > 1 and (tensor.dim() != 2 or slopes.numel() != noted.value.width):
        return rec.taken_apart(call)
    arrays = {"weight": slopes.detach().reshape(-1).double().numpy().astype(np.float32)}
    return noted.then("layer", call.place, layer=PRelu(channels=slopes.numel()), arrays=arrays)


LAYER_NOTES: dict[str, Note] = {
    "_softmax": _over_columns(Softmax()),
    "_log_softmax": _over_columns(LogSoftmax()),
    "native_layer_norm": _layer_norm,
    "_prelu_kernel": _prelu,
}
