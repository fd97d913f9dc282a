"""Arguments of modules from PyTorch Geometric's data, as `freshet.LiveGraph` and `freshet.loader` make it."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.errors import refuse_input


def arguments_of(model: Model | KindsModel, data: Data | HeteroData) -> dict[str, Any]:
    """Return what the module of a model is called with for a graph, by name.

    Raises: ModuleInputError for data with kinds where the model has none, or the other way round.
    """
    several = isinstance(model, KindsModel) and len(model.kinds) > 1
    if isinstance(data, HeteroData) != several:
        what = f"{len(model.kinds)} kinds of vertices" if isinstance(model, KindsModel) else "no kinds of vertices"
        expected = "HeteroData" if several else "Data"
        refuse_input(f"data: got {type(data).__name__}, but the model has {what}; expected {expected}")
    if isinstance(model, KindsModel) and several:
        return _by_dicts(model, data)
    given = {name: data.get(name) for name in ("x", "edge_index", "edge_weight")}
    if isinstance(model, Model):
        given |= {"edge_attr": data.get("edge_attr")} if model.features.given_edge_width else {}
        return given | ({"edge_type": data.get("edge_type")} if model.type_columns else {})
    if any(relation.edge_features for relation in model.relations):
        given["edge_attr"] = data.get("edge_attr")
    given |= {"edge_type": data.get("edge_type")} if len(model.relations) > 1 else {}
    return given | ({"ids": data.get("id")} if model.learned else {})


def _by_dicts(model: KindsModel, data: Any) -> dict[str, Any]:
    kinds, relations = set(data.node_types), set(data.edge_types)
    there = [one for one in model.relations if one.ends in relations]
    attributed = [one.ends for one in there if one.edge_features and "edge_attr" in data[one.ends]]
    return {
        "x_dict": {kind: data[kind].get("x") for kind, width in model.kinds.items() if width and kind in kinds},
        "edge_index_dict": {one.ends: data[one.ends].get("edge_index") for one in there},
        "edge_weight_dict": {one.ends: data[one.ends].get("edge_weight") for one in there},
        "edge_attr_dict": {ends: data[ends]["edge_attr"] for ends in attributed},
        "ids": {kind: data[kind].get("id") for kind in model.learned if kind in kinds},
    }
