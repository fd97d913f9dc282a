"""A model folder as a module of torch: `freshet.to_torch`."""

from __future__ import annotations

from pathlib import Path

from freshet.extras import need
from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.model import Model
from freshet.gnn.module_answers import ModuleAnswer, read
from freshet.gnn.torch_modules.called_by_kinds import KindsModule, OneKindModule
from freshet.gnn.torch_modules.called_plainly import PlainModule
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.gnn.torch_modules.passes import convs_by_place
from freshet.gnn.torch_modules.registry import conv_of


def to_torch(folder: str | Path) -> FreshetModule:
    """Return a model folder as a torch module that makes the same embeddings, to train it further.

    It is called as

    - `module(x, edge_index, edge_weight=None, edge_attr=None)`: a model without kinds of vertices; it returns rows;
    - `module(x, edge_index, edge_type, edge_weight=None, edge_attr=None)`: a model of edge types without kinds, such
      as an RGCN; `edge_type` numbers the types in the model's order;
    - `module(x_dict, edge_index_dict, edge_weight_dict=None, edge_attr_dict=None, ids=None)`: a model with kinds, keys
      being kinds and (source kind, type, target kind) of every relation, mirrors included; it returns rows by kind.
      Models of edge types take this form, too, with the kind `""`.

    Weights of edges are 1 where they are not given, attributes 0. `ids={"user": ids}` finds learned rows; those of
    unknown ids are zeros. A kind with learned rows alone is not in `x_dict`: it has as many vertices as `ids`.
    `module.logits` applies the head, `module.scores` the link head. `module.save(folder)`, or
    `freshet.export_model(module, folder)`, writes a model folder, and takes no options: widths, types, mirrors, ids
    and heads come along. Dropout and the running statistics of norms do not come back (`FreshetModule`).

    Shapes: x (n, features) float32; edge_index (2, e) int64; edge_weight (e,); edge_attr (e, edge features); edge_type
        (e,) int64; ids (n,) int64, or n strings; result (n, width). All float64 after `module.double()`.
    Raises: ModelError for a folder that has no model; ExportError naming a layer without a form in torch, which a
        `freshet.Layer` is; ImportError without PyTorch Geometric.
    """
    need("torch", "to_torch")
    folder = Path(folder)
    model = load_any_model(folder)
    return module_of(model, read(folder))


def module_of(model: Model | KindsModel, answers: list[ModuleAnswer] | None = None) -> FreshetModule:
    """Return a model as a torch module; `answers` are those of the module that it was exported from.

    Raises: ExportError naming a layer without a form in torch.
    """
    for place, conv in convs_by_place(model):
        conv_of(conv, place)
    if isinstance(model, Model):
        return PlainModule(model, answers or ())
    return (OneKindModule if len(model.kinds) == 1 else KindsModule)(model, answers or ())
